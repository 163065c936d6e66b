#include "emulator/program/libraries.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <vector>

#include "emulator/driver_level.h"
#include "emulator/program/symbol_table.h"

namespace tranche::emulator {
namespace {

struct LibraryFile {
  const char* name;
  const char* link;  // what -l and some programs ask for
};

constexpr std::array<LibraryFile, 2> kLibraries{
    {{"libcuda.so.1", "libcuda.so"}, {"libnvidia-ml.so.1", "libnvidia-ml.so"}}};

std::string parent(const std::string& path) { return path.substr(0, path.rfind('/')); }

std::string& program_path() {
  static std::string path;
  return path;
}

Result<std::string> built_libraries() {
  if (program_path().empty()) return fail(ErrorCode::unavailable, "/proc is not mounted; mount it first");
  const std::string root = parent(parent(program_path()));
  for (const char* place : {"/lib/emulator", "/lib/tranche/emulator"}) {
    if (access((root + place + "/libcuda.so.1").c_str(), R_OK) == 0) return root + place;
  }
  return fail(ErrorCode::not_found,
              "there is no " + root + "/lib/emulator/libcuda.so.1; build the target emulator_cuda");
}

Result<std::vector<char>> read_file(const std::string& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat status;
  if (file < 0 || fstat(file, &status) != 0) {
    Error error(ErrorCode::not_found, "cannot open " + path + ": " + std::strerror(errno));
    if (file >= 0) close(file);
    return fail(std::move(error));
  }
  std::vector<char> content(static_cast<size_t>(status.st_size));
  size_t done = 0;
  ssize_t length = 1;
  while (length > 0 && done < content.size()) {
    length = read(file, content.data() + done, content.size() - done);
    if (length > 0) done += static_cast<size_t>(length);
  }
  close(file);
  if (done < content.size()) return fail(ErrorCode::unavailable, "cannot read " + path);
  return content;
}

Result<void> write_file(const std::string& path, const std::vector<char>& content) {
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
  bool written = file >= 0 && fchmod(file, 0644) == 0;
  for (size_t done = 0; written && done < content.size();) {
    const ssize_t length = write(file, content.data() + done, content.size() - done);
    written = length > 0;
    if (written) done += static_cast<size_t>(length);
  }
  const int error = errno;
  if (file >= 0) close(file);
  if (!written) return fail(ErrorCode::unavailable, "cannot write " + path + ": " + std::strerror(error));
  return {};
}

}  // namespace

void remember_program_path() {
  std::array<char, PATH_MAX> program;
  const ssize_t length = readlink("/proc/self/exe", program.data(), program.size());
  if (length > 0) program_path().assign(program.data(), static_cast<size_t>(length));
}

Result<void> install_libraries(const std::string& directory, const std::string& driver_version) {
  TRY_ASSIGN(const std::string source, built_libraries());
  const std::vector<std::string_view> absent = absent_symbols(driver_version);
  for (const LibraryFile& library : kLibraries) {
    TRY_ASSIGN(std::vector<char> content, read_file(source + "/" + library.name));
    TRY(remove_symbols(content, absent));
    TRY(write_file(directory + "/" + library.name, content));
    const std::string link = directory + "/" + library.link;
    unlink(link.c_str());
    if (symlink(library.name, link.c_str()) != 0) {
      return fail(ErrorCode::unavailable, "cannot make the link " + link + ": " + std::strerror(errno));
    }
  }
  return {};
}

void remove_libraries(const std::string& directory) {
  for (const LibraryFile& library : kLibraries) {
    unlink((directory + "/" + library.name).c_str());
    unlink((directory + "/" + library.link).c_str());
  }
}

Result<std::string> loader_directory() {
  Dl_info info;
  std::array<char, PATH_MAX> path;
  if (dladdr(reinterpret_cast<const void*>(&std::printf), &info) == 0 ||
      realpath(info.dli_fname, path.data()) == nullptr) {
    return fail(ErrorCode::unavailable,
                "cannot tell where the C library lies; run a dynamically linked build");
  }
  return parent(path.data());
}

}  // namespace tranche::emulator
