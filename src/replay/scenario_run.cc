#include "replay/scenario_run.h"

#include <algorithm>
#include <utility>

#include "replay/scenario_audit.h"

namespace tranche::replay {
namespace {

class Player {
 public:
  Player(const Scenario& scenario, const ScenarioCluster& cluster)
      : scenario_(scenario), cluster_(cluster), audit_(scenario, cluster) {
    for (const PlacedJob& job : cluster.jobs) {
      for (const PlacedTask& rank : job.ranks) result_.tasks[task(job, rank).id] = {};
    }
  }

  ScenarioResult run() {
    restore_cluster();
    restore_jobs();
    play();
    watch_after_match();
    result_.violations = std::move(audit_.violations);
    return std::move(result_);
  }

 private:
  using Decisions = std::vector<Decision>;

  Event next(EventPayload payload, Time not_before = {}) {
    now_ = std::max(now_ + kNanosecond, not_before);
    return {EventSeq(++last_event_), now_, std::move(payload)};
  }
  void restore(EventPayload payload, const Decisions& decisions = {}, Time not_before = {}) {
    scheduler_.restore(next(std::move(payload), not_before), decisions);
  }
  Decisions step(EventPayload payload, Time not_before = {}) {
    return scheduler_.step(next(std::move(payload), not_before));
  }

  // --- how the case begins -------------------------------------------------------------------------------
  void restore_cluster() {
    Time earliest = kScenarioStart;
    for (const PlacedJob& job : cluster_.jobs) earliest = std::min(earliest, job.submitted);
    now_ = earliest - kHour;
    restore(PolicyChanged{cluster_.policy});
    for (const Node& node : cluster_.nodes) restore(NodeAdded{node});
    for (const Gpu& gpu : cluster_.gpus) restore(GpuAdded{gpu});
  }

  void restore_jobs() {
    for (const PlacedJob& job : cluster_.jobs) {
      const Decisions starts = initial_starts(job);
      // What the door refuses never waits; the tables call it pending.
      if (starts.empty() && !scheduler_.check(job.spec, {})) continue;
      restore(JobSubmitted{job.id, job.spec, {}}, starts, job.submitted);
      for (const Decision& decision : starts) audit_.started(std::get<Start>(decision), true);
    }
    for (const PlacedJob& job : cluster_.jobs) {
      for (uint32_t rank = 0; rank < job.ranks.size(); ++rank) restore_task(job, rank);
    }
  }

  Decisions initial_starts(const PlacedJob& job) {
    Decisions starts;
    for (uint32_t rank = 0; rank < job.ranks.size(); ++rank) {
      const PlacedTask& placed = job.ranks[rank];
      const ScenarioTask& listed = task(job, placed);
      TaskOutcome& outcome = result_.tasks[listed.id];
      outcome.status = listed.state == ScenarioStatus::pipelined ? ScenarioStatus::pending : listed.state;
      const bool finished =
          listed.state == ScenarioStatus::failed || listed.state == ScenarioStatus::succeeded;
      if (!listed.holds() && !finished) continue;
      outcome.node = placed.node.is_set() || cluster_.nodes.empty() ? placed.node : cluster_.nodes.front().id;
      outcome.slices = placed.slices;
      starts.push_back(Start{{job.id, rank, 1}, outcome.node, placed.slices});
    }
    return starts;
  }

  void restore_task(const PlacedJob& job, uint32_t rank) {
    const ScenarioTask& listed = task(job, job.ranks[rank]);
    const TaskKey key{job.id, rank, 1};
    const bool finished = listed.state == ScenarioStatus::failed || listed.state == ScenarioStatus::succeeded;
    if (!listed.holds() && !finished) return;
    restore(TaskStarted{key});
    if (finished) {
      const int32_t code = listed.state == ScenarioStatus::failed ? 1 : 0;
      restore(TaskExited{key, ExitCause::exited, code, 0});
      for (const Slice& slice : outcome_of(key).slices) restore(SliceReleased{key, slice.gpu});
      const Duration ago(scenario_.jobs[job.job].stale_for_s * kSecond.count());
      begin_ = std::max(begin_, now_ + ago);
    }
    if (listed.state == ScenarioStatus::releasing || listed.state == ScenarioStatus::stuckinreleasing) {
      const Stop stop{key, StopReason::preempted, {}};
      restore(Tick{}, {stop});
      if (listed.state == ScenarioStatus::releasing) leaving_.push_back(stop);
    }
  }

