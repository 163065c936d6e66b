// What is free at a moment, counted from facts: the checker's own arithmetic of processors, memory and GPUs.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "model/state_dump.h"

namespace tranche::proof {

// What a job may use of one GPU; compute zero: it does not fit there even when it is idle.
struct Need {
  int64_t compute = 0;
  int64_t memory = 0;
};
Need need_on(const JobSpec& spec, const Gpu& gpu);

// The larger of the two fractions of the GPU, rounded up.
int64_t charge_of(const Slice& slice, const Gpu& gpu);

// What the task of that rank asks for, in a job whose tasks may differ.
const TaskRequest& request_of_rank(const JobSpec& spec, uint32_t rank);

// Whether the job's tasks may go to the node at all.
bool may_go_to(const JobSpec& spec, const Node& node);

// Whether the GPU is of a type that the request names.
bool is_of_type(const GpuRequest& request, const std::string& type);

// Null: it is not there.
const GpuFact* find_gpu(const StateDump& dump, GpuId id);
const Node* find_node(const StateDump& dump, NodeId id);
const JobFact* find_job(const StateDump& dump, JobId id);

bool is_installed(const GpuFact& fact);
bool takes_work(const GpuFact& fact);

class Room {
 public:
  using Counts = std::function<bool(const HoldingFact&)>;

  // All that is installed, less what the holdings hold that count.
  Room(const StateDump& dump, const Counts& counts);
  // Also GPUs that take no new work are there, with nothing on them.
  static Room idle(const StateDump& dump);

  void take(const JobSpec& spec, const PlacementFact& placement);
  void give(const HoldingFact& holding);
  // Nothing is taken twice.
  bool is_consistent() const;

  struct GpuRoom {
    const Gpu* gpu = nullptr;
    bool open = true;
    bool for_all = false;  // users may share it
    int64_t compute = 1000;
    int64_t memory = 0;
    int whole = 0;                   // holders of all of it
    std::multiset<uint32_t> owners;  // by uid
  };
  struct NodeRoom {
    const Node* node = nullptr;
    int64_t cpu = 0;
    int64_t memory = 0;
    std::map<GpuId, GpuRoom> gpus;
  };
  const std::map<NodeId, NodeRoom>& nodes() const { return nodes_; }

  // How many tasks of the job fit at once into what all the rooms have: on GPUs of one type, on nodes that it
  // allows, in one domain if it requires one. All its tasks are alike.
  friend int64_t tasks_that_fit(const StateDump& dump, const JobSpec& spec,
                                const std::vector<const Room*>& rooms);

 private:
  Room() = default;
  void change(NodeId node, const std::vector<Slice>& slices, uint32_t uid, int64_t cpu, int64_t memory,
              int sign);

  std::map<NodeId, NodeRoom> nodes_;
};

int64_t tasks_that_fit(const StateDump& dump, const JobSpec& spec, const std::vector<const Room*>& rooms);

}  // namespace tranche::proof
