#include "model/task_groups.h"

#include <algorithm>

namespace tranche {

const TaskRequest& request_of(const JobSpec& spec, uint32_t rank) {
  uint32_t end = 0;
  for (const TaskGroup& group : spec.groups) {
    end += group.tasks_max;
    if (rank < end) return group.task;
  }
  return spec.task;
}

std::string check_groups(const JobSpec& spec) {
  if (spec.groups.empty()) return spec.groups_min == 0 ? "" : "groups_min needs groups: leave it out";
  uint64_t tasks_max = 0;
  std::vector<uint32_t> children(spec.groups.size() + 1);
  for (size_t i = 0; i < spec.groups.size(); ++i) {
    const TaskGroup& group = spec.groups[i];
    const std::string name = "group " + std::to_string(i + 1);
    if (group.parent > i) return name + " must come after the group that it is part of";
    if (group.parent > 0 && spec.groups[group.parent - 1].tasks_max > 0)
      return name + " must not be part of a group of tasks";
    if (group.tasks_min > group.tasks_max) return name + " must have tasks_min of at most tasks_max";
    if (group.tasks_max > 0 && group.groups_min > 0)
      return name + " has tasks of its own, so groups_min must be left out";
    ++children[group.parent];
    tasks_max += group.tasks_max;
  }
  if (spec.groups_min > children[0]) return "groups_min must be at most the number of the job's groups";
  for (size_t i = 0; i < spec.groups.size(); ++i) {
    const TaskGroup& group = spec.groups[i];
    if (group.tasks_max == 0 && children[i + 1] == 0)
      return "group " + std::to_string(i + 1) + " must have tasks or groups: give it tasks_max";
    if (group.groups_min > children[i + 1])
      return "groups_min of group " + std::to_string(i + 1) + " must be at most the number of its groups";
  }
  if (tasks_max != spec.tasks_max) return "tasks_max must be the sum of tasks_max of all groups";
  const size_t least = TaskGroups(spec).missing(TaskGroups::RankSet(spec.tasks_max)).size();
  if (least == 0) return "the job must need at least one task: raise tasks_min of a group";
  if (least != spec.tasks_min)
    return "tasks_min must be " + std::to_string(least) + ", the least that the groups can start with";
  return "";
}

TaskGroups::TaskGroups(const JobSpec& spec) {
  parts_.resize(spec.groups.size() + 1);
  Part& whole = parts_.front();
  whole.topology = &spec.topology;
  whole.nodes = &spec.nodes;
  whole.groups_min = spec.groups_min;
  if (spec.groups.empty()) {
    whole.tasks_min = spec.tasks_min;
    whole.tasks_max = tasks_max_ = spec.tasks_max;
    whole.task = &spec.task;
    return;
  }
  for (size_t i = 0; i < spec.groups.size(); ++i) {
    const TaskGroup& group = spec.groups[i];
    Part& part = parts_[i + 1];
    part.first_rank = tasks_max_;
    part.tasks_min = group.tasks_min;
    part.tasks_max = group.tasks_max;
    part.groups_min = group.groups_min;
    part.task = &group.task;
    part.topology = &group.topology;
    part.nodes = &group.nodes;
    tasks_max_ += group.tasks_max;
    parts_[group.parent].children.push_back(static_cast<uint32_t>(i + 1));
  }
}

bool TaskGroups::is_satisfied(const RankSet& running, uint32_t index) const {
  const Part& part = parts_[index];
  if (part.has_tasks()) {
    const auto first = running.begin() + part.first_rank;
    return std::count(first, first + part.tasks_max, true) >= std::ptrdiff_t{part.tasks_min};
  }
  const auto satisfied = std::count_if(part.children.begin(), part.children.end(),
                                       [&](uint32_t child) { return is_satisfied(running, child); });
  const size_t needed = part.groups_min > 0 ? part.groups_min : part.children.size();
  return static_cast<size_t>(satisfied) >= needed;
}

TaskGroups::Ranks TaskGroups::missing(const RankSet& running, uint32_t part) const {
  Ranks out;
  RankSet set = running;
  collect_missing(set, part, out);
  return out;
}

void TaskGroups::collect_missing(RankSet& running, uint32_t index, Ranks& out) const {
  const Part& part = parts_[index];
  for (uint32_t rank = part.first_rank; part.has_tasks() && rank < part.first_rank + part.tasks_max; ++rank) {
    if (is_satisfied(running, index)) return;
    if (running[rank]) continue;
    running[rank] = true;
    out.push_back(rank);
  }
  for (const uint32_t child : part.children) {
    if (is_satisfied(running, index)) return;
    collect_missing(running, child, out);
  }
}

TaskGroups::Ranks TaskGroups::next_step(const RankSet& running) const {
  Ranks step = missing(running);
  return step.empty() ? growth(running, 0) : step;
}

TaskGroups::Ranks TaskGroups::growth(const RankSet& running, uint32_t index) const {
  const Part& part = parts_[index];
  for (uint32_t rank = part.first_rank; part.has_tasks() && rank < part.first_rank + part.tasks_max; ++rank) {
    if (!running[rank]) return {rank};
  }
  Ranks first;
  for (const uint32_t child : part.children) {
    Ranks step = is_satisfied(running, child) ? growth(running, child) : missing(running, child);
    if (!step.empty() && (first.empty() || step.front() < first.front())) first = std::move(step);
  }
  return first;
}

TaskGroups::Ranks TaskGroups::surplus(const RankSet& running) const {
  Ranks out;
  RankSet left = running;
  for (uint32_t rank = tasks_max_; rank-- > 0;) {
    if (!left[rank]) continue;
    left[rank] = false;
    if (is_satisfied(left)) {
      out.push_back(rank);
    } else {
      left[rank] = true;
    }
  }
  return out;
}

}  // namespace tranche
