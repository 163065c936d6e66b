// Which device nodes a task may open: a BPF program of type CGROUP_DEVICE on its cgroup, default deny. Rules
// compare type, major and minor, so renamed or newly made nodes of another device gain nothing; making nodes
// is denied altogether.
#pragma once

#include <cstdint>
#include <vector>

#include "isolation/failure.h"

namespace tranche::isolation {

struct DeviceNode {
  bool is_block = false;
  uint32_t major = 0;
  uint32_t minor = 0;
};

// Finds type and numbers of `path`, a node that root made; refuses links and what is no device.
Outcome<DeviceNode> find_device_node(const std::string& path);

// The nodes of a task with these GPUs: /dev/nvidia<minor> of each, and when there is any the driver's control
// nodes that exist (nvidiactl, nvidia-uvm, nvidia-uvm-tools). ENODEV names the missing GPU.
Outcome<std::vector<DeviceNode>> find_gpu_nodes(const uint32_t* minors, uint32_t count);

// Attaches a filter that allows null, zero, full, random, urandom, tty, ptmx, pts, fuse and `nodes`.
Outcome<void> attach_device_filter(int cgroup, const std::vector<DeviceNode>& nodes);

}  // namespace tranche::isolation
