#include "scheduler/joined_gpus.h"

#include <algorithm>

namespace tranche::scheduler {

void JoinedGpus::add(const Gpu& gpu) {
  Joins joins;
  joins.numa_node = gpu.numa_node;
  for (const GpuLink& link : gpu.links) {
    if (link.kind == LinkKind::nvlink) joins.nvlink.push_back(link.peer);
  }
  if (joins.numa_node >= 0 || !joins.nvlink.empty()) gpus_[gpu.id] = std::move(joins);
}

bool JoinedGpus::are_joined(GpuId a, GpuId b, GpuTopology how) const {
  if (how == GpuTopology::any) return true;
  const auto first = gpus_.find(a);
  const auto second = gpus_.find(b);
  const bool known = first != gpus_.end() && second != gpus_.end();
  if (how == GpuTopology::numa_node) {
    return known && first->second.numa_node >= 0 && first->second.numa_node == second->second.numa_node;
  }
  // The first of two to be added may not have known the other.
  const auto names = [](const Joins& joins, GpuId peer) {
    return std::find(joins.nvlink.begin(), joins.nvlink.end(), peer) != joins.nvlink.end();
  };
  return (first != gpus_.end() && names(first->second, b)) ||
         (second != gpus_.end() && names(second->second, a));
}

namespace {

// Completes `chosen` (places in `from`) to `count` that are all joined with each other, or leaves it.
bool complete(const std::vector<GpuId>& from, uint32_t count, GpuTopology wanted, const JoinedGpus& joined,
              std::vector<size_t>& chosen) {
  if (chosen.size() == count) return true;
  const size_t next = chosen.empty() ? 0 : chosen.back() + 1;
  for (size_t i = next; i + (count - chosen.size()) <= from.size(); ++i) {
    const bool fits = std::all_of(chosen.begin(), chosen.end(), [&](size_t other) {
      return joined.are_joined(from[other], from[i], wanted);
    });
    if (!fits) continue;
    chosen.push_back(i);
    if (complete(from, count, wanted, joined, chosen)) return true;
    chosen.pop_back();
  }
  return false;
}

}  // namespace

bool take_joined(std::vector<GpuId>& from, uint32_t count, GpuTopology wanted, const JoinedGpus& joined,
                 std::vector<GpuId>& taken) {
  if (count > from.size()) return false;
  std::vector<size_t> chosen;
  if (wanted != GpuTopology::any) {
    if (!complete(from, count, wanted, joined, chosen)) return false;
  } else if (count == 1 || !joined.knows_any() ||
             (!complete(from, count, GpuTopology::nvlink, joined, chosen) &&
              !complete(from, count, GpuTopology::numa_node, joined, chosen))) {
    complete(from, count, GpuTopology::any, joined, chosen);
  }
  for (const size_t i : chosen) taken.push_back(from[i]);
  for (size_t i = chosen.size(); i-- > 0;) from.erase(from.begin() + static_cast<std::ptrdiff_t>(chosen[i]));
  return true;
}

}  // namespace tranche::scheduler
