#include "linux/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "linux/system_error.h"

namespace tranche {
namespace {

std::string directory_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

// Writes, syncs and renames; the caller removes `temporary` if this fails.
Result<void> replace(const std::string& temporary, const std::string& path, std::string_view content,
                     mode_t mode) {
  const UniqueFd file(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode));
  if (!file.is_open()) return fail(system_error("creating " + temporary));
  if (::fchmod(file.get(), mode) != 0) return fail(system_error("setting the mode of " + temporary));
  TRY(write_all(file.get(), content));
  if (::fsync(file.get()) != 0) return fail(system_error("syncing " + temporary));
  if (::rename(temporary.c_str(), path.c_str()) != 0) return fail(system_error("replacing " + path));
  return sync_directory(directory_of(path));
}

}  // namespace

Result<std::string> read_file(const std::string& path, size_t limit) {
  // O_NONBLOCK: opening a FIFO must not wait for its writer.
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  if (!file.is_open()) return fail(system_error("opening " + path));
  struct stat status = {};
  if (::fstat(file.get(), &status) != 0) return fail(system_error("reading " + path));
  if (!S_ISREG(status.st_mode)) return fail(ErrorCode::invalid_argument, path + " is not a regular file");
  std::string content;
  char block[16384];
  while (true) {
    const ssize_t size = ::read(file.get(), block, sizeof block);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) return fail(system_error("reading " + path));
    if (size == 0) return content;
    if (content.size() + static_cast<size_t>(size) > limit) {
      return fail(ErrorCode::too_large, path + " is longer than " + std::to_string(limit) + " bytes");
    }
    content.append(block, static_cast<size_t>(size));
  }
}

Result<void> write_file_atomically(const std::string& path, std::string_view content, mode_t mode) {
  // Named by process: a leftover of a crash is of another process, or is replaced here.
  const std::string temporary = path + ".tmp." + std::to_string(::getpid());
  if (::unlink(temporary.c_str()) != 0 && errno != ENOENT) return fail(system_error("removing " + temporary));
  auto replaced = replace(temporary, path, content, mode);
  if (!replaced) ::unlink(temporary.c_str());
  return replaced;
}

Result<void> sync_directory(const std::string& directory) {
  const UniqueFd folder(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder.is_open()) return fail(system_error("opening " + directory));
  if (::fsync(folder.get()) != 0) return fail(system_error("syncing " + directory));
  return {};
}

Result<void> write_all(int file_descriptor, std::string_view content) {
  while (!content.empty()) {
    const ssize_t size = ::write(file_descriptor, content.data(), content.size());
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) return fail(system_error("writing"));
    content.remove_prefix(static_cast<size_t>(size));
  }
  return {};
}

}  // namespace tranche
