// What is free: host processors and memory of every node, compute and memory of every GPU, and the indexes
// that find room without looking at every node. A plain value that can be copied.
//
// Nodes and GPUs are addressed by position: nodes in the order in which they came, so that ties between
// equal ones go by arrival. A *kind* is a GPU type within a node pool; for each kind the nodes are kept in
// buckets, as bitmaps: by their number of idle GPUs, and by the most that one of their shared GPUs has left.
// Every change of a node costs the same few words, whatever the size of the cluster.
//
// Integers of one unit each (milli-GPU, MiB, milli-CPU). Free counts never go below zero unless somebody
// shrank a node under its tasks.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/gpu.h"
#include "model/job.h"
#include "scheduler/bit_set.h"
#include "scheduler/flat_index.h"
#include "scheduler/joined_gpus.h"

namespace tranche::scheduler {

struct StateArchive;

using NodeIndex = uint32_t;
using TypeIndex = uint16_t;
using KindIndex = uint16_t;

// Who holds slices of a GPU, and how many, by uid. Nearly always one or two, so those need no memory of
// their own.
class Owners {
 public:
  bool empty() const { return size_ == 0; }
  bool is_only(uint32_t uid) const { return size_ == 1 && begin()->first == uid; }
  size_t size() const { return size_; }
  const std::pair<uint32_t, uint32_t>* begin() const { return more_.empty() ? few_.data() : more_.data(); }
  const std::pair<uint32_t, uint32_t>* end() const { return begin() + size_; }
  void add(uint32_t uid);
  void remove(uint32_t uid);  // it is there
  size_t bytes() const { return more_.capacity() * sizeof(std::pair<uint32_t, uint32_t>); }

 private:
  static constexpr uint32_t kFew = 2;
  uint32_t size_ = 0;
  std::array<std::pair<uint32_t, uint32_t>, kFew> few_{};
  std::vector<std::pair<uint32_t, uint32_t>> more_;  // all of them, once there have been more than a few
};

struct GpuRoom {
  GpuId id;
  uint32_t index = 0;
  TypeIndex type = 0;
  bool open = true;       // takes new work: healthy enough and not drained
  bool installed = true;  // counts as what the machine has: false once lost or removed
  bool degraded = false;
  bool whole = false;    // held as a whole
  bool for_all = false;  // fractions of different users may meet here, whatever the policy says elsewhere
  MiB memory_usable;
  MilliGpu compute_free = kWholeGpu;
  MiB memory_free;
  Owners owners;

  bool is_idle() const { return owners.empty(); }
  bool takes_work() const { return open && installed; }
  void take(uint32_t uid, const Slice& slice);
  void give(uint32_t uid, const Slice& slice);
};

// What one task holds, as taken and given back.
struct Footprint {
  uint32_t uid = 0;
  NodeId node;
  std::span<const Slice> slices;
  MilliCpu cpu;
  MiB memory;
};

struct NodeRoom {
  NodeId id;
  std::string pool;
  bool present = true;
  MilliCpu cpu;
  MiB memory;
  MilliCpu cpu_free;
  MiB memory_free;
  std::vector<GpuRoom> gpus;  // by index

  GpuRoom* gpu(GpuId id);
  void take(const Footprint& footprint);
  void give(const Footprint& footprint);
};

// Where one task goes.
struct TaskPlacement {
  uint32_t rank = 0;  // of the task in its job
  NodeId node;
  std::vector<Slice> slices;  // ascending by GPU
};

// What a node has free of one kind.
struct KindCount {
  KindIndex kind = 0;
  uint16_t idle = 0;   // GPUs that take work
  uint8_t shared = 0;  // one above the step of what its least taken shared GPU has left; zero: no such GPU
  bool operator==(const KindCount&) const = default;
};

// Nodes by what they have free of a kind.
struct Buckets {
  static constexpr uint8_t kSteps = 16;  // of a GPU's compute
  // The first step whose nodes may have `compute` left on a shared GPU.
  static uint8_t step_of(int64_t compute) {
    const int64_t step = compute * kSteps / kWholeGpu.count();
    return static_cast<uint8_t>(step < 0 ? 0 : step >= kSteps ? kSteps - 1 : step);
  }
  void insert(NodeIndex node, const KindCount& count);
  void erase(NodeIndex node, const KindCount& count);
  bool shares_any() const;
  size_t bytes() const;

