// Ready jobs, arranged so that a job that cannot start costs nothing.
//
// Jobs that differ in nothing that decides whether and where they start are one *group*. Groups of one shape
// share what is known about the shape: where it may go, and whether there is room for it. A *class* is a
// shape together with how long it may hold what it gets, which decides whether it may pass a reservation.
// A class is open as long as one of its jobs might start; it is closed when that was tried in vain, and
// opened again when room of its kind appears. What a reservation keeps out is closed from an age on: the few
// groups that have come further than whoever it is for stay open, each by itself. A single group is parked
// when a bound of its queue or its array keeps it, until that bound moves.
//
// What is open or parked is knowledge, not state: a closed class is one whose trial would fail. With all of
// them open, as after a restart, the decisions are the same.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <tuple>
#include <vector>

#include "scheduler/gang.h"
#include "scheduler/queue_tree.h"

namespace tranche::scheduler {

using ShapeId = uint32_t;
using ClassId = uint32_t;

// Ascending ids, cheap to take from the front and to add to the back.
class JobLine {
 public:
  bool empty() const { return head_ == ids_.size(); }
  size_t size() const { return ids_.size() - head_; }
  JobId front() const { return ids_[head_]; }
  std::vector<JobId>::const_iterator begin() const {
    return ids_.begin() + static_cast<std::ptrdiff_t>(head_);
  }
  std::vector<JobId>::const_iterator end() const { return ids_.end(); }
  void insert(JobId id);
  void erase(JobId id);
  size_t bytes() const { return ids_.capacity() * sizeof(JobId); }

 private:
  std::vector<JobId> ids_;
  size_t head_ = 0;
};

// Everything but the shape that makes jobs of a queue differ.
struct GroupKey {
  QueueIndex queue = kRootQueue;
  int64_t first = 0;
  int32_t priority = 0;
  bool preemptible = true;
  int64_t time_limit = 0;
  int64_t grace = 0;
  bool grows = false;    // runs already, and would take more
  int64_t expected = 0;  // run time, where the policy tries the shortest first; else 0
  ArrayId capped_array;  // of an array that may run only so many at a time
  ShapeId shape = 0;
  bool operator==(const GroupKey&) const = default;
};

// Where a job of the group stands in its queue's order.
HeadKey head_key(const GroupKey& key, JobId job);

// Where a group stands among those of its shape: State::aged of its first job, that job, itself.
using AgeKey = std::tuple<int64_t, JobId, GroupId>;
// Behind everybody.
inline constexpr AgeKey kBehindAll{std::numeric_limits<int64_t>::max(),
                                   JobId(std::numeric_limits<uint64_t>::max()),
                                   std::numeric_limits<GroupId>::max()};

enum class Parked : uint8_t { no, bound, array, claimed, kept_out };

struct Group {
  GroupKey key;
  ClassId job_class = 0;
  JobLine jobs;
  Parked parked = Parked::no;
  QueueIndex parked_at = kRootQueue;  // whose bound it is
  AgeKey age;                         // as it stands in ShapeRecord::by_age
  bool is_single = false;             // open although its class is not
};

// The least that a node must have for one task of a shape, in a few words that are looked at often.
struct Gate {
  int64_t cpu = 0;
  int64_t host_memory = 0;
  int64_t compute = 0;  // of a fraction
  uint32_t gpus = 0;
  bool whole = false;
};

// What a node has, for the same.
struct Offer {
  NodeIndex node = 0;
  int64_t cpu = 0;
  int64_t host_memory = 0;
  int64_t compute = 0;  // the most that a shared GPU has left
  uint32_t idle = 0;
  bool passes(const Gate& gate) const {
    if (gate.cpu > cpu || gate.host_memory > host_memory) return false;
    if (gate.gpus == 0) return true;
    return gate.whole ? idle >= gate.gpus : idle > 0 || (compute > 0 && compute >= gate.compute);
  }
};
Offer offer_of(const Capacity& capacity, NodeIndex node);

class TaskStep;

struct ShapeRecord {
  Shape shape;
  uint32_t groups = 0;  // zero: kept in case it comes again
  std::vector<ClassId> classes;
  std::vector<TypeChoice> choices;
  MilliGpu charge;                        // at least, for tasks_min tasks
  HostAmount host;                        // of them
  MilliGpu demand;                        // what the job may use in the end; the charge, if it is not elastic
  std::shared_ptr<const TaskStep> step;   // of a job that is placed by it
  uint64_t machine_version = UINT64_MAX;  // that the two are of
  mutable ScoreCache cache;
  // Groups that wait for room, the one that has waited longest first (backfill.h): those that are not parked,
  // or parked because they found none. Who was tried hangs on what is known, and who waits for room does not.
  std::set<AgeKey> by_age;
};

struct DurationClass {
  ShapeId shape = 0;
  int64_t duration = 0;  // time limit and grace
  uint32_t groups = 0;
  AgeKey held_behind = kBehindAll;  // a reservation keeps out the groups that come after this
  AgeKey held_before = kBehindAll;  // the same before it was tried again
  bool is_held() const { return held_behind < kBehindAll; }
};

class Waiting {
 public:
  Group& group(GroupId id) { return groups_[id - 1]; }
  const Group& group(GroupId id) const { return groups_[id - 1]; }
  const ShapeRecord& shape(ShapeId id) const { return shapes_[id]; }
  ShapeRecord& shape(ShapeId id) { return shapes_[id]; }
  const DurationClass& duration_class(ClassId id) const { return classes_[id]; }
  size_t size() const { return groups_in_use_; }
  bool empty() const { return groups_in_use_ == 0; }
  const std::vector<Group>& groups() const { return groups_; }
  const BitSet& live_shapes() const { return live_shapes_; }
  const BitSet& open() const { return open_; }
  // Groups that are open although their class is not; the version rises with every change of them.
  const std::vector<GroupId>& singles() const { return singles_; }
  uint64_t singles_version() const { return singles_version_; }
  bool is_startable(const Group& group) const {
    return group.parked == Parked::no && (group.is_single || open_.contains(group.job_class));
  }

