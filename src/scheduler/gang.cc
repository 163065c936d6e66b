#include "scheduler/gang.h"

#include <algorithm>
#include <tuple>

namespace tranche::scheduler {
namespace {

// Nodes that are compared for one task: all of a cluster of this size, and in a larger one the first so many
// in the order of fullness. Equal nodes differ in their order alone, so little is lost.
constexpr size_t kComparedMost = 2048;
constexpr size_t kComparedInLargeClusters = 256;
// Nodes that a gang of fractions looks at beyond those that it needs.
constexpr size_t kHostsToChooseFrom = 64;
constexpr uint32_t kMoreToTellApart = 63;

// Visits nodes that may have room for one task of the shape, fullest first: those that the first layer
// changes, those with room on shared GPUs, then by number of idle GPUs from `idle_at_least`. `visit` says
// whether to go on; false is returned when it did not.
template <class VisitAllowed>
bool visit_candidates(const Search& search, const TypeChoice& choice, uint32_t idle_at_least,
                      VisitAllowed visit_allowed) {
  const auto visit = [&](NodeIndex node) {
    return (search.allowed != nullptr && !(*search.allowed)[node]) || visit_allowed(node);
  };
  const View& view = *search.layers.front();
  const Capacity& base = view.base();
  const Shape& shape = search.shape;
  if (!view.visit_changed(visit)) return false;
  const auto visit_set = [&](const BitSet& nodes) {
    for (uint32_t n = nodes.next(0); n != BitSet::kNone; n = nodes.next(n + 1)) {
      if (!view.is_changed(n) && !visit(n)) return false;
    }
    return true;
  };
  if (shape.gpu_count == 0) {
    for (NodeIndex n = 0; n < base.nodes().size(); ++n) {
      if (!view.is_changed(n) && !visit(n)) return false;
    }
    return true;
  }
  const bool is_fraction = shape.kind != SliceKind::whole;
  std::vector<NodeIndex> own;  // where the user shares a GPU with nobody but itself
  if (is_fraction && shape.share_with_others) {
    for (const KindIndex kind : choice.kinds) {
      if (!visit_set(base.kinds()[kind].shared)) return false;
    }
  } else if (is_fraction) {
    for (const auto& [node, slices] : base.shared_by(shape.uid)) own.push_back(node);
    std::sort(own.begin(), own.end());
    for (const NodeIndex node : own) {
      if (!view.is_changed(node) && !visit(node)) return false;
    }
  }
  const auto is_visited = [&](const Kind& kind, NodeIndex node) {
    if (view.is_changed(node)) return true;
    if (!is_fraction) return false;
    return shape.share_with_others ? kind.shared.contains(node)
                                   : std::binary_search(own.begin(), own.end(), node);
  };
  size_t buckets = 0;
  for (const KindIndex kind : choice.kinds) buckets = std::max(buckets, base.kinds()[kind].by_idle.size());
  for (size_t idle = std::max(idle_at_least, 1u); idle < buckets; ++idle) {
    for (const KindIndex index : choice.kinds) {
      const Kind& kind = base.kinds()[index];
      if (idle >= kind.by_idle.size()) continue;
      const BitSet& nodes = kind.by_idle[idle];
      for (uint32_t n = nodes.next(0); n != BitSet::kNone; n = nodes.next(n + 1)) {
        if (!is_visited(kind, n) && !visit(n)) return false;
      }
    }
  }
  return true;
}

uint32_t idle_needed(const Shape& shape) { return shape.kind == SliceKind::whole ? shape.gpu_count : 1; }

// More than this many tasks surely do not fit; quick, from the counts of the buckets alone.
uint64_t tasks_at_most(const Search& search, const TypeChoice& choice) {
  const Shape& shape = search.shape;
  const View& view = *search.layers.front();
  if (shape.gpu_count == 0 || shape.kind != SliceKind::whole) return UINT64_MAX;
  uint64_t tasks = 0;
  for (const KindIndex kind : choice.kinds) {
    const auto& by_idle = view.base().kinds()[kind].by_idle;
    for (size_t idle = shape.gpu_count; idle < by_idle.size(); ++idle)
      tasks += uint64_t{by_idle[idle].count()} * (idle / shape.gpu_count);
  }
  view.visit_changed([&](NodeIndex node) {
    tasks += view.at(node).gpus.size() / shape.gpu_count;
    return true;
  });
  return tasks;
}

struct Candidate {
  int points = 0;  // the higher the better
  size_t type_rank = 0;
  bool degraded = false;
  int64_t idle = 0;  // GPUs of the type, or processors for a task without GPUs
  NodeIndex node = 0;
  auto rank() const { return std::tuple(-points, type_rank, degraded, idle, node); }
};

// One task by itself: the best of the nodes that are compared.
class Single {
 public:
  explicit Single(const Search& search) : search_(search), base_(search.layers.front()->base()) {}

