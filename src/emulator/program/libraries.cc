#include "emulator/program/libraries.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>

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

Result<void> copy_file(const std::string& from, const std::string& to) {
  const int source = open(from.c_str(), O_RDONLY | O_CLOEXEC);
  if (source < 0) return fail(ErrorCode::not_found, "cannot open " + from + ": " + std::strerror(errno));
  const int target = open(to.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
  struct stat status;
  bool copied = target >= 0 && fstat(source, &status) == 0 && fchmod(target, 0644) == 0;
  for (off_t done = 0; copied && done < status.st_size;) {
    copied = sendfile(target, source, &done, static_cast<size_t>(status.st_size - done)) > 0;
  }
  const int error = errno;
  close(source);
  if (target >= 0) close(target);
  if (!copied) return fail(ErrorCode::unavailable, "cannot write " + to + ": " + std::strerror(error));
  return {};
}

}  // namespace

void remember_program_path() {
  std::array<char, PATH_MAX> program;
  const ssize_t length = readlink("/proc/self/exe", program.data(), program.size());
  if (length > 0) program_path().assign(program.data(), static_cast<size_t>(length));
}

Result<void> install_libraries(const std::string& directory) {
  TRY_ASSIGN(const std::string source, built_libraries());
  for (const LibraryFile& library : kLibraries) {
    TRY(copy_file(source + "/" + library.name, directory + "/" + library.name));
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
