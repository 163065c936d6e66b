#include "scheduler/release_times.h"

#include <algorithm>
#include <queue>

#include "scheduler/state.h"

namespace tranche::scheduler {
namespace {

constexpr size_t kTreesMost = 32;
constexpr int64_t kNeverFits = INT64_MAX;

// Whole GPUs, the common case, without copying the node: the time at which enough of them are idle.
Time earliest_whole(const State& state, const Shape& shape, TypeIndex type, NodeIndex node) {
  const NodeRoom& home = state.capacity.at(node);
  std::vector<int64_t> times;
  for (const GpuRoom& gpu : home.gpus) {
    if (gpu.type != type || !gpu.takes_work()) continue;
    int64_t until = 0;
    if (!gpu.is_idle()) {
      for (const uint32_t position : state.holdings_on[node]) {
        const Holding& holding = state.holdings.at(position);
        for (const Slice& slice : holding.slices) {
          if (slice.gpu == gpu.id) until = std::max(until, holding.latest_end.nanoseconds());
        }
      }
    }
    times.push_back(until);
  }
  if (times.size() < shape.gpu_count) return kNever;
  std::nth_element(times.begin(), times.begin() + (shape.gpu_count - 1), times.end());
  int64_t time = times[shape.gpu_count - 1];
  // Processors and memory come back in the same order of ends.
  int64_t cpu = home.cpu_free.count();
  int64_t memory = home.memory_free.count();
  if (cpu >= shape.cpu && memory >= shape.host_memory) return Time(time);
  std::vector<std::pair<int64_t, const Holding*>> ends;
  for (const uint32_t position : state.holdings_on[node]) {
    const Holding& holding = state.holdings.at(position);
    ends.push_back({holding.latest_end.nanoseconds(), &holding});
  }
  std::sort(ends.begin(), ends.end());
  for (const auto& [end, holding] : ends) {
    cpu += holding->cpu.count();
    memory += holding->memory.count();
    if (cpu >= shape.cpu && memory >= shape.host_memory) return Time(std::max(time, end));
  }
  return kNever;
}

}  // namespace

Time earliest_on_node(const State& state, const Shape& shape, const TypeChoice& choice, NodeIndex node) {
  const NodeRoom& home = state.capacity.at(node);
  if (!home.present || (!shape.pool.empty() && home.pool != shape.pool)) return kNever;
  if (shape.kind == SliceKind::whole && shape.gpu_count > 0)
    return earliest_whole(state, shape, choice.type, node);
  View view(state.capacity);
  const Layers layers{&view};
  if (fits_on_node(shape, choice, node, layers)) return Time();
  std::vector<std::pair<Time, uint32_t>> ends;
  for (const uint32_t position : state.holdings_on[node])
    ends.push_back({state.holdings.at(position).latest_end, position});
  std::stable_sort(ends.begin(), ends.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  for (size_t i = 0; i < ends.size(); ++i) {
    view.change(node).give(state.holdings.at(ends[i].second).footprint());
    if (i + 1 < ends.size() && ends[i + 1].first == ends[i].first) continue;
    if (fits_on_node(shape, choice, node, layers)) return ends[i].first;
  }
  return kNever;
}

void ReleaseTimes::set(Tree& tree, NodeIndex node, int64_t time) {
  uint32_t at = node;
  tree.times[at] = time;
  uint32_t level = 0;  // position of the level's first entry
  uint32_t width = tree.leaves;
  while (width > 1) {
    const int64_t least = std::min(tree.times[level + at], tree.times[level + (at ^ 1)]);
    level += width;
    width /= 2;
    at /= 2;
    if (tree.times[level + at] == least) return;
    tree.times[level + at] = least;
  }
}

ReleaseTimes::Tree& ReleaseTimes::tree_for(const State& state, const Shape& shape, const TypeChoice& choice) {
  const Capacity& capacity = state.capacity;
  auto found = std::find_if(trees_.begin(), trees_.end(), [&](const Tree& tree) {
    return tree.type == choice.type && tree.shape == shape;
  });
  const bool is_new = found == trees_.end();
  if (is_new && trees_.size() < kTreesMost) {
    trees_.emplace_back();
    found = trees_.end() - 1;
  } else if (is_new) {
    found = std::min_element(trees_.begin(), trees_.end(),
                             [](const Tree& a, const Tree& b) { return a.last_use < b.last_use; });
  }
  Tree& tree = *found;
  tree.last_use = ++uses_;
  const auto nodes = static_cast<NodeIndex>(capacity.nodes().size());
  if (is_new || tree.machine_version != capacity.machine_version() || tree.read_to < capacity.log_begin()) {
    tree.shape = shape;
    tree.type = choice.type;
    tree.machine_version = capacity.machine_version();
    tree.leaves = std::max(2u, std::bit_ceil(nodes));
    tree.times.assign(size_t{tree.leaves} * 2, kNeverFits);
    for (NodeIndex node = 0; node < nodes; ++node)
      tree.times[node] = earliest_on_node(state, shape, choice, node).nanoseconds();
    for (uint32_t level = 0, width = tree.leaves; width > 1; level += width, width /= 2) {
      for (uint32_t i = 0; i < width / 2; ++i)
        tree.times[level + width + i] = std::min(tree.times[level + 2 * i], tree.times[level + 2 * i + 1]);
    }
  } else {
    for (uint64_t at = tree.read_to; at < capacity.log_end(); ++at) {
      const NodeIndex node = capacity.changed_at(at);
      if (at + 1 < capacity.log_end() && capacity.changed_at(at + 1) == node) continue;
      set(tree, node, earliest_on_node(state, shape, choice, node).nanoseconds());
    }
  }
  tree.read_to = capacity.log_end();
  return tree;
}

void ReleaseTimes::visit(const State& state, ShapeId shape, const TypeChoice& choice,
                         const std::function<bool(NodeIndex, Time)>& visit) {
  const Tree& tree = tree_for(state, state.waiting.shape(shape).shape, choice);
  // Subtrees by their least time, then by their first leaf: opened in that order, leaves come out sorted.
  struct Branch {
    int64_t time;
    uint32_t first_leaf;
    uint32_t level;  // position of its level
    uint32_t width;  // of its level
    uint32_t at;     // within its level
    bool operator>(const Branch& other) const {
      return std::tuple(time, first_leaf, other.width) > std::tuple(other.time, other.first_leaf, width);
    }
  };
  std::priority_queue<Branch, std::vector<Branch>, std::greater<>> open;
  uint32_t level = 0;
  uint32_t width = tree.leaves;
  while (width > 1) {
    level += width;
    width /= 2;
  }
  open.push({tree.times[level], 0, level, 1, 0});
  while (!open.empty()) {
    const Branch branch = open.top();
    open.pop();
    if (branch.time == kNeverFits) return;
    if (branch.width == tree.leaves) {
      if (!visit(branch.at, Time(branch.time))) return;
      continue;
    }
    const uint32_t below = branch.width * 2;
    const uint32_t below_level = branch.level - below;
    for (uint32_t child = 2 * branch.at; child < 2 * branch.at + 2; ++child) {
      open.push({tree.times[below_level + child], child * (tree.leaves / below), below_level, below, child});
    }
  }
}

}  // namespace tranche::scheduler