  std::optional<GangPlacement> place() {
    const size_t nodes = base_.nodes().size();
    const bool all = nodes <= kComparedMost || search_.shape.spread_nodes;
    const size_t most = all ? nodes + 1 : kComparedInLargeClusters;
    for (size_t rank = 0; rank < search_.choices.size(); ++rank) {
      const TypeChoice& choice = search_.choices[rank];
      size_t compared = 0;
      visit_candidates(search_, choice, idle_needed(search_.shape), [&](NodeIndex node) {
        consider(rank, choice, node);
        return ++compared < most || !best_;
      });
      // Without scores the first type that has room is the best one.
      if (best_ && search_.scores == nullptr) break;
    }
    if (!best_) return std::nullopt;
    const TypeChoice& choice = search_.choices[best_->type_rank];
    auto placed = place_on_node(search_.shape, choice, best_->node, search_.layers, 1);
    return GangPlacement{choice.type, std::move(placed)};
  }

 private:
  bool is_plain(NodeIndex node) const {
    for (const View* layer : search_.layers) {
      if (layer->is_changed(node)) return false;
    }
    return true;
  }

  void consider(size_t rank, const TypeChoice& choice, NodeIndex node) {
    const auto points = points_of(choice, node);
    if (!points) return;
    const NodeRoom& room = search_.layers.front()->at(node);
    Candidate candidate{*points, rank, false, 0, node};
    uint32_t healthy = 0;
    for (const GpuRoom& gpu : room.gpus) {
      if (gpu.type != choice.type || !gpu.takes_work() || !gpu.is_idle()) continue;
      ++candidate.idle;
      healthy += gpu.degraded ? 0 : 1;
    }
    if (search_.shape.kind == SliceKind::whole) candidate.degraded = healthy < search_.shape.gpu_count;
    if (search_.shape.gpu_count == 0) candidate.idle = room.cpu_free.count();
    if (search_.shape.spread_nodes) {
      candidate.points = 0;
      candidate.idle = -candidate.idle;
    }
    if (!best_ || candidate.rank() < best_->rank()) best_ = candidate;
  }

  std::optional<int> points_of(const TypeChoice& choice, NodeIndex node) {
    const bool cached = search_.cache != nullptr && search_.scores != nullptr && is_plain(node);
    if (!cached) {
      if (!fits_on_node(search_.shape, choice, node, search_.layers)) return std::nullopt;
      return search_.scores == nullptr ? 0 : score(choice, node);
    }
    ScoreCache::Entry& entry = search_.cache->at(node, base_.nodes().size());
    if (entry.node_version != base_.version(node) || entry.scores_version != search_.scores->version() ||
        entry.type != choice.type) {
      entry.node_version = base_.version(node);
      entry.scores_version = search_.scores->version();
      entry.type = choice.type;
      const bool fits = fits_on_node(search_.shape, choice, node, search_.layers);
      entry.score = fits ? static_cast<int16_t>(score(choice, node)) : ScoreCache::kDoesNotFit;
    }
    if (entry.score == ScoreCache::kDoesNotFit) return std::nullopt;
    return entry.score - search_.scores->price(search_.shape, choice.type);
  }

  int score(const TypeChoice& choice, NodeIndex node) const {
    return search_.scores->of_node(search_.shape, choice.type, search_.layers.front()->at(node));
  }

