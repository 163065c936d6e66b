#include "emulator/device_nodes.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/loop.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <ctime>
#include <memory>

#include "emulator/mig_nodes.h"
#include "emulator/server_description.h"

namespace tranche::emulator {
namespace {

constexpr mode_t kNodeMode = 0666;
constexpr uint32_t kControlNumber = 255;
constexpr uint32_t kMemoryNumber = 256;
constexpr uint32_t kMemoryToolsNumber = 257;

// Forgetting a loop device takes some 60 ms, for which opening its node answers ENXIO.
constexpr int kOpenTries = 500;
constexpr timespec kOpenPause{.tv_sec = 0, .tv_nsec = 2'000'000};

bool is_ours(const struct stat& status) {
  return S_ISBLK(status.st_mode) && major(status.st_rdev) == kLoopMajor &&
         minor(status.st_rdev) >= kFirstLoopMinor;
}

// The entries of `directory` that begin with "nvidia".
std::vector<std::string> nvidia_entries(const std::string& directory) {
  std::vector<std::string> paths;
  const std::unique_ptr<DIR, int (*)(DIR*)> listing(opendir(directory.c_str()), closedir);
  if (listing == nullptr) return paths;
  while (const dirent* entry = readdir(listing.get())) {
    if (std::strncmp(entry->d_name, "nvidia", 6) == 0) paths.push_back(directory + "/" + entry->d_name);
  }
  return paths;
}

Result<void> make_node(const std::string& path, uint32_t node_minor) {
  struct stat status;
  if (lstat(path.c_str(), &status) == 0) {
    if (!is_ours(status)) {
      return fail(ErrorCode::conflict, path + " exists and is not the emulator's; remove it first");
    }
    unlink(path.c_str());
  }
  if (mknod(path.c_str(), S_IFBLK | kNodeMode, makedev(kLoopMajor, node_minor)) != 0 ||
      chmod(path.c_str(), kNodeMode) != 0) {
    return fail(ErrorCode::denied, "cannot make the device node " + path + ": " + std::strerror(errno) +
                                       "; this needs root outside a user namespace");
  }
  return {};
}

std::vector<DeviceNode> memory_nodes() { return {memory_node(), {"nvidia-uvm-tools", kMemoryToolsNumber}}; }

// The minor of the server's node number 0, from its control node.
Result<uint32_t> first_minor_of(const std::string& directory) {
  const std::string path = directory + "/" + control_node().name;
  struct stat status;
  if (lstat(path.c_str(), &status) != 0 || !is_ours(status)) {
    return fail(ErrorCode::unavailable,
                path + " is no node of the emulator: faults of nodes need root and a server that start made");
  }
  return static_cast<uint32_t>(minor(status.st_rdev)) - kControlNumber;
}

}  // namespace

DeviceNode gpu_node(uint32_t gpu_minor) { return {"nvidia" + std::to_string(gpu_minor), gpu_minor}; }
DeviceNode control_node() { return {"nvidiactl", kControlNumber}; }
DeviceNode memory_node() { return {"nvidia-uvm", kMemoryNumber}; }

std::vector<DeviceNode> server_nodes(uint32_t gpu_count) {
  std::vector<DeviceNode> nodes;
  for (uint32_t gpu = 0; gpu < gpu_count; ++gpu) nodes.push_back(gpu_node(gpu));
  nodes.push_back(control_node());
  nodes.push_back(memory_node());
  nodes.push_back({"nvidia-uvm-tools", kMemoryToolsNumber});
  return nodes;
}

int open_node(const DeviceNode& node) {
  const std::string path = "/dev/" + node.name;
  for (int tries = 0;; ++tries) {
    const int file = open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK);
    struct stat status;
    const bool going_away = file < 0 && errno == ENXIO && tries < kOpenTries &&
                            lstat(path.c_str(), &status) == 0 && is_ours(status);
    if (!going_away) return file;
    nanosleep(&kOpenPause, nullptr);
  }
}

Result<void> make_nodes(const std::string& directory, uint32_t gpu_count, uint32_t server_number) {
  const uint32_t first_minor = kFirstLoopMinor + server_number % kServerNumbers * kMinorsPerServer;
  for (const DeviceNode& node : server_nodes(gpu_count)) {
    TRY(make_node(directory + "/" + node.name, first_minor + node.number));
  }
  return {};
}

Result<void> remove_nodes(const std::string& directory) {
  remove_mig_nodes(directory);
  forget_loop_devices(directory);
  std::string failed;
  for (const std::string& path : nvidia_entries(directory)) {
    struct stat status;
    if (lstat(path.c_str(), &status) != 0 || !is_ours(status)) continue;
    if (unlink(path.c_str()) != 0) failed = path + ": " + std::strerror(errno);
  }
  if (!failed.empty()) return fail(ErrorCode::denied, "cannot remove " + failed + "; run stop as root");
  return {};
}

void forget_loop_devices(const std::string& directory) {
  const int loop_control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);
  if (loop_control < 0) return;
  for (const std::string& path : nvidia_entries(directory)) {
    struct stat status;
    if (lstat(path.c_str(), &status) != 0 || !is_ours(status)) continue;
    ioctl(loop_control, LOOP_CTL_REMOVE, static_cast<long>(minor(status.st_rdev)));
  }
  close(loop_control);
}

Result<void> remove_memory_nodes(const std::string& directory) {
  for (const DeviceNode& node : memory_nodes()) {
    const std::string path = directory + "/" + node.name;
    struct stat status;
    if (lstat(path.c_str(), &status) != 0) continue;
    if (!is_ours(status) || unlink(path.c_str()) != 0) {
      return fail(ErrorCode::denied,
                  "cannot remove " + path + "; this needs root and a server that start made");
    }
  }
  return {};
}

Result<void> restore_memory_nodes(const std::string& directory) {
  TRY_ASSIGN(const uint32_t first_minor, first_minor_of(directory));
  for (const DeviceNode& node : memory_nodes()) {
    TRY(make_node(directory + "/" + node.name, first_minor + node.number));
  }
  return {};
}

Result<void> renumber_gpu_node(const std::string& directory, uint32_t from_minor, uint32_t to_minor) {
  TRY_ASSIGN(const uint32_t first_minor, first_minor_of(directory));
  const DeviceNode to = gpu_node(to_minor);
  if (access((directory + "/" + to.name).c_str(), F_OK) == 0) {
    return fail(ErrorCode::conflict, directory + "/" + to.name + " exists; choose a number that is free");
  }
  TRY(make_node(directory + "/" + to.name, first_minor + to.number));
  unlink((directory + "/" + gpu_node(from_minor).name).c_str());
  return {};
}

bool has_emulated_nodes(const std::string& directory) {
  struct stat status;
  return lstat((directory + "/" + control_node().name).c_str(), &status) == 0 && S_ISBLK(status.st_mode) &&
         major(status.st_rdev) == kLoopMajor;
}

bool has_real_driver(const std::string& directory) {
  for (const std::string& path : nvidia_entries(directory)) {
    struct stat status;
    if (lstat(path.c_str(), &status) == 0 && S_ISCHR(status.st_mode) &&
        major(status.st_rdev) == kNvidiaMajor) {
      return true;
    }
  }
  return false;
}

}  // namespace tranche::emulator
