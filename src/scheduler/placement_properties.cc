// P7, P9, P12 and P21: who finds room, and who waits for it how long. Room is counted here from what runs.
#include <algorithm>
#include <numeric>
#include <utility>

#include "scheduler/history.h"
#include "scheduler/ledger.h"
#include "scheduler/property.h"
#include "scheduler/settled_world.h"
#include "scheduler/tell.h"

namespace tranche::scheduler::test {
namespace {

// Free whole GPUs by node, of worlds whose nodes have `sizes` GPUs.
std::vector<int64_t> free_gpus(const SettledWorld& world, const std::vector<uint32_t>& sizes) {
  std::vector<int64_t> room(sizes.begin(), sizes.end());
  for (const JobId job : world.scheduler.live_jobs()) {
    for (const Start& start : world.view(job).tasks)
      room[start.node.value() - 1] -= static_cast<int64_t>(start.slices.size());
  }
  return room;
}

// A job of some whole GPUs on one machine, or a gang of tasks of one each.
JobSpec whole_job(Random& random) {
  Request request;
  request.user = std::string(1, static_cast<char>('a' + random.below(3)));
  request.queue = random.chance(1, 2) ? "default" : "lab";
  request.cpu = 1;
  request.priority = static_cast<int32_t>(random.below(3));
  if (random.chance(1, 3)) {
    request.tasks_min = static_cast<uint32_t>(random.between(1, 6));
  } else {
    request.gpus = static_cast<uint32_t>(random.between(1, 4));
  }
  return spec_of(request);
}

bool has_place(const JobSpec& spec, const std::vector<int64_t>& room) {
  if (spec.tasks_min > 1)
    return std::accumulate(room.begin(), room.end(), int64_t{0}) >= int64_t{spec.tasks_min};
  return std::any_of(room.begin(), room.end(),
                     [&](int64_t gpus) { return gpus >= int64_t{spec.task.gpu.count}; });
}

}  // namespace

// Premises: no bounds of queues, whole GPUs of one type, processors in plenty, and nothing is promised to
// anybody (a reservation keeps room free on purpose: those jobs are counted). At rest.
std::optional<Finding> nobody_can_grow(Played& played, Counts& counts) {
  counts.add("histories");
  Random random(played.seed);
  Policy policy;
  policy.queues.resize(2);
  policy.queues[0].path = "default";
  policy.queues[1].path = "lab";
  policy.queues[1].weight = random.between(0, 4);
  policy.minimum_runtime = Duration(random.between(0, 1) * kHour.count());
  policy.no_head_reservation = random.chance(1, 2);
  SettledWorld world(policy);
  std::vector<uint32_t> sizes(static_cast<size_t>(random.between(1, 3)));
  for (uint32_t& size : sizes) world.add_node(size = static_cast<uint32_t>(random.between(1, 4)));
  for (int i = 0; i < 40; ++i) {
    const auto running = world.running();
    const JobSpec spec = whole_job(random);
    if (!running.empty() && random.chance(2, 5)) {
      world.ends(running[random.below(running.size())]);
    } else if (world.scheduler.check(spec, {})) {
      world.submits(spec);
    }
    const auto room = free_gpus(world, sizes);
    for (const JobId job : world.scheduler.waiting_order()) {
      const bool fits = has_place(*world.view(job).spec, room);
      if (fits && world.scheduler.proof(job)->kind == ProofKind::reserved && !policy.no_head_reservation) {
        counts.add("exempt: P7: jobs kept out by a reservation");
        continue;
      }
      counts.add("P7: jobs that wait at rest");
      if (fits) return Finding{"P7", "job " + std::to_string(job.value()) + " could run beside all others"};
    }
  }
  return std::nullopt;
}

namespace {

JobSpec any_job(Random& random) {
  Request request;
  request.user = std::string(1, static_cast<char>('a' + random.below(2)));
  request.cpu = random.between(1, 8) * 1000;
  request.memory = random.between(0, 16) * 1000;
  request.gpus = static_cast<uint32_t>(random.between(0, 4));
  if (request.gpus > 0 && random.chance(1, 2)) {
    request.gpus = 1;
    request.milli = random.between(1, 9) * 100;
  }
  if (random.chance(1, 4)) request.type = random.chance(1, 2) ? "t4" : "h100-80";
  if (random.chance(1, 3)) request.tasks_min = static_cast<uint32_t>(random.between(2, 4));
  JobSpec spec = spec_of(request);
  if (random.chance(1, 4)) spec.topology.required = "rack";
  if (random.chance(1, 4)) spec.topology.preferred = "rack";
  return spec;
}

std::vector<EventPayload> node_of(Random& random, uint32_t number, uint32_t first_gpu) {
  std::vector<EventPayload> events;
  Node node;
  node.id = NodeId(number);
  node.name = "n" + std::to_string(number);
  node.cpu = MilliCpu(16'000);
  node.memory = MiB(64'000);
  if (!random.chance(1, 5)) node.labels = {{"rack", "r" + std::to_string(random.below(2))}};
  events.push_back(NodeAdded{node});
  const bool is_small = random.chance(1, 3);
  const auto count = static_cast<uint32_t>(random.between(1, 4));
  for (uint32_t i = 0; i < count; ++i) {
    Gpu gpu;
    gpu.id = GpuId(first_gpu + i);
    gpu.node = node.id;
    gpu.index = i;
    gpu.type = is_small ? "t4" : "h100-80";
    gpu.memory_usable = MiB(is_small ? 15'000 : 80'000);
    events.push_back(GpuAdded{gpu});
  }
  return events;
}

}  // namespace

// Premise: nobody waits at that instant (who waits may take the new room and old room with it).
std::optional<Finding> nodes_only_help(Played& played, Counts& counts) {
  counts.add("histories");
  Random random(played.seed);
  Policy policy;
  policy.topology_levels = {"rack"};
  if (random.chance(1, 3)) policy.placement = PlacementStrategy::spread;
  if (random.chance(1, 3)) policy.gpu_placement = PlacementStrategy::spread;
  SettledWorld world(policy);
  const int64_t nodes = random.between(1, 5);
  for (uint32_t n = 1; n <= static_cast<uint32_t>(nodes); ++n) {
    for (EventPayload& event : node_of(random, n, n * 8)) world.happens(std::move(event));
  }
  for (int i = 0; i < 30; ++i) {
    const JobSpec spec = any_job(random);
    if (!world.scheduler.check(spec, {})) continue;
    // The same state with one node more.
    Scheduler other = std::move(*Scheduler::load(world.scheduler.save()));
    uint64_t seq = world.log.back().first.seq.value();
    Time time = world.now();
    const auto steps = [&](EventPayload event) {
      time = time + kNanosecond;
      return other.step(Event{EventSeq(++seq), time, std::move(event)});
    };
    for (EventPayload& event : node_of(random, 100, 1000)) steps(std::move(event));
    if (!other.check(spec, {})) return Finding{"P12", "one empty node more, and a job is refused"};
    const JobId job = world.submits(spec);
    steps(JobSubmitted{job, spec, {}});
    const bool started = world.started(job);
    counts.add(started ? "P12: jobs placed" : "exempt: P12: jobs that find no room without the node either");
    if (started && other.job(job)->tasks.empty())
      return Finding{"P12", "one empty node more, and job " + std::to_string(job.value()) + " finds no room"};
    if (!started) world.happens(JobCancelled{job, "root"});
    const auto running = world.running();
    if (!running.empty() && random.chance(1, 3)) world.ends(running[random.below(running.size())]);
  }
  return std::nullopt;
}

namespace {

// Hundredths of a percent of all GPUs that are allocated when `per_mille` of them has been asked for. Who
// finds no room is gone.
int64_t allocated(uint64_t seed, uint32_t times, int64_t per_mille) {
  Random random(seed);
  SettledWorld world;
  const uint32_t nodes = 10;
  for (uint32_t i = 0; i < nodes * times; ++i) world.add_node(8, "h100-80", 80'000, 96'000);
  const int64_t all = int64_t{nodes} * times * 8000;
  int64_t asked = 0;
  int64_t held = 0;
  while (asked < all * per_mille / 1000) {
    Request request;
    request.user = "u";
    request.cpu = random.between(1, 8) * 1000;
    const uint64_t draw = random.below(100);
    if (draw < 45) {
      request.milli = random.between(1, 9) * 100;
    } else {
      request.gpus = draw < 75 ? 1 : draw < 90 ? 2 : draw < 97 ? 4 : 8;
    }
    const int64_t each = request.milli > 0 ? request.milli : int64_t{request.gpus} * 1000;
    for (uint32_t i = 0; i < times; ++i) {
      asked += each;
      const JobId job = world.submits(spec_of(request));
      if (world.started(job)) {
        held += each;
      } else {
        world.happens(JobCancelled{job, "root"});
      }
    }
  }
  return held * 10'000 / all;
}

}  // namespace

// Noise: a cluster of ten machines is filled within a few points of one of twenty.
std::optional<Finding> twice_is_twice(Played& played, Counts& counts) {
  counts.add("histories");
  const int64_t once = allocated(played.seed, 1, 1200);
  const int64_t twice = allocated(played.seed, 2, 1200);
  counts.add("P21: hundredths of a percent allocated, sum", static_cast<uint64_t>(once));
  counts.add("P21: the same, of twice of all", static_cast<uint64_t>(twice));
  if (std::abs(once - twice) <= 300) return std::nullopt;
  return Finding{"P21", "allocated are " + std::to_string(once) + " and of twice of all " +
                            std::to_string(twice) + " hundredths of a percent"};
}

// Premises: one queue and equal priorities, no bounds, nothing fails or is held, processors and memory in
// plenty. The bound of a job: all that came before it run one after the other to their limits, each as often
// as it has started, and before the first of them and the job itself whatever ran.
//
// Across priorities of jobs or queues it does not hold: a job that has come furthest and fits is not promised
// anything, and whoever is higher in the order takes the room at that moment, again and again
// (CounterExamples. AStreamOfAHigherQueueStarvesTheLower).
std::optional<Finding> nobody_starves(Played& played, Counts& counts) {
  counts.add("histories");
  HistoryRules rules;
  rules.events = 500;
  rules.faults = rules.cancels = rules.policy_changes = rules.dependencies = rules.not_preemptible = false;
  rules.quotas = rules.limits = rules.arrays = rules.structure = rules.host_resources = false;
  rules.one_user = true;
  rules.priorities = false;
  rules.mean_arrival_seconds = played.seed % 2 == 0 ? 60 : 300;
  History history(played.seed, rules);
  history.drop(played.dropped);
  Scheduler scheduler;
  Ledger ledger;
  history.accepts = [&](const JobSpec& spec, const ArraySpec& array) {
    return scheduler.check(spec, array).has_value();
  };
  struct Waiting {
    Time submitted;
    int64_t aged = 0;
    uint32_t starts = 0;
    int64_t longest = 0;  // of one run, with all that its end may take
    Time ended;
  };
  std::map<JobId, Waiting> jobs;
  int64_t longest = 0;
  std::vector<Decision> decisions;
  const auto bound_of = [&](JobId id) {
    const Waiting& own = jobs.at(id);
    int64_t bound = 2 * longest;
    for (const auto& [other, job] : jobs) {
      const bool had_gone = job.ended.is_set() && job.ended < own.submitted;
      if (other == id || had_gone || std::pair(job.aged, other) > std::pair(own.aged, id)) continue;
      bound += job.longest * std::max<uint32_t>(job.starts, 1);
    }
    return own.submitted + Duration(bound);
  };
  const auto take = [&](const Event& event) {
    decisions = scheduler.step(event);
    ledger.row(event, decisions);
    tell(event, decisions);
    if (const auto* submitted = std::get_if<JobSubmitted>(&event.payload)) {
      const JobSpec& spec = submitted->spec;
      const int64_t run = (spec.time_limit + spec.grace + 4 * kSecond).count();
      longest = std::max(longest, run);
      jobs[submitted->job] = {event.time, event.time.nanoseconds() - spec.priority * kHour.count(), 0, run,
                              Time()};
    }
    std::set<JobId> started;
    for (const Decision& decision : decisions) {
      if (const auto* start = std::get_if<Start>(&decision)) started.insert(start->task.job);
      if (const auto* end = std::get_if<End>(&decision)) jobs.at(end->job).ended = event.time;
    }
    for (const JobId job : started) ++jobs.at(job).starts;
  };
  for (EventPayload& payload : history.opening()) take(history.opening_event(std::move(payload)));
  for (int i = 0; i < rules.events; ++i) {
    take(history.next(decisions));
    played.inputs = history.inputs();
    for (const auto& [id, job] : jobs) {
      if (job.starts > 0) continue;
      if (ledger.now <= bound_of(id)) continue;
      return Finding{"P9", "job " + std::to_string(id.value()) + " waits for " +
                               std::to_string((ledger.now - job.submitted).count() / kMinute.count()) +
                               " minutes, and its bound is " +
                               std::to_string((bound_of(id) - job.submitted).count() / kMinute.count())};
    }
  }
  for (const auto& [id, job] : jobs)
    counts.add(job.starts > 0 ? "P9: jobs started" : "P9: jobs that wait within their bound");
  return std::nullopt;
}

}  // namespace tranche::scheduler::test