  const Search& search_;
  const Capacity& base_;
  std::optional<Candidate> best_;
};

// Whole GPUs: all tasks on the tightest node that has room for all, else the roomiest nodes first, so that
// the gang spreads over few, and what is left over on the tightest that is enough for it.
std::optional<GangPlacement> place_whole_gang(const Search& search, const TypeChoice& choice,
                                              uint32_t tasks) {
  const Shape& shape = search.shape;
  GangPlacement gang{choice.type, {}};
  std::vector<std::pair<uint32_t, NodeIndex>> hosts;  // tasks that fit, node
  const auto all_on_one = [&](uint32_t left, const std::vector<NodeIndex>& used) {
    std::optional<std::pair<uint32_t, NodeIndex>> best;
    visit_candidates(search, choice, left * shape.gpu_count, [&](NodeIndex node) {
      if (std::find(used.begin(), used.end(), node) != used.end()) return true;
      const uint32_t fitting = count_on_node(shape, choice, node, search.layers, left + kMoreToTellApart);
      if (fitting < left) return true;
      if (!best || fitting < best->first) best = {fitting, node};
      // Those of the buckets come tightest first, those that are changed in any order.
      return search.layers.front()->is_changed(node);
    });
    if (!best) return false;
    auto placed = place_on_node(shape, choice, best->second, search.layers, left);
    std::move(placed.begin(), placed.end(), std::back_inserter(gang.tasks));
    return true;
  };
  if (all_on_one(tasks, {})) return gang;
  if (tasks == 1) return std::nullopt;
  visit_candidates(search, choice, shape.gpu_count, [&](NodeIndex node) {
    const uint32_t fitting = count_on_node(shape, choice, node, search.layers, tasks);
    if (fitting > 0) hosts.push_back({fitting, node});
    return true;
  });
  std::stable_sort(hosts.begin(), hosts.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<NodeIndex> used;
  for (const auto& [fitting, node] : hosts) {
    const auto left = static_cast<uint32_t>(tasks - gang.tasks.size());
    if (fitting >= left && all_on_one(left, used)) return gang;
    auto placed = place_on_node(shape, choice, node, search.layers, left);
    std::move(placed.begin(), placed.end(), std::back_inserter(gang.tasks));
    used.push_back(node);
    if (gang.tasks.size() == tasks) return gang;
  }
  return std::nullopt;
}

// Fractions and tasks without GPUs: on the tightest node that has room for all, else the roomiest first.
std::optional<GangPlacement> place_other_gang(const Search& search, const TypeChoice& choice,
                                              uint32_t tasks) {
  std::vector<std::vector<TaskPlacement>> hosts;
  uint64_t hosted = 0;
  visit_candidates(search, choice, 1, [&](NodeIndex node) {
    auto placed = place_on_node(search.shape, choice, node, search.layers, tasks + kMoreToTellApart);
    hosted += placed.size();
    if (!placed.empty()) hosts.push_back(std::move(placed));
    return hosted < tasks || hosts.size() < kHostsToChooseFrom;
  });
  if (hosted < tasks) return std::nullopt;
  std::stable_sort(hosts.begin(), hosts.end(), [&](const auto& a, const auto& b) {
    const bool a_all = a.size() >= tasks;
    const bool b_all = b.size() >= tasks;
    if (a_all != b_all) return a_all;
    return a_all ? a.size() < b.size() : a.size() > b.size();
  });
  GangPlacement gang{choice.type, {}};
  for (auto& host : hosts) {
    for (TaskPlacement& task : host) {
      if (gang.tasks.size() == tasks) return gang;
      gang.tasks.push_back(std::move(task));
    }
  }
  return gang.tasks.size() == tasks ? std::optional(std::move(gang)) : std::nullopt;
}

}  // namespace

std::optional<GangPlacement> place_gang_on_type(const Search& search, const TypeChoice& choice,
                                                uint32_t tasks) {
  if (tasks_at_most(search, choice) < tasks) return std::nullopt;
  if (tasks == 1) {
    const std::vector<TypeChoice> only{choice};
    const Search narrowed{search.shape, only, search.layers, search.scores, search.cache, search.allowed};
    return Single(narrowed).place();
  }
  const bool whole = search.shape.kind == SliceKind::whole && search.shape.gpu_count > 0;
  return whole ? place_whole_gang(search, choice, tasks) : place_other_gang(search, choice, tasks);
}

std::optional<GangPlacement> place_gang(const Search& search, uint32_t tasks) {
  if (tasks == 1) {
    const bool none =
        std::all_of(search.choices.begin(), search.choices.end(),
                    [&](const TypeChoice& choice) { return tasks_at_most(search, choice) == 0; });
    return none ? std::nullopt : Single(search).place();
  }
  std::vector<const TypeChoice*> choices;
  for (const TypeChoice& choice : search.choices) choices.push_back(&choice);
  if (search.scores != nullptr) {
    std::stable_sort(choices.begin(), choices.end(), [&](const TypeChoice* a, const TypeChoice* b) {
      return search.scores->price(search.shape, a->type) < search.scores->price(search.shape, b->type);
    });
  }
  for (const TypeChoice* choice : choices) {
    if (auto gang = place_gang_on_type(search, *choice, tasks)) return gang;
  }
  return std::nullopt;
}

std::optional<GangPlacement> place_gang(const Shape& shape, uint32_t tasks, const Layers& layers) {
  const auto choices = choices_for(shape, layers.front()->base());
  return place_gang(Search{shape, choices, layers}, tasks);
}

uint32_t tasks_that_fit(const Shape& shape, uint32_t most, const Layers& layers) {
  uint32_t best = 0;
  const std::vector<TypeChoice> none;
  for (const TypeChoice& choice : choices_for(shape, layers.front()->base())) {
    const Search search{shape, none, layers};
    uint32_t fitting = 0;
    visit_candidates(search, choice, idle_needed(shape), [&](NodeIndex node) {
      fitting += count_on_node(shape, choice, node, layers, most - fitting);
      return fitting < most;
    });
    best = std::max(best, fitting);
  }
  return best;
}

}  // namespace tranche::scheduler
