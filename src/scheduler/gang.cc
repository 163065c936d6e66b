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

// Visits nodes that may have room for one task of the shape, fullest first: those with room on shared GPUs,
// the least of it first, then by number of idle GPUs from `idle_at_least`. Nodes that the first layer changes
// without keeping buckets come before all others. `visit` says whether to go on; false is returned when it
// did not.
template <class Visit>
class Candidates {
 public:
  Candidates(const Search& search, const TypeChoice& choice, Visit& visit)
      : view_(*search.layers.front()), shape_(search.shape), choice_(choice), visit_(visit) {}

  bool visit(uint32_t idle_at_least) {
    if (!view_.visit_without_buckets(visit_)) return false;
    if (shape_.gpu_count == 0) return visit_all();
    if (shape_.kind != SliceKind::whole) {
      from_step_ = Buckets::step_of(std::max<int64_t>(shape_.compute, 1));
      if (!(shape_.looks_at_shared() ? visit_shared() : visit_own())) return false;
    }
    return visit_idle(std::max(idle_at_least, 1u));
  }

 private:
  bool visit_all() {
    for (NodeIndex n = 0; n < view_.base().nodes().size(); ++n) {
      if (!is_seen(n) && !visit_(n)) return false;
    }
    return true;
  }
  // Before all others.
  bool is_seen(NodeIndex node) const {
    const View* changed_by = view_.changed_by(node);
    return changed_by != nullptr && !changed_by->keeps_buckets();
  }

  // One bucket of the capacity and the same of each layer's own nodes; `visits` says of a node whether it is
  // this bucket's turn.
  template <class Of, class Visits>
  bool visit_bucket(KindIndex kind, Of of, Visits visits) {
    const auto visit_set = [&](const BitSet* nodes, const View* below) {
      if (nodes == nullptr) return true;
      for (uint32_t n = nodes->next(0); n != BitSet::kNone; n = nodes->next(n + 1)) {
        if (view_.is_changed_above(below, n) || !visits(n)) continue;
        if (!visit_(n)) return false;
      }
      return true;
    };
    if (!visit_set(of(view_.base().kinds()[kind].nodes), nullptr)) return false;
    for (const View* view = &view_; view != nullptr; view = view->under()) {
      if (view->keeps_buckets() && !visit_set(of(view->buckets(kind)), view)) return false;
    }
    return true;
  }

  bool visit_shared() {
    for (size_t step = from_step_; step < Buckets::kSteps; ++step) {
      for (const KindIndex kind : choice_.kinds) {
        const bool go_on = visit_bucket(
            kind, [&](const Buckets& nodes) { return &nodes.shared[step]; }, [](NodeIndex) { return true; });
        if (!go_on) return false;
      }
    }
    return true;
  }
  // Where the user shares a GPU with nobody but itself, and what the layers' buckets have instead.
  bool visit_own() {
    for (const auto& [node, slices] : view_.base().shared_by(shape_.uid)) own_.push_back(node);
    std::sort(own_.begin(), own_.end());
    for (const NodeIndex node : own_) {
      if (!is_seen(node) && !visit_(node)) return false;
    }
    for (size_t step = from_step_; step < Buckets::kSteps; ++step) {
      for (const KindIndex kind : choice_.kinds) {
        for (const View* view = &view_; view != nullptr; view = view->under()) {
          const BitSet& nodes = view->buckets(kind).shared[step];
          for (uint32_t n = nodes.next(0); n != BitSet::kNone; n = nodes.next(n + 1)) {
            const bool is_turn = !view_.is_changed_above(view, n) && !is_own(n);
            if (is_turn && !visit_(n)) return false;
          }
        }
      }
    }
    return true;
  }
  bool is_own(NodeIndex node) const { return std::binary_search(own_.begin(), own_.end(), node); }
  bool visit_idle(size_t idle_at_least) {
    size_t buckets = 0;
    for (const KindIndex kind : choice_.kinds) {
      buckets = std::max(buckets, view_.base().kinds()[kind].nodes.by_idle.size());
      for (const View* view = &view_; view != nullptr; view = view->under())
        buckets = std::max(buckets, view->buckets(kind).by_idle.size());
    }
    for (size_t idle = idle_at_least; idle < buckets; ++idle) {
      for (const KindIndex kind : choice_.kinds) {
        const bool go_on = visit_bucket(
            kind,
            [&](const Buckets& nodes) {
              return idle < nodes.by_idle.size() ? &nodes.by_idle[idle] : nullptr;
            },
            [&](NodeIndex node) { return !was_visited(kind, node); });
        if (!go_on) return false;
      }
    }
    return true;
  }
  // As one of the shared ones, before.
  bool was_visited(KindIndex kind, NodeIndex node) const {
    if (shape_.kind == SliceKind::whole) return false;
    if (!shape_.looks_at_shared() && view_.changed_by(node) == nullptr) return is_own(node);
    return view_.count(node, kind).shared > from_step_ || (!shape_.looks_at_shared() && is_own(node));
  }

  const View& view_;
  const Shape& shape_;
  const TypeChoice& choice_;
  Visit& visit_;
  uint8_t from_step_ = 0;
  std::vector<NodeIndex> own_;
};

template <class Visit>
bool visit_candidates(const Search& search, const TypeChoice& choice, uint32_t idle_at_least, Visit visit) {
  if (search.allowed == nullptr) return Candidates<Visit>(search, choice, visit).visit(idle_at_least);
  auto visit_allowed = [&](NodeIndex node) { return !(*search.allowed)[node] || visit(node); };
  return Candidates<decltype(visit_allowed)>(search, choice, visit_allowed).visit(idle_at_least);
}

