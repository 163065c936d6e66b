// How well a node suits a task: how much less of what the usual mix of jobs could use is left broken up.
//
// Fragmentation gradient (FGD, "Beware of Fragmentation", USENIX ATC 2023), in integers. A node's
// fragmentation is the idle compute on it that a job of the usual mix could not use, averaged over the mix;
// the score of a placement is 0..100 by how much it lowers or raises that. The score is cut to 100 steps on
// purpose: equal scores with a fixed order keep nodes empty, and finer scores pack worse (measured on the
// openb trace: 95.2 % against 94.2 %).
//
// The usual mix is learned from what was submitted, most frequent requests first until they cover 95 %. A
// second lesson from it is a price: a GPU type that is asked for by name more than there is of it should not
// be taken by jobs that would do with any.
#pragma once

#include <cstdint>
#include <vector>

#include "base/state_hash.h"
#include "scheduler/placement.h"

namespace tranche::scheduler {

struct StateArchive;

class Scores {
 public:
  static constexpr int kNeutral = 50;

  // Learns from `count` equal jobs that were submitted.
  void learn(const JobSpec& spec, uint32_t count);
  // Brings the mix up to date with what was learned and installed; cheap when nothing is due.
  void settle(const Capacity& capacity);

  bool knows_mix() const { return !mixes_.empty(); }
  // Of one task of the shape on the node, at best; kNeutral where nothing was learned. The task fits.
  int of_node(const Shape& shape, TypeIndex type, const NodeRoom& room) const;
  // Of one fraction on each GPU of the node.
  std::vector<int> of_gpus(const Shape& shape, TypeIndex type, const NodeRoom& room) const;
  // To be taken off the score of a shape that does not insist on the type: half for one of several.
  int price(const Shape& shape, TypeIndex type) const;
  // Rises when scores change other than by a change of the node.
  uint32_t version() const { return version_; }

  void add_to(StateHash& hash) const;

 private:
  friend struct StateArchive;  // snapshot.cc
  struct Asked {
    uint32_t gpus = 0;
    int64_t milli = 0;  // of each GPU
    int64_t cpu = 0;
    std::string type;
    uint64_t jobs = 0;
  };
  // The mix as a GPU type sees it: requests for the same number and part of GPUs together, by part.
  struct Step {
    int64_t milli = 0;
    uint32_t gpus = 0;
    int64_t weight = 0;  // of all, in 1/1024
    // Processors that they ask for, ascending, each with the weight of those that ask for as much or less.
    std::vector<std::pair<int64_t, int64_t>> by_cpu;
  };
  void learn_tasks(const TaskRequest& task, uint64_t tasks);
  struct Mix {
    int64_t elsewhere = 0;  // weight of what does not run on the type
    std::vector<Step> steps;
  };
  // What a node has left, as scores see it: all its GPUs are of one type.
  struct Residues;

  template <class Visit>
  void visit_gpus(const Shape& shape, TypeIndex type, const NodeRoom& room, Visit visit) const;
  static Residues residues_of(const NodeRoom& room);
  int64_t fragmentation(const Residues& residues, int64_t cpu) const;
  void choose_targets(const Capacity& capacity);
  void add_target(const Asked& asked, int64_t weight, const Capacity& capacity);
  void set_prices(const Capacity& capacity);

  std::vector<Asked> asked_;  // in the order in which they were first asked for
  uint64_t jobs_ = 0;
  uint64_t jobs_at_last_choice_ = 0;
  uint64_t machine_at_last_choice_ = 0;
  std::vector<Mix> mixes_;   // by type; empty: nothing was learned
  std::vector<int> prices_;  // by type, for those who would do with any
  uint32_t version_ = 0;
};

// 100 / (1 + e^-x) rounded down, with x in thousandths.
int logistic_percent(int64_t x_milli);

}  // namespace tranche::scheduler
