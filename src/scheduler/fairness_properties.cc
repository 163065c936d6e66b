// P4, P5, P6, P11, P14 and P15: what a queue gets beside others, at rest. The arithmetic of each statement is
// done here from weights, requests and what is held, never from the scheduler's own shares; P11 is about
// those.
#include <algorithm>
#include <utility>

#include "scheduler/history.h"
#include "scheduler/property.h"
#include "scheduler/settled_world.h"

namespace tranche::scheduler::test {
namespace {

std::string name_of(size_t queue) { return "q" + std::to_string(queue); }

struct Group {
  int64_t weight = 1;
  int64_t size = 1000;  // milli-GPU of each task
  std::string path = {};
};

// Queues side by side under a policy that takes from whoever is over its share by anything, at once, and
// forgets the past: the premises of P4 to P6. `Policy::reclaim_surplus` and `minimum_runtime` loosen them by
// what they say, on purpose (docs/policy.md, rule 5).
Policy policy_of(const std::vector<Group>& queues) {
  Policy policy;
  for (const Group& group : queues) {
    QueuePolicy queue;
    queue.path = group.path;
    queue.weight = group.weight;
    policy.queues.push_back(queue);
  }
  std::sort(policy.queues.begin(), policy.queues.end(),
            [](const QueuePolicy& a, const QueuePolicy& b) { return a.path < b.path; });
  policy.usage_half_life = Duration(0);
  policy.minimum_runtime = Duration(0);
  policy.reclaim_surplus = MilliGpu(1);
  policy.users_share_gpu = true;
  return policy;
}

JobSpec task_of(const Group& group, Time begin = {}) {
  Request request;
  request.user = "u";
  request.queue = group.path;
  request.cpu = 1;
  request.time_limit = 1000 * kDay;
  request.begin = begin;
  if (group.size % 1000 == 0) {
    request.gpus = static_cast<uint32_t>(group.size / 1000);
  } else {
    request.milli = group.size;
  }
  return spec_of(request);
}

std::vector<Group> some_queues(Random& random, const std::vector<int64_t>& sizes, bool same_size) {
  std::vector<Group> queues(static_cast<size_t>(random.between(2, 5)));
  const int64_t size = sizes[random.below(sizes.size())];
  for (size_t i = 0; i < queues.size(); ++i) {
    queues[i].path = name_of(i);
    queues[i].weight = random.between(1, 4);
    queues[i].size = same_size ? size : sizes[random.below(sizes.size())];
  }
  return queues;
}

int64_t add_nodes(Random& random, SettledWorld& world) {
  const int64_t nodes = random.between(1, 4);
  int64_t gpus = 0;
  for (int64_t i = 0; i < nodes; ++i) {
    const auto count = static_cast<uint32_t>(random.between(1, 4) * 2);
    world.add_node(count);
    gpus += count;
  }
  return gpus;
}

// Jobs come and go, in any order of queues; `look` sees every state at rest.
template <class Look>
void crowd(Random& random, SettledWorld& world, const std::vector<Group>& queues, int64_t gpus, Look look) {
  const auto steps = static_cast<int>(gpus * 4 + 20);
  for (int i = 0; i < steps; ++i) {
    const auto running = world.running();
    if (!running.empty() && random.chance(1, 4)) {
      world.ends(running[random.below(running.size())]);
    } else {
      world.submits(task_of(queues[random.below(queues.size())]));
    }
    if (!look()) return;
  }
}

int64_t held_by(SettledWorld& world, const Group& group) { return world.share(group.path).used.count(); }
bool is_backlogged(SettledWorld& world, const Group& group) {
  return world.share(group.path).jobs_waiting > 0;
}

}  // namespace

std::optional<Finding> sharing_incentive(Played& played, Counts& counts) {
  Random random(played.seed);
  const auto queues = some_queues(random, {1000, 500, 250}, true);
  SettledWorld world(policy_of(queues));
  const int64_t gpus = add_nodes(random, world);
  int64_t weights = 0;
  for (const Group& group : queues) weights += group.weight;
  std::optional<Finding> finding;
  crowd(random, world, queues, gpus, [&] {
    for (const Group& group : queues) {
      if (!world.scheduler.has_job(JobId(1)) && world.last_job() == 0) continue;
      const auto shares = world.scheduler.shares();
      const bool is_there =
          std::any_of(shares.begin(), shares.end(), [&](const auto& s) { return s.path == group.path; });
      if (!is_there || !is_backlogged(world, group)) {
        counts.add("exempt: P4: queues without a backlog");
        continue;
      }
      counts.add("P4: backlogged queues");
      const int64_t part = gpus * 1000 * group.weight / weights;
      if (held_by(world, group) < part - group.size) {
        finding =
            Finding{"P4", "queue " + group.path + " of weight " + std::to_string(group.weight) + " of " +
                              std::to_string(weights) + " holds " + std::to_string(held_by(world, group)) +
                              " of " + std::to_string(gpus * 1000) + " with jobs waiting, seed " +
                              std::to_string(played.seed)};
        return false;
      }
    }
    return true;
  });
  counts.add("histories");
  return finding;
}

// Queue 0 says what it needs, or the double of it, in worlds that are alike otherwise. All come at once.
std::optional<Finding> inflation_gains_nothing(Played& played, Counts& counts) {
  counts.add("histories");
  uint64_t tasks[2] = {};
  for (const bool inflated : {false, true}) {
    Random random(played.seed);
    auto queues = some_queues(random, {500, 250, 125}, false);
    if (inflated) queues[0].size *= 2;
    SettledWorld world(policy_of(queues));
    const int64_t gpus = add_nodes(random, world);
    const Time begin = kStart + kHour;
    for (const Group& group : queues) {
      for (int64_t i = 0; i < gpus * 1000 / group.size + 1; ++i) world.submits(task_of(group, begin));
    }
    world.happens(Tick{}, begin - world.now());
    tasks[inflated] = world.share(queues[0].path).jobs_running;
  }
  counts.add("P5: pairs");
  // Rounding: the last GPU may go to either side of its fair share.
  if (tasks[1] <= tasks[0]) return std::nullopt;
  return Finding{"P5", "a queue that asks for twice what it needs runs " + std::to_string(tasks[1]) +
                           " tasks instead of " + std::to_string(tasks[0])};
}

std::optional<Finding> nobody_envies(Played& played, Counts& counts) {
  counts.add("histories");
  Random random(played.seed);
  const auto queues = some_queues(random, {1000, 2000}, false);
  SettledWorld world(policy_of(queues));
  const int64_t gpus = add_nodes(random, world);
  const Time begin = kStart + kHour;
  for (const Group& group : queues) {
    const int64_t jobs = random.between(1, gpus);
    for (int64_t i = 0; i < jobs; ++i) world.submits(task_of(group, begin));
  }
  world.happens(Tick{}, begin - world.now());
  for (const Group& own : queues) {
    const QueueShare mine = world.share(own.path);
    if (mine.jobs_waiting == 0) {
      counts.add("exempt: P6: queues without a backlog");
      continue;
    }
    for (const Group& other : queues) {
      if (&own == &other) continue;
      counts.add("P6: pairs");
      // Up to one task of each.
      const int64_t theirs = (held_by(world, other) - other.size) * own.weight / other.weight / own.size;
      if (theirs > int64_t{mine.jobs_running} + 1) {
        return Finding{"P6", own.path + " runs " + std::to_string(mine.jobs_running) +
                                 " tasks and could run " + std::to_string(theirs) + " with the part of " +
                                 other.path};
      }
    }
  }
  return std::nullopt;
}

namespace {

struct Demand {
  std::string path;
  int64_t jobs = 0;
};

// A tree of two levels with anything in it; premises: exact shares (no share_unit: largest remainders are not
// monotonic, which is Alabama's paradox), and no past use.
Policy any_tree(Random& random, std::vector<Demand>& demands) {
  Policy policy;
  policy.usage_half_life = Duration(0);
  policy.minimum_runtime = kHour;
  const auto add = [&](const std::string& path) {
    QueuePolicy queue;
    queue.path = path;
    queue.weight = random.between(0, 4);
    if (random.chance(1, 3)) queue.quota = MilliGpu(random.between(0, 4) * 1000);
    if (random.chance(1, 5)) queue.limit = MilliGpu(random.between(1, 8) * 1000);
    queue.priority = static_cast<int32_t>(random.below(2));
    policy.queues.push_back(queue);
  };
  for (char top = 'a'; top <= 'c'; ++top) {
    const std::string path(1, top);
    add(path);
    for (char leaf = 'x'; leaf <= 'z'; ++leaf) {
      if (random.chance(1, 3)) continue;
      add(path + "/" + leaf);
      demands.push_back({path + "/" + leaf, random.between(0, 6)});
    }
  }
  return policy;
}

using Fair = std::map<std::string, int64_t>;

Fair fair_shares(const Policy& policy, const std::vector<Demand>& demands, uint32_t gpus) {
  SettledWorld world(policy);
  world.add_node(gpus);
  for (const Demand& demand : demands) {
    for (int64_t i = 0; i < demand.jobs; ++i) world.submits(task_of({1, 1000, demand.path}));
  }
  Fair fair;
  for (const QueueShare& share : world.scheduler.shares()) fair[share.path] = share.fair_share.count();
  return fair;
}

std::optional<Finding> none_is_lower(const Fair& before, const Fair& after, const std::string& gone,
                                     const std::string& what, Counts& counts) {
  for (const auto& [path, share] : before) {
    if (path == gone || path.starts_with(gone + "/") || !after.contains(path)) continue;
    // What holds those that are gone has less to hold.
    if (!gone.empty() && gone.starts_with(path + "/")) continue;
    counts.add("P11: shares");
    // A milli-GPU of rounding at each of the two levels.
    if (after.at(path) < share - 2) {
      return Finding{"P11", what + " takes the share of " + path + " from " + std::to_string(share) + " to " +
                                std::to_string(after.at(path))};
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<Finding> shares_are_monotonic(Played& played, Counts& counts) {
  counts.add("histories");
  Random random(played.seed);
  std::vector<Demand> demands;
  const Policy policy = any_tree(random, demands);
  if (demands.empty()) return std::nullopt;
  const auto gpus = static_cast<uint32_t>(random.between(1, 12));
  const Fair before = fair_shares(policy, demands, gpus);
  if (auto finding =
          none_is_lower(before, fair_shares(policy, demands, gpus + 1), "", "one GPU more", counts))
    return finding;
  Demand& gone = demands[random.below(demands.size())];
  gone.jobs = 0;
  return none_is_lower(before, fair_shares(policy, demands, gpus), gone.path, "that " + gone.path + " goes",
                       counts);
}

namespace {

// Queues that the policy does not name have a weight of 1, so all that the history uses are named first.
EventPayload with_weights_times(EventPayload payload, int64_t factor) {
  auto* changed = std::get_if<PolicyChanged>(&payload);
  if (changed == nullptr) return payload;
  auto& queues = changed->policy.queues;
  for (const char* path : {"bio", "default", "physics", "physics/theory", "physics/vision"}) {
    const bool is_there = std::any_of(queues.begin(), queues.end(),
                                      [&](const QueuePolicy& queue) { return queue.path == path; });
    if (is_there) continue;
    QueuePolicy queue;
    queue.path = path;
    queues.push_back(queue);
  }
  std::sort(queues.begin(), queues.end(),
            [](const QueuePolicy& a, const QueuePolicy& b) { return a.path < b.path; });
  for (QueuePolicy& queue : queues) queue.weight *= factor;
  return payload;
}

// Two queues of half the weight and half the jobs each, or one: what they hold together.
int64_t held_together(uint64_t seed, bool split) {
  Random random(seed);
  auto queues = some_queues(random, {1000}, true);
  queues[0].weight = 2;
  auto parts = queues;
  if (split) {
    parts[0].weight = 1;
    parts.push_back({1, queues[0].size, "split"});
  }
  SettledWorld world(policy_of(parts));
  const int64_t gpus = add_nodes(random, world);
  const Time begin = kStart + kHour;
  for (size_t i = 0; i < queues.size(); ++i) {
    for (int64_t job = 0; job < 2 * gpus; ++job) {
      const bool other = split && i == 0 && job % 2 == 1;
      world.submits(task_of(other ? parts.back() : parts[i], begin));
    }
  }
  world.happens(Tick{}, begin - world.now());
  return held_by(world, parts[0]) + (split ? held_by(world, parts.back()) : 0);
}

}  // namespace

std::optional<Finding> weights_scale(Played& played, Counts& counts) {
  counts.add("histories");
  const int64_t whole = held_together(played.seed, false);
  const int64_t halves = held_together(played.seed, true);
  if (std::abs(whole - halves) > 1000) {
    return Finding{"P14",
                   "a queue holds " + std::to_string(whole) + " and its halves " + std::to_string(halves)};
  }
  HistoryRules rules;
  rules.events = 120;
  History history(played.seed, rules);
  history.drop(played.dropped);
  Scheduler scheduler, scaled;
  history.accepts = [&](const JobSpec& spec, const ArraySpec& array) {
    return scheduler.check(spec, array).has_value();
  };
  std::vector<Decision> decisions;
  const auto differs = [&](const Event& event) {
    decisions = scheduler.step({event.seq, event.time, with_weights_times(event.payload, 1)});
    return scaled.step({event.seq, event.time, with_weights_times(event.payload, 3)}) != decisions;
  };
  for (EventPayload& payload : history.opening()) {
    if (differs(history.opening_event(std::move(payload))))
      return Finding{"P14", "the opening is decided otherwise"};
  }
  for (int i = 0; i < rules.events; ++i) {
    const Event event = history.next(decisions);
    played.inputs = history.inputs();
    if (differs(event)) {
      return Finding{"P14", "event " + std::to_string(event.seq.value()) +
                                " is decided otherwise with all weights three times as large"};
    }
    counts.add("P14: events decided alike");
  }
  return std::nullopt;
}

// Past use is laid down first; then nothing runs and nothing may, and time passes. Premise: fewer half-lives
// than the bits that past use is kept with (after a hundred it is forgotten, and arrival decides).
std::optional<Finding> order_does_not_decay(Played& played, Counts& counts) {
  counts.add("histories");
  Random random(played.seed);
  const auto queues = some_queues(random, {1000}, true);
  Policy policy = policy_of(queues);
  policy.usage_half_life = Duration(random.between(1, 48) * kHour.count());
  SettledWorld world(policy);
  const int64_t gpus = add_nodes(random, world);
  for (int64_t i = 0; i < gpus * 2; ++i) {
    const JobId job = world.submits(task_of(queues[random.below(queues.size())]));
    if (!world.started(job)) continue;
    world.happens(Tick{}, Duration(random.between(1, 100) * kMinute.count()));
    if (world.started(job)) world.ends(job);
  }
  for (const JobId job : world.scheduler.live_jobs()) world.happens(JobCancelled{job, "root"});
  for (int64_t gpu = 1; gpu <= gpus; ++gpu)
    world.happens(GpuDrained{GpuId(static_cast<uint32_t>(gpu)), "root", "cleaning"});
  for (int64_t i = 0; i < 12; ++i) world.submits(task_of(queues[random.below(queues.size())]));
  // The order is looked at 512 times in a half-life, so it is that of the first look.
  world.happens(Tick{}, policy.usage_half_life);
  const auto order = world.scheduler.waiting_order();
  for (const int64_t quarters : {1, 4, 16, 32}) {
    world.happens(Tick{}, Duration(policy.usage_half_life.count() / 4 * quarters));
    counts.add("P15: orders compared");
    if (world.scheduler.waiting_order() != order)
      return Finding{"P15", "the order changes though nobody uses anything, within " +
                                std::to_string(quarters / 4) + " half-lives"};
  }
  return std::nullopt;
}

}  // namespace tranche::scheduler::test
