#include "cli/log_file.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <vector>

#include "linux/files.h"
#include "linux/system_error.h"

namespace tranche::cli {
namespace {

constexpr size_t kBlockBytes = size_t{64} << 10;
// inotify does not see what other machines write to a network file system.
constexpr int kLookAnywayMilliseconds = 1000;

std::string directory_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

Result<int64_t> file_size(int file) {
  struct stat status {};
  if (fstat(file, &status) != 0) return fail(system_error("read the log's size"));
  return int64_t{status.st_size};
}

void drain_notifications(int notifications) {
  alignas(inotify_event) std::array<char, 4096> buffer;
  while (read(notifications, buffer.data(), buffer.size()) > 0) {
  }
}

// A file that became shorter is read again from its beginning.
Result<void> copy_new(int file, int output) {
  TRY_ASSIGN(const int64_t size, file_size(file));
  if (size < lseek(file, 0, SEEK_CUR)) lseek(file, 0, SEEK_SET);
  return copy_to_end(file, output);
}

}  // namespace

Result<UniqueFd> open_log(const std::string& path) {
  UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!file.is_open()) return fail(system_error("open the log " + path));
  struct stat status {};
  if (fstat(file.get(), &status) != 0) return fail(system_error("look at the log " + path));
  if (!S_ISREG(status.st_mode)) {
    return fail(ErrorCode::invalid_argument, path + " is not a file, so what the job wrote there is gone");
  }
  return file;
}

Result<int64_t> last_lines_offset(int file, size_t lines) {
  TRY_ASSIGN(int64_t position, file_size(file));
  std::vector<char> block(kBlockBytes);
  size_t seen = 0;
  bool at_end = true;  // the newline that ends the last line does not begin another
  while (position > 0) {
    const int64_t begin = std::max<int64_t>(0, position - static_cast<int64_t>(kBlockBytes));
    const ssize_t got = pread(file, block.data(), static_cast<size_t>(position - begin), begin);
    if (got < 0) return fail(system_error("read the log"));
    for (ssize_t i = got - 1; i >= 0; --i) {
      const bool newline = block[static_cast<size_t>(i)] == '\n';
      if (newline && !at_end && ++seen == lines) return begin + i + 1;
      at_end = false;
    }
    if (got == 0) break;
    position = begin;
  }
  return int64_t{0};
}

Result<void> copy_to_end(int file, int output) {
  std::vector<char> block(kBlockBytes);
  while (true) {
    const ssize_t got = read(file, block.data(), block.size());
    if (got == 0) return {};
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return fail(system_error("read the log"));
    TRY(write_all(output, std::string_view(block.data(), static_cast<size_t>(got))));
  }
}

Result<void> follow_log(const std::string& path, UniqueFd file, int ended, int output) {
  const UniqueFd notifications(inotify_init1(IN_NONBLOCK | IN_CLOEXEC));
  if (!notifications.is_open()) return fail(system_error("watch the log"));
  inotify_add_watch(notifications.get(), directory_of(path).c_str(), IN_CREATE | IN_MOVED_TO);
  bool watched = false;
  while (true) {
    if (!file.is_open()) {
      Result<UniqueFd> opened = open_log(path);
      if (!opened && opened.error().code() != ErrorCode::not_found) return fail(std::move(opened).error());
      if (opened) file = std::move(*opened);
    }
    if (file.is_open() && !watched) {
      watched = inotify_add_watch(notifications.get(), path.c_str(), IN_MODIFY) >= 0;
    }
    if (file.is_open()) TRY(copy_new(file.get(), output));
    pollfd waiting[] = {{notifications.get(), POLLIN, 0}, {ended, POLLIN, 0}};
    if (poll(waiting, 2, kLookAnywayMilliseconds) < 0 && errno != EINTR)
      return fail(system_error("wait for the log"));
    drain_notifications(notifications.get());
    if ((waiting[1].revents & (POLLIN | POLLHUP)) == 0) continue;
    if (!file.is_open()) {
      Result<UniqueFd> opened = open_log(path);
      if (!opened)
        return opened.error().code() == ErrorCode::not_found ? Result<void>()
                                                             : fail(std::move(opened).error());
      file = std::move(*opened);
    }
    return copy_new(file.get(), output);
  }
}

}  // namespace tranche::cli
