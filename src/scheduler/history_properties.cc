// P8, P10 and P17 over random histories.
#include <algorithm>
#include <utility>

#include "scheduler/history.h"
#include "scheduler/property.h"

namespace tranche::scheduler::test {
namespace {

// The opening and all events of a history; `look(event, decisions)` returns what is wrong.
template <class Look>
std::optional<Finding> play(Played& played, History& history, Scheduler& scheduler, int events, Look look) {
  history.drop(played.dropped);
  history.accepts = [&](const JobSpec& spec, const ArraySpec& array) {
    return scheduler.check(spec, array).has_value();
  };
  std::vector<Decision> decisions;
  const auto take = [&](const Event& event) -> std::optional<Finding> {
    decisions = scheduler.step(event);
    return look(event, decisions);
  };
  for (EventPayload& payload : history.opening()) {
    if (auto finding = take(history.opening_event(std::move(payload)))) return finding;
  }
  for (int i = 0; i < events; ++i) {
    auto finding = take(history.next(decisions));
    played.inputs = history.inputs();
    if (finding) return finding;
  }
  return std::nullopt;
}

bool promises_more_than_there_is(const Policy& policy, int64_t capacity) {
  std::map<std::string, int64_t> quotas;
  int64_t sum = 0;
  for (const QueuePolicy& queue : policy.queues) {
    if (!queue.quota) continue;
    quotas[queue.path] = queue.quota->count();
    sum += queue.quota->count();
  }
  const bool is_nested_badly =
      quotas.contains("physics") && quotas["physics"] < quotas["physics/theory"] + quotas["physics/vision"];
  return is_nested_badly || sum > capacity;
}

}  // namespace

// Premises: tasks of one GPU and one type, processors in plenty, all preemptible, quotas that can be kept
// together. A queue below its quota with work waiting reaches it within the minimum runtime and one grace.
std::optional<Finding> queues_reach_quota(Played& played, Counts& counts) {
  counts.add("histories");
  HistoryRules rules;
  rules.one_gpu_jobs = rules.one_type = true;
  rules.fractions = rules.gangs = rules.faults = rules.cancels = rules.policy_changes = rules.limits = false;
  rules.dependencies = rules.arrays = rules.host_resources = rules.not_preemptible = rules.priorities = false;
  rules.structure = false;
  rules.mean_arrival_seconds = 40;
  History history(played.seed, rules);
  Scheduler scheduler;
  std::map<std::string, Time> short_since;
  std::map<std::string, std::pair<MilliGpu, MilliGpu>> last;
  const auto look = [&](const Event& event, const auto&) -> std::optional<Finding> {
    if (promises_more_than_there_is(scheduler.policy(),
                                    static_cast<int64_t>(scheduler.gpus().size()) * 1000)) {
      counts.add("exempt: P8: events under quotas that cannot be kept");
      return std::nullopt;
    }
    const Duration bound = scheduler.policy().minimum_runtime + kSecond * 40;
    for (const QueueShare& share : scheduler.shares()) {
      const MilliGpu goal = std::min(share.quota, share.demand);
      const bool is_short = share.has_quota && share.used < goal;
      // A new shortfall begins when a job of the queue ends or its demand rises.
      const auto before = std::exchange(last[share.path], {share.used, goal});
      if (!is_short || share.used < before.first || goal > before.second) {
        short_since.erase(share.path);
        continue;
      }
      counts.add("P8: times a queue was below its quota");
      const Time since = short_since.try_emplace(share.path, event.time).first->second;
      if (event.time - since <= bound) continue;
      return Finding{"P8", share.path +
                               " is below its quota for too long: " + std::to_string(share.used.count()) +
                               " of " + std::to_string(share.quota.count()) + ", demand " +
                               std::to_string(share.demand.count())};
    }
    return std::nullopt;
  };
  return play(played, history, scheduler, 200, look);
}

// From some moment on nobody asks for anything and nothing ends by itself: evictions come to an end.
std::optional<Finding> taking_ends(Played& played, Counts& counts) {
  counts.add("histories");
  HistoryRules rules;
  rules.mean_arrival_seconds = 30;
  rules.faults = false;
  History history(played.seed, rules);
  Scheduler scheduler;
  std::vector<Decision> decisions;
  auto finding =
      play(played, history, scheduler, 150, [&](const Event&, const auto& now) -> std::optional<Finding> {
        decisions = now;
        return std::nullopt;
      });
  history.freeze();
  std::map<std::pair<JobId, uint32_t>, int> stops;  // by task: an elastic job loses them one by one
  for (int steps = 0; steps < 4'000; ++steps) {
    for (const Decision& decision : decisions) {
      const auto* stop = std::get_if<Stop>(&decision);
      if (stop == nullptr) continue;
      if (stop->reason != StopReason::preempted && stop->reason != StopReason::reclaimed) continue;
      counts.add("P10: evictions while nothing came from outside");
      // Several claimants may move one job in turn, as each of them starts; a cycle would pass any bound.
      if (++stops[{stop->task.job, stop->task.rank}] > 20)
        return Finding{"P10", "job " + std::to_string(stop->task.job.value()) + " is moved again and again"};
    }
    const Event event = history.next(decisions);
    if (std::holds_alternative<JobSubmitted>(event.payload) || event.time == kNever) return std::nullopt;
    decisions = scheduler.step(event);
    if (history.is_over() && decisions.empty()) return std::nullopt;
  }
  return Finding{"P10", "it does not come to rest"};
}

namespace {

// Other names, in another order: users, their ids, and queues.
std::string renamed(const std::string& path) {
  std::string text;
  for (const char c : path) text += c >= 'a' && c <= 'z' ? static_cast<char>('z' - (c - 'a')) : c;
  return text;
}
EventPayload renamed(EventPayload payload) {
  if (auto* submitted = std::get_if<JobSubmitted>(&payload)) {
    submitted->spec.owner.uid = 100'000 - submitted->spec.owner.uid;
    submitted->spec.owner.user = renamed(submitted->spec.owner.user);
    submitted->spec.queue = renamed(submitted->spec.queue);
  }
  if (auto* changed = std::get_if<PolicyChanged>(&payload)) {
    for (QueuePolicy& queue : changed->policy.queues) queue.path = renamed(queue.path);
    std::sort(changed->policy.queues.begin(), changed->policy.queues.end(),
              [](const QueuePolicy& a, const QueuePolicy& b) { return a.path < b.path; });
    changed->policy.default_queue = renamed(changed->policy.default_queue);
  }
  return payload;
}

}  // namespace

std::optional<Finding> names_decide_nothing(Played& played, Counts& counts) {
  counts.add("histories");
  HistoryRules rules;
  History history(played.seed, rules);
  Scheduler scheduler;
  Scheduler other;
  return play(played, history, scheduler, 200,
              [&](const Event& event, const auto& decisions) -> std::optional<Finding> {
                counts.add("P17: events decided alike");
                if (other.step(Event{event.seq, event.time, renamed(event.payload)}) == decisions)
                  return std::nullopt;
                return Finding{"P17", "event " + std::to_string(event.seq.value()) +
                                          " is decided otherwise under other names"};
              });
}

}  // namespace tranche::scheduler::test
