#include "emulator/mig_nodes.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/loop.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <memory>
#include <set>

#include "emulator/device_nodes.h"

namespace tranche::emulator {
namespace {

// Numbers of a server's nodes behind those of device_nodes.cc: capabilities take what is free.
constexpr uint32_t kFirstNumber = 258;
constexpr mode_t kCapabilityMode = 0666;

std::string folder_of(const std::string& directory) { return directory + "/nvidia-caps"; }
std::string name_of(uint32_t capability) { return "nvidia-cap" + std::to_string(capability); }

bool is_loop(const struct stat& status) {
  return S_ISBLK(status.st_mode) && major(status.st_rdev) == kLoopMajor &&
         minor(status.st_rdev) >= kFirstLoopMinor;
}

// The nodes that are there, with their loop minors.
std::map<std::string, uint32_t> nodes_in(const std::string& folder) {
  std::map<std::string, uint32_t> nodes;
  const std::unique_ptr<DIR, int (*)(DIR*)> listing(opendir(folder.c_str()), closedir);
  if (listing == nullptr) return nodes;
  while (const dirent* entry = readdir(listing.get())) {
    struct stat status;
    const std::string path = folder + "/" + entry->d_name;
    if (lstat(path.c_str(), &status) == 0 && is_loop(status)) nodes[entry->d_name] = minor(status.st_rdev);
  }
  return nodes;
}

void remove_node(const std::string& folder, const std::string& name, uint32_t loop_minor) {
  const int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);
  if (control >= 0) {
    ioctl(control, LOOP_CTL_REMOVE, static_cast<long>(loop_minor));
    close(control);
  }
  unlink((folder + "/" + name).c_str());
}

std::set<std::string> wanted_nodes(DeviceModel& model) {
  std::set<std::string> names;
  for (uint32_t gpu = 0; gpu < model.gpu_count(); ++gpu) {
    if (!model.mig_enabled(gpu)) continue;
    names.insert({name_of(kConfigCapability), name_of(kMonitorCapability)});
    for (const MigDeviceInfo& device : model.mig_devices(gpu)) {
      const uint32_t number = model.identity(gpu).minor;
      names.insert(name_of(gpu_instance_capability(number, device.gpu_instance)));
      names.insert(
          name_of(compute_instance_capability(number, device.gpu_instance, device.compute_instance)));
    }
  }
  return names;
}

}  // namespace

Result<void> refresh_mig_nodes(DeviceModel& model, const std::string& directory) {
  struct stat status;
  const std::string control = directory + "/" + control_node().name;
  if (lstat(control.c_str(), &status) != 0 || !is_loop(status)) return {};
  const uint32_t first = minor(status.st_rdev) - control_node().number;
  const std::string folder = folder_of(directory);
  const std::set<std::string> wanted = wanted_nodes(model);
  std::map<std::string, uint32_t> there = nodes_in(folder);
  for (const auto& [name, loop_minor] : std::map(there)) {
    if (wanted.contains(name)) continue;
    remove_node(folder, name, loop_minor);
    there.erase(name);
  }
  if (wanted.empty()) {
    rmdir(folder.c_str());
    return {};
  }
  mkdir(folder.c_str(), 0755);
  std::set<uint32_t> taken;
  for (const auto& [name, loop_minor] : there) taken.insert(loop_minor);
  uint32_t next = first + kFirstNumber;
  for (const std::string& name : wanted) {
    if (there.contains(name)) continue;
    while (taken.contains(next)) ++next;
    if (next >= first + kMinorsPerServer) {
      return fail(ErrorCode::over_limit,
                  "the emulated server has no device numbers left for more MIG instances");
    }
    const std::string path = folder + "/" + name;
    if (mknod(path.c_str(), S_IFBLK | kCapabilityMode, makedev(kLoopMajor, next)) != 0 ||
        chmod(path.c_str(), kCapabilityMode) != 0) {
      return fail(ErrorCode::denied,
                  "cannot make " + path + ": " + std::strerror(errno) + "; this needs root");
    }
    taken.insert(next);
  }
  return {};
}

void remove_mig_nodes(const std::string& directory) {
  const std::string folder = folder_of(directory);
  for (const auto& [name, loop_minor] : nodes_in(folder)) remove_node(folder, name, loop_minor);
  rmdir(folder.c_str());
}

bool open_mig_device(const MigDeviceInfo& device) {
  const auto may_open = [](uint32_t capability) {
    const std::string name = "nvidia-caps/" + name_of(capability);
    if (open_node({name, 0}) >= 0) return true;
    return access("/dev/nvidia-caps", F_OK) != 0;  // a server whose nodes are stand-ins has none of these
  };
  return may_open(gpu_instance_capability(device.gpu_minor, device.gpu_instance)) &&
         may_open(
             compute_instance_capability(device.gpu_minor, device.gpu_instance, device.compute_instance));
}

}  // namespace tranche::emulator