uint32_t idle_needed(const Shape& shape) { return shape.kind == SliceKind::whole ? shape.gpu_count : 1; }

// More than this many tasks surely do not fit; quick, from the counts of the buckets alone.
uint64_t tasks_at_most(const Search& search, const TypeChoice& choice) {
  const Shape& shape = search.shape;
  const View& view = *search.layers.front();
  if (shape.gpu_count == 0 || shape.kind != SliceKind::whole) return UINT64_MAX;
  uint64_t tasks = 0;
  const auto add = [&](const Buckets& nodes) {
    for (size_t idle = shape.gpu_count; idle < nodes.by_idle.size(); ++idle)
      tasks += uint64_t{nodes.by_idle[idle].count()} * (idle / shape.gpu_count);
  };
  for (const KindIndex kind : choice.kinds) {
    add(view.base().kinds()[kind].nodes);
    for (const View* layer = &view; layer != nullptr; layer = layer->under()) add(layer->buckets(kind));
  }
  view.visit_without_buckets([&](NodeIndex node) {
    tasks += view.at(node).gpus.size() / shape.gpu_count;
    return true;
  });
  return tasks;
}

struct Candidate {
  int points = 0;  // the higher the better
  uint32_t memory_rank = 0;
  bool degraded = false;
  int64_t idle = 0;  // GPUs of the type, or processors for a task without GPUs, where no mix is known
  NodeIndex node = 0;
  size_t choice = 0;
  auto rank() const { return std::tuple(-points, memory_rank, degraded, idle, node, choice); }
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
      const bool is_sorted = search_.layers.front()->visit_without_buckets([](NodeIndex) { return false; });
      visit_candidates(search_, choice, idle_needed(search_.shape), [&](NodeIndex node) {
        consider(rank, choice, node);
        ++compared;
        if (!best_) return true;
        // Without scores the first healthy one of the buckets is as good as any that follow.
        if (search_.scores == nullptr && is_sorted && !best_->degraded) return false;
        return compared < most;
      });
      // Without scores the first type that has room is the best one.
      if (best_ && search_.scores == nullptr) break;
    }
    if (!best_) return std::nullopt;
    const TypeChoice& choice = search_.choices[best_->choice];
    std::vector<int> points;
    if (search_.scores != nullptr && search_.shape.kind != SliceKind::whole)
      points = search_.scores->of_gpus(search_.shape, choice.type, search_.layers.front()->at(best_->node));
    auto placed = place_on_node(search_.shape, choice, best_->node, search_.layers, 1, points);
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
    const bool cached = search_.cache != nullptr && search_.scores != nullptr && is_plain(node);
    if (!cached) return take_if_better(entry_for(choice, node), rank, choice, node);
    ScoreCache::Entry& entry = search_.cache->at(node, base_.nodes().size());
    if (entry.node_version != base_.version(node) || entry.scores_version != search_.scores->version() ||
        entry.type != choice.type)
      entry = entry_for(choice, node);
    take_if_better(entry, rank, choice, node);
  }

  void take_if_better(const ScoreCache::Entry& entry, size_t rank, const TypeChoice& choice, NodeIndex node) {
    if (entry.score == ScoreCache::kDoesNotFit) return;
    const int price = search_.scores == nullptr ? 0 : search_.scores->price(search_.shape, choice.type);
    Candidate candidate{entry.score - price, choice.rank, entry.is_degraded, 0, node, rank};
    // Equal scores in a fixed order keep nodes empty; by fullness they would go to small nodes first,
    // whatever their processors are good for.
    const bool by_fullness = search_.scores == nullptr || !search_.scores->knows_mix();
    if (by_fullness || search_.shape.spread_nodes) {
      const bool on_gpus = search_.shape.gpu_count > 0;
      candidate.idle = on_gpus ? entry.idle : search_.layers.front()->at(node).cpu_free.count();
    }
    if (search_.shape.spread_nodes) {
      candidate.points = 0;
      candidate.idle = -candidate.idle;
    }
    if (!best_ || candidate.rank() < best_->rank()) best_ = candidate;
  }

  ScoreCache::Entry entry_for(const TypeChoice& choice, NodeIndex node) const {
    ScoreCache::Entry entry;
    entry.node_version = base_.version(node);
    if (search_.scores != nullptr) entry.scores_version = search_.scores->version();
    entry.type = choice.type;
    if (!fits_on_node(search_.shape, choice, node, search_.layers)) return entry;
    entry.score = static_cast<int16_t>(search_.scores == nullptr ? 0 : score(choice, node));
    uint32_t healthy = 0;
    for (const GpuRoom& gpu : search_.layers.front()->at(node).gpus) {
      if (gpu.type != choice.type || !gpu.takes_work() || !gpu.is_idle()) continue;
      if (entry.idle < UINT8_MAX) ++entry.idle;
      healthy += gpu.degraded ? 0 : 1;
    }
    const bool whole = search_.shape.kind == SliceKind::whole;
    entry.is_degraded = whole && healthy < search_.shape.gpu_count;
    return entry;
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
      // Those of the buckets come tightest first, those that are changed without in any order.
      const View* changed_by = search.layers.front()->changed_by(node);
      return changed_by != nullptr && !changed_by->keeps_buckets();
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

bool has_surely_no_room(const Search& search, uint32_t tasks) {
  return std::all_of(search.choices.begin(), search.choices.end(),
                     [&](const TypeChoice& choice) { return tasks_at_most(search, choice) < tasks; });
}

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
    return has_surely_no_room(search, 1) ? std::nullopt : Single(search).place();
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
