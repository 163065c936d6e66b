// Which device nodes a task may open: a BPF program of type CGROUP_DEVICE on its cgroup, default deny. Rules
// compare type, major and minor, so renamed or newly made nodes of another device gain nothing; making nodes
// is denied altogether.
#pragma once

#include <cstdint>
#include <vector>

#include "isolation/failure.h"
#include "isolation/file.h"

namespace tranche::isolation {

struct DeviceNode {
  bool is_block = false;
  uint32_t major = 0;
  uint32_t minor = 0;
  bool operator==(const DeviceNode&) const = default;
};

// Finds type and numbers of `path`, a node that root made; refuses links and what is no device.
Outcome<DeviceNode> find_device_node(const std::string& path);

// The nodes of a task with these GPUs: /dev/nvidia<minor> of each, and when there is any the driver's control
// nodes that exist (nvidiactl, nvidia-uvm, nvidia-uvm-tools). ENODEV names the missing GPU.
Outcome<std::vector<DeviceNode>> find_gpu_nodes(const uint32_t* minors, uint32_t count);

// A filter that allows null, zero, full, random, urandom, tty, ptmx, pts, fuse and `nodes`; it belongs to no
// cgroup yet.
Outcome<FileDescriptor> load_device_filter(const std::vector<DeviceNode>& nodes);
// One filter may be attached to any number of cgroups.
Outcome<void> attach_device_filter(int cgroup, int filter);

// Filters of the sets of nodes that were asked for last. Checking and compiling a program takes the kernel
// longer than all else of a start but the new processes, and tasks ask for the same few sets again and again.
class DeviceFilters {
 public:
  // Belongs to this object, until `kKept` other sets have been asked for.
  Outcome<int> find(const std::vector<DeviceNode>& nodes);

 private:
  static constexpr size_t kKept = 64;
  struct Kept {
    std::vector<DeviceNode> nodes;
    FileDescriptor filter;
  };
  std::vector<Kept> kept_;  // the one asked for last is the first
};

}  // namespace tranche::isolation