  // --- rounds --------------------------------------------------------------------------------------------
  void play() {
    Decisions decisions;
    append(decisions, step(Tick{}, begin_));
    for (int round = 0; round < kRoundsMax; ++round) {
      const RoundCounts counts = take(decisions);
      if (counts != RoundCounts{}) result_.rounds.push_back(counts);
      if (starting_.empty() && leaving_.empty()) {
        result_.quiescent = true;
        audit_.quiet();
        return;
      }
      decisions = bring_about();
    }
  }

  // What the last round decided has happened.
  Decisions bring_about() {
    Decisions decisions;
    for (const TaskKey& key : std::exchange(starting_, {})) append(decisions, step(TaskStarted{key}));
    for (const Stop& stop : std::exchange(leaving_, {})) {
      const std::vector<Slice> slices = outcome_of(stop.task).slices;
      TaskOutcome& outcome = outcome_of(stop.task);
      outcome.status = ScenarioStatus::pending;
      outcome.node = NodeId();
      audit_.released(stop.task);
      append(decisions, step(TaskExited{stop.task, ExitCause::killed, 0, 15}));
      append(decisions, step_released(stop.task, slices));
    }
    return decisions;
  }

  Decisions step_released(const TaskKey& key, const std::vector<Slice>& slices) {
    Decisions decisions;
    for (const Slice& slice : slices) append(decisions, step(SliceReleased{key, slice.gpu}));
    return decisions;
  }

  RoundCounts take(const Decisions& decisions) {
    RoundCounts counts;
    for (const Decision& decision : decisions) {
      if (const auto* start = std::get_if<Start>(&decision)) {
        ++counts.starts;
        TaskOutcome& outcome = outcome_of(start->task);
        outcome.status = ScenarioStatus::running;
        outcome.node = start->node;
        outcome.slices = start->slices;
        outcome.was_started = true;
        audit_.started(*start, false);
        starting_.push_back(start->task);
      }
      if (const auto* stop = std::get_if<Stop>(&decision)) {
        ++counts.stops;
        TaskOutcome& outcome = outcome_of(stop->task);
        outcome.status = ScenarioStatus::releasing;
        outcome.was_stopped = true;
        audit_.stopped(*stop);
        std::erase(starting_, stop->task);
        const PlacedJob& job = cluster_.jobs[stop->task.job.value() - 1];
        if (!scenario_.jobs[job.job].release_never_completes) leaving_.push_back(*stop);
      }
    }
    return counts;
  }

  void watch_after_match() {
    for (int64_t round = 0; round < scenario_.rounds_after_match; ++round) {
      const RoundCounts counts = take(step(Tick{}, now_ + kSecond));
      result_.after_match.starts += counts.starts;
      result_.after_match.stops += counts.stops;
      append_ignored(bring_about());
    }
  }
  void append_ignored(const Decisions& decisions) {
    const RoundCounts counts = take(decisions);
    result_.after_match.starts += counts.starts;
    result_.after_match.stops += counts.stops;
  }

  // --- names ---------------------------------------------------------------------------------------------
  const ScenarioTask& task(const PlacedJob& job, const PlacedTask& rank) const {
    return scenario_.jobs[job.job].tasks[rank.task];
  }
  TaskOutcome& outcome_of(const TaskKey& key) {
    const PlacedJob& job = cluster_.jobs[key.job.value() - 1];
    return result_.tasks.at(task(job, job.ranks[key.rank]).id);
  }
  static void append(Decisions& to, Decisions from) {
    to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
  }

  const Scenario& scenario_;
  const ScenarioCluster& cluster_;
  scheduler::Scheduler scheduler_;
  ScenarioAudit audit_;
  ScenarioResult result_;
  Time now_;
  uint64_t last_event_ = 0;
  std::vector<TaskKey> starting_;
  std::vector<Stop> leaving_;
  Time begin_ = kScenarioStart;  // of the first round
};

}  // namespace

ScenarioResult run_scenario(const Scenario& scenario, const ScenarioCluster& cluster) {
  return Player(scenario, cluster).run();
}

}  // namespace tranche::replay
