// The parts of a job as a tree: which ranks belong to which, when what runs of them is enough, and which come
// or go next. A job without groups is one part with all its ranks.
//
// Sets of ranks are vectors of bool, by rank, `tasks_max` long.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/job.h"

namespace tranche {

// What one task of the job needs.
const TaskRequest& request_of(const JobSpec& spec, uint32_t rank);

// What is wrong with the groups of the job, as one sentence that says what to do; "" if nothing.
std::string check_groups(const JobSpec& spec);

class TaskGroups {
 public:
  using Ranks = std::vector<uint32_t>;
  using RankSet = std::vector<bool>;

  struct Part {
    uint32_t first_rank = 0;
    uint32_t tasks_min = 0;
    uint32_t tasks_max = 0;  // 0: a group of groups
    uint32_t groups_min = 0;
    std::vector<uint32_t> children;
    const TaskRequest* task = nullptr;
    const TopologyRequest* topology = nullptr;
    const std::vector<std::string>* nodes = nullptr;
    bool has_tasks() const { return tasks_max > 0; }
  };

  // `spec` has passed check_groups() and must outlive this.
  explicit TaskGroups(const JobSpec& spec);

  const std::vector<Part>& parts() const { return parts_; }  // the job itself first
  uint32_t tasks_max() const { return tasks_max_; }

  // Whether enough of the part runs.
  bool is_satisfied(const RankSet& running, uint32_t part = 0) const;
  // The fewest ranks that have to start, in the order of the list, so that it is.
  Ranks missing(const RankSet& running, uint32_t part = 0) const;
  // What starts next, all of it or nothing: what the job lacks, else the first part or task that it may have
  // beyond that. Empty: it has all.
  Ranks next_step(const RankSet& running) const;
  // Ranks that may leave one after the other while the rest is enough, the first to go first.
  Ranks surplus(const RankSet& running) const;

 private:
  void collect_missing(RankSet& running, uint32_t part, Ranks& out) const;
  Ranks growth(const RankSet& running, uint32_t part) const;

  std::vector<Part> parts_;
  uint32_t tasks_max_ = 0;
};

}  // namespace tranche