  // The record of a shape that belongs to one job.
  void set_step(ShapeId id, std::shared_ptr<const TaskStep> step);
  // Interns the shape; some time after its last group has gone it is forgotten.
  ShapeId intern(const Shape& shape, const Capacity& capacity);
  // The group of the key, made if there is none; it must get a job at once.
  GroupId group_for(GroupKey key);
  // Adds or takes a ready job, and keeps the queue's heads, classes and waiting charge. `aged` is the job's
  // place among those that wait (see by_age). `leave` does not touch the waiting charge.
  void join(GroupId id, JobId job, int64_t aged, QueueTree& queues);
  // `next_aged` of the job that becomes the group's first, if any.
  template <class AgeOf>
  void leave(GroupId id, JobId job, AgeOf age_of, QueueTree& queues) {
    Group& group = groups_[id - 1];
    take_job(group, id, job, queues);
    if (group.jobs.empty()) return retire(group, id, queues);
    const JobId first = group.jobs.front();
    if (std::get<1>(group.age) != first) set_age(group, {age_of(first), first, id});
  }

  void park(GroupId id, Parked why, QueueIndex bound, QueueTree& queues);
  void unpark_bound(QueueIndex bound, QueueTree& queues);
  void unpark_array(ArrayId array, QueueTree& queues);
  // Those that were parked for one walk only.
  void unpark_passing(QueueTree& queues);
  void unpark_all(QueueTree& queues);

  // What is known about room.
  void open_all();
  void close_shape(ShapeId id);
  // The groups of the shape that hold what they get for `duration` or longer and come after `behind`.
  void close_longer(ShapeId id, int64_t duration, const AgeKey& behind);
  // Of the groups that a reservation keeps out, the one that has come furthest, and the shortest duration.
  struct Held {
    AgeKey first;
    int64_t duration = 0;
  };
  std::optional<Held> least_held(ShapeId id) const;
  bool is_closed(ShapeId id) const { return closed_.contains(id); }
  const BitSet& closed() const { return closed_; }
  void open_shape(ShapeId id);
  // Opens all classes of a shape that a reservation has closed, until it is held back again as it was before.
  void try_held_back(ShapeId id);
  void hold_back_again(ShapeId id);
  // Opens what a reservation alone had closed.
  void open_held_back();
  const BitSet& held_back() const { return held_back_; }
  const Gate& gate(ShapeId id) const { return gates_[id]; }

  // Shapes of which a group has come, gone or taken another place in the order of age, since that was last
  // forgotten; of those behind `furthest`, only what comes counts. For whoever keeps what follows from the
  // order (backfill.h). Unset: too many to tell.
  void watch_ages(const AgeKey& furthest);
  std::optional<std::vector<ShapeId>> shapes_touched() const;

  // What the machine has changed: brings choices and charges of all shapes up to date.
  void refresh_shapes(const Capacity& capacity);

  size_t bytes() const;

 private:
  struct KeyHash {
    uint64_t operator()(const GroupKey& key) const;
  };
  struct ShapeKey {
    uint64_t hash = 0;
    uint32_t nth = 0;  // among shapes of equal hash
    bool operator==(const ShapeKey&) const = default;
  };
  struct ShapeKeyHash {
    uint64_t operator()(const ShapeKey& key) const { return mix_bits(key.hash + key.nth); }
  };

  void take_job(Group& group, GroupId id, JobId job, QueueTree& queues);
  void retire(Group& group, GroupId id, QueueTree& queues);
  void set_age(Group& group, const AgeKey& age);
  void add_age(ShapeId shape, const AgeKey& age);
  void remove_age(ShapeId shape, const AgeKey& age);
  void touch(ShapeId shape);
  bool is_to_be_single(const Group& group) const;
  void refresh_single(GroupId id);
  void refresh_singles(ShapeId id);
  ClassId class_for(ShapeId shape, int64_t duration);
  static std::tuple<Parked, uint64_t, GroupId> parking(const Group& group, GroupId id);
  void unpark(GroupId id, QueueTree& queues);
  void unpark_where(Parked why, uint64_t where, QueueTree& queues);
  void lay_aside(ShapeId id);
  void forget_shape(ShapeId id);
  void refresh_shape(ShapeId id, const Capacity& capacity);

  std::vector<Group> groups_;
  std::vector<GroupId> free_groups_;
  size_t groups_in_use_ = 0;
  FlatIndex<GroupKey, KeyHash> group_index_;
  std::vector<ShapeRecord> shapes_;
  std::vector<Gate> gates_;          // of them
  std::vector<ShapeId> laid_aside_;  // without groups, the longest first
  size_t nodes_ = 0;                 // of the machine, when a shape was last interned
  std::vector<ShapeId> free_shapes_;
  FlatIndex<ShapeKey, ShapeKeyHash> shape_index_;
  BitSet live_shapes_;
  std::vector<DurationClass> classes_;
  std::vector<ClassId> free_classes_;
  BitSet open_;       // classes
  BitSet closed_;     // shapes without room
  BitSet held_back_;  // shapes some of whose classes a reservation closed
  std::vector<GroupId> singles_;
  uint64_t singles_version_ = 0;
  AgeKey watched_to_{INT64_MIN, JobId(), 0};
  std::vector<ShapeId> shapes_touched_;
  std::set<std::tuple<Parked, uint64_t, GroupId>> parked_;  // why, by which queue or array
};

}  // namespace tranche::scheduler
