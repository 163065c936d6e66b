#include "emulator/former_bytes.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "emulator/server_description.h"

namespace tranche::emulator {
namespace {

constexpr mode_t kFileMode = 0666;
constexpr uint64_t kFileBytes = kWindows * kWindowBytes;

// Whether the file system, which is /run and needed by others too, has half of itself left, or a gibibyte.
bool has_room(int file) {
  constexpr uint64_t kEnough = uint64_t{1} << 30;
  struct statvfs system;
  if (fstatvfs(file, &system) != 0) return false;
  const uint64_t left = system.f_bavail * system.f_frsize, all = system.f_blocks * system.f_frsize;
  return left > std::min(all / 2, kEnough);
}

}  // namespace

std::string former_bytes_path(const std::string& directory, uint32_t gpu) {
  return directory + "/tranche-memory:" + std::to_string(gpu);
}

Result<void> make_former_bytes(const std::string& directory, uint32_t gpu_count) {
  for (uint32_t gpu = 0; gpu < gpu_count; ++gpu) {
    const std::string path = former_bytes_path(directory, gpu);
    unlink(path.c_str());
    const int file = open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, kFileMode);
    const bool made =
        file >= 0 && fchmod(file, kFileMode) == 0 && ftruncate(file, static_cast<off_t>(kFileBytes)) == 0;
    const int error = errno;
    if (file >= 0) close(file);
    if (!made) {
      return fail(ErrorCode::unavailable, "cannot make " + path + ": " + std::strerror(error) +
                                              "; choose another folder with TRANCHE_EMULATOR");
    }
  }
  return {};
}

void remove_former_bytes(const std::string& directory) {
  for (uint32_t gpu = 0; gpu < kMaxGpus; ++gpu) unlink(former_bytes_path(directory, gpu).c_str());
}

// Its pages are taken now: a full file system would otherwise end the process at its first touch.
int map_window(const std::string& directory, uint32_t gpu, uint32_t slot, void* address) {
  if (slot >= kWindows) return -1;
  const auto offset = static_cast<off_t>(slot * kWindowBytes);
  const int file = open(former_bytes_path(directory, gpu).c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
  if (file < 0) return -1;
  struct stat status;
  const bool is_whole = fstat(file, &status) == 0 && S_ISREG(status.st_mode) &&
                        static_cast<uint64_t>(status.st_size) == kFileBytes && has_room(file) &&
                        fallocate(file, 0, offset, static_cast<off_t>(kWindowBytes)) == 0;
  constexpr int kOver = MAP_SHARED | MAP_FIXED;
  if (is_whole && mmap(address, kWindowBytes, PROT_READ | PROT_WRITE, kOver, file, offset) == address)
    return file;
  close(file);
  return -1;
}

}  // namespace tranche::emulator
