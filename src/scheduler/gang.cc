#include "scheduler/gang.h"

#include <algorithm>

namespace tranche::scheduler {
namespace {

// What each node could host, in the order in which a gang should use them: the node that all of it fits on
// most tightly, else the roomiest first so that it spreads over few nodes.
std::vector<std::vector<TaskPlacement>> hosts_for(const Shape& shape, uint32_t tasks, const std::string& type,
                                                  const Layers& layers) {
  std::vector<std::vector<TaskPlacement>> hosts;
  // With a choice of nodes, how much more would fit tells the tightest one from the others.
  constexpr uint32_t kMoreToTellApart = 63;
  const bool choice = layers.front()->nodes().size() > 1;
  const uint32_t most = choice ? tasks + kMoreToTellApart : tasks;
  for (size_t n = 0; n < layers.front()->nodes().size(); ++n) {
    auto placed = place_on_node(shape, type, n, layers, most);
    if (!placed.empty()) hosts.push_back(std::move(placed));
  }
  std::stable_sort(hosts.begin(), hosts.end(), [&](const auto& a, const auto& b) {
    const bool a_all = a.size() >= tasks;
    const bool b_all = b.size() >= tasks;
    if (a_all != b_all) return a_all;
    return a_all ? a.size() < b.size() : a.size() > b.size();
  });
  return hosts;
}

}  // namespace

std::optional<GangPlacement> place_gang_on_type(const Shape& shape, uint32_t tasks, const std::string& type,
                                                const Layers& layers) {
  GangPlacement gang{.type = type, .tasks = {}};
  for (auto& host : hosts_for(shape, tasks, type, layers)) {
    for (TaskPlacement& task : host) {
      if (gang.tasks.size() == tasks) break;
      gang.tasks.push_back(std::move(task));
    }
    if (gang.tasks.size() == tasks) return gang;
  }
  return std::nullopt;
}

std::optional<GangPlacement> place_gang(const Shape& shape, uint32_t tasks, const Layers& layers) {
  if (!may_host_one(shape, layers)) return std::nullopt;
  for (const std::string& type : types_for(shape, *layers.front())) {
    if (auto gang = place_gang_on_type(shape, tasks, type, layers)) return gang;
  }
  return std::nullopt;
}

uint32_t tasks_that_fit(const Shape& shape, uint32_t most, const Layers& layers) {
  uint32_t best = 0;
  for (const std::string& type : types_for(shape, *layers.front())) {
    uint32_t fitting = 0;
    for (size_t n = 0; n < layers.front()->nodes().size() && fitting < most; ++n) {
      fitting += static_cast<uint32_t>(place_on_node(shape, type, n, layers, most - fitting).size());
    }
    best = std::max(best, fitting);
  }
  return best;
}

}  // namespace tranche::scheduler
