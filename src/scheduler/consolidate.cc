#include "scheduler/consolidate.h"

#include <algorithm>
#include <tuple>

#include "scheduler/task_step.h"

namespace tranche::scheduler {
namespace {

// Nodes from which a search for moves starts.
constexpr size_t kStartsMost = 64;

class MoveSearch {
 public:
  MoveSearch(const State& state, const Promises& promises, const Job& job, const Group& group, Time& wake)
      : state_(state),
        job_(job),
        record_(state.waiting.shape(group.key.shape)),
        wake_(wake),
        base_(promises.when_left()) {}

  std::optional<Consolidation> find() {
    if (!job_.spec->preemptible || fits(base_)) return std::nullopt;
    const std::vector<Start> starts = starts_by_cost();
    for (size_t first = 0; first < starts.size() && first < kStartsMost; ++first) {
      if (auto found = try_from(starts, first)) return found;
    }
    return std::nullopt;
  }

 private:
  // A node with the jobs that could leave it, the cheapest first.
  struct Start {
    std::vector<const Job*> jobs;
    int64_t cost = 0;  // of the cheapest
    int64_t started = 0;
    NodeIndex node = 0;
    auto rank() const { return std::tuple(cost, -started, node); }
  };

  bool may_move(const Job& job) {
    if (!job.spec->preemptible || job.stop_reason || job.is_waiting()) return false;
    const Time until = job.started + state_.policy.minimum_runtime;
    if (until <= state_.now) return true;
    if (!wake_.is_set() || until < wake_) wake_ = until;
    return false;
  }

  int64_t charge_of_job(const Job& job) const {
    int64_t charge = 0;
    for_each_holding(job, [&](const Holding& holding) { charge += holding.charge().count(); });
    return charge;
  }

  template <class Action>
  void for_each_holding(const Job& job, Action action) const {
    for (const Task& task : job.tasks) {
      const Holding* holding = state_.holdings.find(task.start.task);
      if (holding != nullptr && holding->stays) action(*holding);
    }
  }

  std::vector<Start> starts_by_cost() {
    std::vector<Start> starts;
    for (NodeIndex node = 0; node < state_.holdings_on.size(); ++node) {
      Start start;
      start.node = node;
      for (const uint32_t position : state_.holdings_on[node]) {
        const Holding& holding = state_.holdings.at(position);
        if (!holding.stays) continue;
        const Job* job = state_.find(holding.task.job);
        const bool is_known = std::find(start.jobs.begin(), start.jobs.end(), job) != start.jobs.end();
        if (!is_known && may_move(*job)) start.jobs.push_back(job);
      }
      if (start.jobs.empty()) continue;
      std::stable_sort(start.jobs.begin(), start.jobs.end(), [&](const Job* a, const Job* b) {
        return std::tuple(charge_of_job(*a), -a->started.nanoseconds()) <
               std::tuple(charge_of_job(*b), -b->started.nanoseconds());
      });
      start.cost = charge_of_job(*start.jobs.front());
      start.started = start.jobs.front()->started.nanoseconds();
      starts.push_back(std::move(start));
    }
    std::sort(starts.begin(), starts.end(),
              [](const Start& a, const Start& b) { return a.rank() < b.rank(); });
    return starts;
  }

  // The jobs of the first node, then of those that follow, until the one that waits fits.
  std::optional<Consolidation> try_from(const std::vector<Start>& starts, size_t first) const {
    View room(&base_);
    std::vector<const Job*> moved;
    for (size_t i = first; i < starts.size() && moved.size() < state_.policy.consolidation_moves; ++i) {
      for (const Job* job : starts[i].jobs) {
        if (moved.size() == state_.policy.consolidation_moves) break;
        if (std::find(moved.begin(), moved.end(), job) != moved.end()) continue;
        give(room, *job);
        moved.push_back(job);
        if (fits(room)) return concluded(moved, room);
      }
    }
    return std::nullopt;
  }

  std::optional<Consolidation> concluded(std::vector<const Job*>& moved, View& room) const {
    // Those that need not move stay.
    for (size_t i = moved.size(); i-- > 0;) {
      take(room, *moved[i]);
      if (fits(room)) {
        moved.erase(moved.begin() + static_cast<std::ptrdiff_t>(i));
      } else {
        give(room, *moved[i]);
      }
    }
    Consolidation result;
    auto plan = place_record(record_, {&room}, &state_.scores);
    if (!plan) return std::nullopt;
    result.plan = std::move(*plan);
    for (const TaskPlacement& task : result.plan.tasks) room.take(footprint_of(*job_.spec, task));
    for (const Job* job : moved) {
      auto again = place_again(state_, *job, {&room});
      if (!again) return std::nullopt;
      for (const TaskPlacement& task : again->tasks) room.take(footprint_of(*job->spec, task));
      result.moved.push_back({job->id, std::move(*again)});
      for_each_holding(*job, [&](const Holding& holding) {
        result.stops.push_back(Stop{holding.task, StopReason::consolidated, job_.id});
      });
    }
    return result;
  }

  bool fits(const View& room) const { return place_record(record_, {&room}, &state_.scores).has_value(); }
  void give(View& room, const Job& job) const {
    for_each_holding(job, [&](const Holding& holding) { room.give(holding.footprint()); });
  }
  void take(View& room, const Job& job) const {
    for_each_holding(job, [&](const Holding& holding) { room.take(holding.footprint()); });
  }

  const State& state_;
  const Job& job_;
  const ShapeRecord& record_;
  Time& wake_;
  const View& base_;
};

}  // namespace

std::optional<Consolidation> find_moves(const State& state, const Promises& promises, const Job& job,
                                        const Group& group, Time& wake) {
  return MoveSearch(state, promises, job, group, wake).find();
}

}  // namespace tranche::scheduler
