// The device nodes of an emulated server: block nodes `b 7:N` of loop devices that are bound to nothing,
// under the names of the NVIDIA driver. They can be opened, show up in /proc/PID/fd, and are subject to
// permissions and device filters; nothing is ever read from or written to them.
//
// The libraries list only the GPUs whose node the process can open, and keep what they opened, so that
// /proc/PID/fd shows who holds a GPU.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace tranche::emulator {

// A node's name in /dev and its number among the nodes of its server.
struct DeviceNode {
  std::string name;
  uint32_t number;
};

inline constexpr uint32_t kLoopMajor = 7;
inline constexpr uint32_t kNvidiaMajor = 195;          // char major of a real driver's nodes
inline constexpr uint32_t kFirstLoopMinor = 1u << 16;  // far above any loop device in use
inline constexpr uint32_t kMinorsPerServer = 512;
// How many servers can stand side by side without sharing loop devices: minors have 20 bits.
inline constexpr uint32_t kServerNumbers = ((1u << 20) - kFirstLoopMinor) / kMinorsPerServer;

DeviceNode gpu_node(uint32_t gpu_minor);
DeviceNode control_node();
DeviceNode memory_node();  // nvidia-uvm
// All nodes of a server with `gpu_count` GPUs, control nodes included.
std::vector<DeviceNode> server_nodes(uint32_t gpu_count);

// Opens /dev/NAME for reading and writing, close-on-exec; -1 if the process may not or it is not there.
// Waits while the kernel is forgetting the node's loop device, which a server that ended may have asked for.
int open_node(const DeviceNode& node);

// Makes the nodes in `directory`, mode 0666; refuses when one of the names exists and is not ours. Their
// loop devices are those of `server_number`, taken modulo kServerNumbers; the machine's server is number 0.
Result<void> make_nodes(const std::string& directory, uint32_t gpu_count, uint32_t server_number);
// Removes the nodes that make_nodes made, and the loop devices that opening them created.
Result<void> remove_nodes(const std::string& directory);
// Asks the kernel to forget the loop devices of the nodes in `directory`; those still open stay.
void forget_loop_devices(const std::string& directory);
// Faults of nodes: NVIDIA's helper has not made those of nvidia-uvm; and a GPU's node bears another number.
Result<void> remove_memory_nodes(const std::string& directory);
Result<void> restore_memory_nodes(const std::string& directory);
Result<void> renumber_gpu_node(const std::string& directory, uint32_t from_minor, uint32_t to_minor);
// True when `directory` has the control node of an emulated server.
bool has_emulated_nodes(const std::string& directory);
// True when `directory` has nodes of a real NVIDIA driver.
bool has_real_driver(const std::string& directory);

}  // namespace tranche::emulator
