#include "proof/amounts.h"

#include <algorithm>

#include "proof/room.h"

namespace tranche::proof {

bool is_below(const std::string& path, const std::string& queue) {
  return path == queue ||
         (path.size() > queue.size() && path.starts_with(queue) && path[queue.size()] == '/');
}

std::optional<int64_t> Amounts::bound(const QueueFact& queue, bool is_quota) const {
  const auto count = [](const auto& amount) {
    return amount ? std::optional<int64_t>(amount->count()) : std::nullopt;
  };
  switch (resource_) {
    case BoundResource::gpu:
      break;
    case BoundResource::cpu:
      return count(is_quota ? queue.quota_cpu : queue.limit_cpu);
    case BoundResource::memory:
      return count(is_quota ? queue.quota_memory : queue.limit_memory);
  }
  return count(is_quota ? queue.quota : queue.limit);
}

// Of that, what a task takes that holds the slices.
int64_t Amounts::amount_of(MilliCpu cpu, MiB memory, const std::vector<Slice>& slices) const {
  switch (resource_) {
    case BoundResource::gpu:
      break;
    case BoundResource::cpu:
      return cpu.count();
    case BoundResource::memory:
      return memory.count();
  }
  int64_t sum = 0;
  for (const Slice& slice : slices) {
    if (const GpuFact* fact = find_gpu(dump_, slice.gpu)) sum += charge_of(slice, fact->gpu);
  }
  return sum;
}

int64_t Amounts::used(const std::string& queue, bool is_quota) const {
  int64_t sum = 0;
  for (const HoldingFact& holding : dump_.holdings) {
    if (!is_below(holding.queue, queue) || (is_quota && holding.preemptible)) continue;
    sum += amount_of(holding.cpu, holding.memory, holding.slices);
  }
  for (const ClaimFact& claim : dump_.claims) {
    const JobFact* other = find_job(dump_, claim.job);
    if (is_quota || other == nullptr || !is_below(other->spec->queue, queue)) continue;
    for (const PlacementFact& task : claim.plan) {
      const TaskRequest& request = request_of_rank(*other->spec, task.rank);
      sum += amount_of(request.cpu, request.memory, task.slices);
    }
  }
  return sum;
}

// The least and the most that one task of the job can be charged, by where it goes.
std::pair<int64_t, int64_t> Amounts::charge_of_task(const TaskRequest& task) const {
  if (resource_ == BoundResource::cpu) return {task.cpu.count(), task.cpu.count()};
  if (resource_ == BoundResource::memory) return {task.memory.count(), task.memory.count()};
  std::optional<std::pair<int64_t, int64_t>> range;
  JobSpec alone = spec_;
  alone.task = task;
  for (const GpuFact& fact : dump_.gpus) {
    const Node* home = find_node(dump_, fact.gpu.node);
    if (home == nullptr || !is_installed(fact) || !is_of_type(task.gpu, fact.gpu.type)) continue;
    if (!spec_.node_pool.empty() && home->pool != spec_.node_pool) continue;
    const Need need = need_on(alone, fact.gpu);
    if (need.compute == 0) continue;
    const int64_t each =
        charge_of({fact.gpu.id, task.gpu.kind, MilliGpu(need.compute), MiB(need.memory)}, fact.gpu);
    if (!range) range = {each, each};
    range->first = std::min(range->first, each);
    range->second = std::max(range->second, each);
  }
  if (!range) return {0, 0};
  return {range->first * task.gpu.count, range->second * task.gpu.count};
}

// The same of what the job starts with: of one whose tasks differ, of any of them as often as it needs.
std::pair<int64_t, int64_t> Amounts::charge() const {
  if (spec_.groups.empty()) {
    const auto [least, most] = charge_of_task(spec_.task);
    return {least * spec_.tasks_min, most * spec_.tasks_min};
  }
  std::vector<int64_t> least;
  std::vector<int64_t> most;
  for (const TaskGroup& group : spec_.groups) {
    const auto [low, high] = charge_of_task(group.task);
    least.insert(least.end(), group.tasks_max, low);
    most.insert(most.end(), group.tasks_max, high);
  }
  std::sort(least.begin(), least.end());
  std::sort(most.rbegin(), most.rend());
  std::pair<int64_t, int64_t> range{0, 0};
  for (uint32_t i = 0; i < spec_.tasks_min; ++i) {
    range.first += least[i];
    range.second += most[i];
  }
  return range;
}

}  // namespace tranche::proof
