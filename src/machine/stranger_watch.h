// Who uses a GPU without a job: found by looking at every process's open device nodes, named, and avoided.
//
// A stranger is a process of an ordinary user that holds the node of a GPU that Tranche manages and is in no
// task's cgroup. Services of the system (uid below 1000: the driver's persistence daemon, monitors) are none,
// nor is a process that only looks: one that the driver, where it answers, does not list as having a context.
// What is done is watchdog.foreign of the configuration. As it is delivered, such a GPU is drained by
// "tranche" with a reason that names user and process, and given back when it is free. Nobody's process is
// touched. A drain by an operator, or for another reason, is left alone.
//
// Threading: the reactor's thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "codec/config.h"
#include "machine/gpu_manager.h"
#include "machine/task_host.h"
#include "machine/user_directory.h"

namespace tranche::machine {

class StrangerWatch {
 public:
  struct Parts {
    Reactor& reactor;
    Engine& engine;
    TaskHost& host;
    GpuManager& gpus;
    UserDirectory& users;
    Duration interval;                       // zero: never
    const WatchdogPolicy* policy = nullptr;  // null: the defaults
    // Without root only one's own processes can be looked into: of others the driver's list is believed.
    bool personal = false;
  };
  explicit StrangerWatch(Parts parts) : parts_(parts) {}

  // From now on, at every interval.
  void start();

 private:
  void look();
  void judge(const std::vector<NodeHolder>& holders);
  void judge_gpu(const scheduler::GpuView& view, const std::vector<NodeHolder>& strangers);
  void add_others(const scheduler::GpuView& view, std::vector<NodeHolder>& strangers) const;
  bool is_stranger(const NodeHolder& holder) const;
  bool has_context(const NodeHolder& holder, uint32_t gpu_index) const;
  std::string describe(const std::vector<NodeHolder>& strangers);
  bool is_closed_for(const scheduler::GpuView& view) const;
  void say(const scheduler::GpuView& view, const std::vector<NodeHolder>& strangers, const std::string& who);

  Parts parts_;
  Reactor::Handle again_;
  std::map<GpuId, std::string> said_;  // who was named last
};

}  // namespace tranche::machine