  std::vector<BitSet> by_idle;
  std::array<BitSet, kSteps> shared;
};

struct Kind {
  std::string pool;
  TypeIndex type = 0;
  std::map<int64_t, uint32_t> memories;  // usable MiB of its installed GPUs, and how many have it
  uint32_t installed = 0;
  GpuId first;  // lowest installed
  Buckets nodes;
};

class Capacity {
 public:
  void add_node(const Node& node);
  void remove_node(NodeId node);
  void add_gpu(const Gpu& gpu);
  void remove_gpu(GpuId gpu);  // nothing holds it
  // Of a GPU that is there, for whoever adds it without.
  void know_joins(const Gpu& gpu) { joined_gpus_.add(gpu); }
  void set_condition(GpuId gpu, bool open, bool installed, bool degraded);
  void set_for_all(GpuId gpu, bool for_all);

  const GpuRoom* gpu(GpuId id) const;
  const NodeRoom* node(NodeId id) const;
  std::optional<NodeIndex> index_of(NodeId id) const { return node_index_.find(id); }
  std::optional<NodeIndex> node_of(GpuId id) const { return home_of_gpu_.find(id); }
  const NodeRoom& at(NodeIndex index) const { return nodes_[index]; }
  const std::vector<NodeRoom>& nodes() const { return nodes_; }

  void take(const Footprint& footprint);
  void give(const Footprint& footprint);
  void give_host(NodeId node, MilliCpu cpu, MiB memory);
  void give_slice(uint32_t uid, const Slice& slice);

  // GPUs that the shares are divided over: those that take work, and those that hold some.
  MilliGpu total_compute() const { return kWholeGpu * counted_gpus_; }

  const std::vector<Kind>& kinds() const { return kinds_; }
  size_t types() const { return type_names_.size(); }
  const std::string& type_name(TypeIndex type) const { return type_names_[type]; }
  const JoinedGpus& joined_gpus() const { return joined_gpus_; }
  // Nodes on which the user holds slices of GPUs, with their number; in no particular order.
  std::span<const std::pair<NodeIndex, uint32_t>> shared_by(uint32_t uid) const;
  // What the node has free of each of its kinds, and what `room`, a changed copy of it, has.
  std::span<const KindCount> counts(NodeIndex index) const { return places_[index].kinds; }
  void count_kinds(NodeIndex index, const NodeRoom& room, std::vector<KindCount>& counts) const;
  // Rises when what is installed changes, and with every change of a node.
  uint64_t machine_version() const { return machine_version_; }
  uint32_t version(NodeIndex index) const { return places_[index].version; }

  // Nodes that changed, in order, for whoever keeps something by node: positions from log_begin() on. Older
  // ones are forgotten, and who has not read them has to look at all nodes.
  uint64_t log_begin() const { return log_begin_; }
  uint64_t log_end() const { return log_begin_ + log_.size(); }
  NodeIndex changed_at(uint64_t position) const { return log_[position - log_begin_]; }
  // Something about the node's tasks changed that is not room: when they end.
  void note_change(NodeIndex index);

  // Nodes on which room may have appeared since the last forget_gains().
  const std::vector<NodeIndex>& gains() const { return gains_; }
  void forget_gains() { gains_.clear(); }

  size_t bytes() const;

 private:
  friend struct StateArchive;  // snapshot.cc
  struct Place {
    uint32_t version = 0;
    uint32_t counted = 0;  // GPUs of it in counted_gpus_
    std::vector<KindCount> kinds;
  };
  struct Sharer {
    std::vector<std::pair<NodeIndex, uint32_t>> nodes;
  };

  TypeIndex type_index(const std::string& name);
  KindIndex kind_index(const std::string& pool, TypeIndex type);
  void refresh(NodeIndex index);
  KindCount count_of(const NodeRoom& room, KindIndex kind) const;
  void recount_installed();
  void leave_index(NodeIndex index);
  void count_sharing(uint32_t uid, NodeIndex node, int change);
  void changed(NodeIndex index, bool gained);

  std::vector<NodeRoom> nodes_;
  std::vector<Place> places_;
  FlatIndex<NodeId, IdHash<NodeId>> node_index_;
  FlatIndex<GpuId, IdHash<GpuId>> home_of_gpu_;
  std::vector<std::string> type_names_;
  std::vector<Kind> kinds_;
  JoinedGpus joined_gpus_;
  struct UserHash {
    uint64_t operator()(uint32_t uid) const { return mix_bits(uid); }
  };
  FlatIndex<uint32_t, UserHash> sharer_index_;
  std::vector<Sharer> sharers_;
  int64_t counted_gpus_ = 0;
  uint64_t machine_version_ = 0;
  uint64_t log_begin_ = 0;
  std::vector<NodeIndex> log_;
  std::vector<NodeIndex> gains_;
};

// Charge of a slice: the larger of its two fractions, rounded up.
MilliGpu charge_of(const Slice& slice, MiB memory_usable);

}  // namespace tranche::scheduler
