// What is behind nvmlInit and nvmlShutdown: the emulated server this process is attached to, and the GPUs
// of it that the process can open.
//
// The set of visible GPUs is taken when the first nvmlInit finds the library at rest, and kept until the
// last nvmlShutdown, as the driver does. A session lives on in calls that run while it ends.
// Threading: all functions from any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "emulator/device_model.h"
#include "emulator/nvml/nvml_abi.h"

namespace tranche::emulator::nvml {

class Session {
 public:
  // Attaches to the server of default_state_directory(); says why it cannot.
  static Return open(std::shared_ptr<Session>& session);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  DeviceModel& model() const { return *model_; }
  const std::shared_ptr<DeviceModel>& shared_model() const { return model_; }
  // Numbers of the visible GPUs in the server, in its order; a GPU's place here is its NVML index.
  const std::vector<uint32_t>& visible() const { return visible_; }

  // Asking for a GPU's handle is what opens it, as with nvmlInit_v2: a process holds the GPUs that it asked
  // for.
  Device* handle(uint32_t index) const;
  // Place in visible() of the GPU that a handle means; nothing for a handle that is not one.
  std::optional<uint32_t> index_of(const Device* device) const;

 private:
  explicit Session(std::shared_ptr<DeviceModel> model);

  std::shared_ptr<DeviceModel> model_;
  std::vector<uint32_t> visible_;
  // Open nodes, so that /proc/PID/fd tells who uses the GPU; -1: not opened yet. The GPUs' by index.
  int control_node_ = -1;
  mutable std::mutex mutex_;  // of what follows
  mutable std::vector<int> gpu_nodes_;
};

// Begins or joins the process's session; `flags` are those of nvmlInitWithFlags.
Return begin_session(uint32_t flags);
Return end_session();
// The handle of a GPU by its number in the device model.
Device* device_of_gpu(uint32_t gpu);
// The session between the first init and the last shutdown, otherwise null.
std::shared_ptr<Session> current_session();

}  // namespace tranche::emulator::nvml
