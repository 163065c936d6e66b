// bench-scheduler-scale: how fast the pure scheduler decides on large clusters, on one core.
//
//   bench-scheduler-scale mixed NODES PENDING ROUNDS CLAIMS   a mixed load in steady state, nodes of 8 GPUs;
//   then
//                                                      one department claims its quota from the others
//   bench-scheduler-scale fixtures NODES...            the fixtures F1 to F4 of large clusters
//   bench-scheduler-scale --quick                      a small one of each
//
// What is timed is Scheduler::step alone, nothing around it, in processor time of its one thread. A decision
// is an emitted Start. Every step that a job costs counts (its submission, its start, its exits, its
// releases), so the rate is starts over the time of all steps; the spans are those of the steps in which
// something was started.
#include <cstdio>
#include <cstring>
#include <ctime>
#include <string>
#include <vector>

#include "base/random.h"
#include "measure.h"
#include "scheduler/scheduler.h"

namespace tranche::bench {
namespace {

// Time of the processor, not of the wall: what else runs on the machine does not count. Asking for it costs
// about as much as the shortest steps, so the rates are rather too low than too high.
int64_t processor_ns() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

constexpr uint32_t kGpusPerNode = 8;
constexpr uint32_t kDepartments = 20;
constexpr uint32_t kUsersPerDepartment = 50;

class Cluster {
 public:
  explicit Cluster(Policy policy) { step(PolicyChanged{std::move(policy)}); }

  void add_nodes(uint32_t nodes) {
    for (uint32_t n = 1; n <= nodes; ++n) {
      step(NodeAdded{Node{.id = NodeId(n),
                          .name = "n" + std::to_string(n),
                          .pool = "",
                          .cpu = MilliCpu(128'000),
                          .memory = MiB(2'000'000),
                          .labels = {}}});
      for (uint32_t g = 0; g < kGpusPerNode; ++g) {
        Gpu gpu;
        gpu.id = GpuId((n - 1) * kGpusPerNode + g + 1);
        gpu.node = NodeId(n);
        gpu.index = g;
        gpu.type = n % 4 == 0 && two_types ? "a100-80" : "h100-80";
        gpu.memory_usable = MiB(80'000);
        step(GpuAdded{gpu});
      }
    }
  }

  JobId submit(const JobSpec& spec) {
    const JobId job(++last_job_);
    step(JobSubmitted{job, spec, {}});
    return job;
  }
  // As a restart does: the job waits, and nothing is decided.
  JobId restore_pending(const JobSpec& spec) {
    const JobId job(++last_job_);
    scheduler.restore(next_event(JobSubmitted{job, spec, {}}), {});
    return job;
  }
  // A running job where the caller says, one task of whole GPUs.
  void restore_running(const JobSpec& spec, uint32_t node, const std::vector<uint32_t>& gpus) {
    const JobId job(++last_job_);
    Start start{{job, 0, 1}, NodeId(node), {}};
    for (const uint32_t gpu : gpus)
      start.slices.push_back({GpuId(gpu), SliceKind::whole, kWholeGpu, MiB(80'000)});
    const std::vector<Decision> decisions{start};
    scheduler.restore(next_event(JobSubmitted{job, spec, {}}), decisions);
    scheduler.restore(next_event(TaskStarted{start.task}), {});
  }

  void pass_time(Duration duration) { now_ = now_ + duration; }

  // What was told to stop is gone, and what starts for it has started, until nothing follows any more.
  void let_go() {
    while (!told_to_stop.empty()) {
      for (const Stop& stop : std::exchange(told_to_stop, {})) {
        const auto view = scheduler.job(stop.task.job);
        if (!view || stop.task.rank >= view->tasks.size()) continue;
        const Start held = view->tasks[stop.task.rank];
        step(TaskExited{held.task, ExitCause::signalled, 15, 0});
        for (const Slice& slice : held.slices) step(SliceReleased{held.task, slice.gpu});
      }
      for (const Start& start : std::exchange(prepared, {})) step(TaskStarted{start.task});
    }
  }

  const std::vector<Decision>& step(EventPayload payload) {
    const Event event = next_event(std::move(payload));
    const int64_t began = processor_ns();
    last = scheduler.step(event);
    const int64_t took = processor_ns() - began;
    total_ns += took;
    ++steps;
    size_t started = 0;
    size_t stopped = 0;
    for (const Decision& decision : last) {
      started += std::holds_alternative<Start>(decision) ? 1u : 0u;
      stopped += std::holds_alternative<Stop>(decision) ? 1u : 0u;
      if (const auto* start = std::get_if<Start>(&decision)) prepared.push_back(*start);
      if (const auto* stop = std::get_if<Stop>(&decision)) told_to_stop.push_back(*stop);
    }
    starts += started;
    stops += stopped;
    if (started > 0) grant_spans.add(took);
    if (stopped > 0) reclaim_spans.add(took);
    all_spans.add(took);
    return last;
  }

  void forget_measures() {
    grant_spans = all_spans = reclaim_spans = {};
    total_ns = 0;
    starts = stops = steps = 0;
  }

  scheduler::Scheduler scheduler;
  std::vector<Decision> last;
  std::vector<Start> prepared;
  std::vector<Stop> told_to_stop;
  Samples grant_spans;
  Samples reclaim_spans;
  Samples all_spans;
  int64_t total_ns = 0;
  size_t starts = 0;
  size_t stops = 0;
  size_t steps = 0;
  bool two_types = true;

 private:
  Event next_event(EventPayload payload) {
    now_ = now_ + kMillisecond;
    return {EventSeq(++last_event_), now_, std::move(payload)};
  }

  Time now_{1'700'000'000'000'000'000};
  uint64_t last_event_ = 0;
  uint64_t last_job_ = 0;
};

// --- the mixed load -------------------------------------------------------------------------------------
// 20 departments with quotas over seven tenths of the cluster, 50 users each, and one with a quota of a tenth
// that asks for nothing at first. Of the jobs 45 % ask for one
// GPU, 20 % for a fraction, 15 % for 2 or 4 on one node, 15 % are gangs of 2 to 4 tasks of 1, 2 or 4 GPUs, 5
// % ask for a whole node; a quarter names a GPU type.
Policy mixed_policy(uint32_t nodes) {
  Policy policy;
  const int64_t all = int64_t{nodes} * kGpusPerNode * 1000;
  const int64_t each = all * 7 / 10 / kDepartments;
  policy.queues.push_back({.path = "late",
                           .quota = MilliGpu(all / 10),
                           .limit = {},
                           .weight = 1,
                           .priority = 0,
                           .user_limit = {}});
  for (uint32_t d = 0; d < kDepartments; ++d) {
    std::string path = "d";
    path += static_cast<char>('0' + d / 10);
    path += static_cast<char>('0' + d % 10);
    policy.queues.push_back({.path = path,
                             .quota = MilliGpu(each),
                             .limit = {},
                             .weight = 1 + d % 3,
                             .priority = 0,
                             .user_limit = {}});
  }
  policy.users_share_gpu = true;
  policy.jobs_per_user_max = 1'000'000;
  return policy;
}

JobSpec mixed_job(Random& random) {
  JobSpec spec;
  const auto department = static_cast<uint32_t>(random.below(kDepartments));
  const auto user = static_cast<uint32_t>(random.below(kUsersPerDepartment));
  spec.owner = {1000 + department * kUsersPerDepartment + user, 100, "user" + std::to_string(user)};
  spec.queue = "d";
  spec.queue += static_cast<char>('0' + department / 10);
  spec.queue += static_cast<char>('0' + department % 10);
  spec.queue += "/" + spec.owner.user;
  spec.task.gpu.count = 1;
  const uint64_t draw = random.below(100);
  if (draw < 20) {
    spec.task.gpu.kind = SliceKind::fraction;
    spec.task.gpu.compute = MilliGpu(100 * static_cast<int64_t>(1 + random.below(8)));
  } else if (draw < 35) {
    spec.task.gpu.count = random.chance(1, 2) ? 2 : 4;
  } else if (draw < 50) {
    spec.task.gpu.count = 1u << random.below(3);
    spec.tasks_min = spec.tasks_max = static_cast<uint32_t>(2 + random.below(3));
  } else if (draw < 55) {
    spec.task.gpu.count = kGpusPerNode;
  }
  if (random.chance(1, 4)) spec.task.gpu.type = random.chance(3, 4) ? "h100-80" : "a100-80";
  spec.task.cpu = MilliCpu(int64_t{spec.task.gpu.count} * (random.chance(1, 2) ? 4'000 : 8'000));
  static constexpr int64_t kHours[] = {1, 4, 12, 24, 48};
  spec.time_limit = Duration(kHours[random.below(5)] * kHour.count());
  spec.grace = 30 * kSecond.count() * kNanosecond;
  return spec;
}

// The department that has been idle claims, job by job, while everybody else waits as before. Work that is
// younger than the minimum runtime is left alone, so time passes first.
void claim_quota(Cluster& cluster, Random& random, size_t jobs) {
  cluster.told_to_stop.clear();
  cluster.pass_time(Duration(kHour.count() / 4));
  cluster.step(Tick{});
  cluster.let_go();
  cluster.forget_measures();
  for (size_t i = 0; i < jobs; ++i) {
    JobSpec spec = mixed_job(random);
    spec.owner = {5000 + static_cast<uint32_t>(i % kUsersPerDepartment), 100, "late"};
    spec.queue = "late/user" + std::to_string(i % kUsersPerDepartment);
    cluster.submit(spec);
    cluster.let_go();
  }
  std::printf("a department claims its quota with %zu jobs: %zu tasks started, %zu stopped for them\n", jobs,
              cluster.starts, cluster.stops);
  print_spans("steps that take from others", cluster.reclaim_spans);
}

void run_mixed(uint32_t nodes, size_t pending, size_t rounds, size_t claims) {
  Random random(7);
  Cluster cluster(mixed_policy(nodes));
  cluster.add_nodes(nodes);
  // Fill the cluster by deciding, then queue up the rest.
  std::vector<Start> running;
  cluster.forget_measures();
  size_t filling = 0;
  for (size_t idle_submissions = 0; idle_submissions < 400; ++filling) {
    cluster.submit(mixed_job(random));
    idle_submissions = cluster.prepared.empty() ? idle_submissions + 1 : 0;
    for (const Start& start : cluster.prepared) running.push_back(start);
    cluster.prepared.clear();
  }
  const double fill_rate = static_cast<double>(cluster.starts) * 1e9 / static_cast<double>(cluster.total_ns);
  std::printf("nodes %u, GPUs %u: %zu tasks run after %zu submissions (%.0f starts a second while filling)\n",
              nodes, nodes * kGpusPerNode, running.size(), filling, fill_rate);
  for (const Start& start : running) cluster.step(TaskStarted{start.task});
  while (cluster.scheduler.live_jobs().size() < pending + running.size() / 2) {
    for (int i = 0; i < 1000; ++i) cluster.restore_pending(mixed_job(random));
  }
  const size_t live = cluster.scheduler.live_jobs().size();
  cluster.submit(mixed_job(random));
  cluster.forget_measures();
  for (size_t i = 0; i < rounds && !running.empty(); ++i) {
    const size_t which = random.below(running.size());
    const Start ended = running[which];
    running[which] = running.back();
    running.pop_back();
    cluster.step(TaskExited{ended.task, ExitCause::exited, 0, 0});
    for (const Slice& slice : ended.slices) cluster.step(SliceReleased{ended.task, slice.gpu});
    for (const Start& start : std::exchange(cluster.prepared, {})) {
      cluster.step(TaskStarted{start.task});
      running.push_back(start);
    }
    cluster.submit(mixed_job(random));
  }
  std::printf("live jobs %zu, rounds %zu, steps %zu, starts %zu\n", live, rounds, cluster.steps,
              cluster.starts);
  print_rate("starts (of the time of all steps)", cluster.starts, cluster.total_ns);
  print_rate("steps", cluster.steps, cluster.total_ns);
  print_spans("steps that start something", cluster.grant_spans);
  print_spans("all steps", cluster.all_spans);
  const auto size = cluster.scheduler.size();
  std::printf("bytes a live job %zu, bytes a node %zu\n", size.jobs_bytes / std::max<size_t>(live, 1),
              size.nodes_bytes / std::max<size_t>(nodes, 1));
  if (claims > 0) claim_quota(cluster, random, claims);
}
// --- the fixtures -----------------------------------------------------------------------------------------
Policy two_queues(int64_t first_milli, int64_t second_milli) {
  Policy policy;
  policy.queues = {{.path = "q0",
                    .quota = MilliGpu(first_milli),
                    .limit = {},
                    .weight = 0,
                    .priority = 0,
                    .user_limit = {}},
                   {.path = "q1",
                    .quota = MilliGpu(second_milli),
                    .limit = {},
                    .weight = 0,
                    .priority = 0,
                    .user_limit = {}}};
  policy.minimum_runtime = Duration();
  policy.usage_half_life = Duration();
  return policy;
}

JobSpec plain(const std::string& queue, uint32_t gpus, uint32_t tasks) {
  JobSpec spec;
  spec.owner = {2000, 100, "u"};
  spec.queue = queue + "/u";
  spec.task.gpu.count = gpus;
  spec.task.cpu = MilliCpu(1000);
  spec.tasks_min = spec.tasks_max = tasks;
  spec.time_limit = kDay;
  return spec;
}

void fill(Cluster& cluster, uint32_t nodes, const std::string& queue) {
  for (uint32_t i = 0; i < nodes * kGpusPerNode; ++i) {
    const uint32_t node = i % nodes;
    cluster.restore_running(plain(queue, 1, 1), node + 1, {node * kGpusPerNode + i / nodes + 1});
  }
}

void report(const char* name, uint32_t nodes, const Cluster& cluster, int64_t took) {
  std::printf("%s %6u nodes: %10.3f ms, %zu started, %zu stopped\n", name, nodes,
              static_cast<double>(took) / 1e6, cluster.starts, cluster.stops);
}

void run_fixtures(uint32_t nodes) {
  const int64_t gpus = int64_t{nodes} * kGpusPerNode;
  {
    Cluster cluster(two_queues(0, gpus * 1000));
    cluster.two_types = false;
    cluster.add_nodes(nodes);
    fill(cluster, nodes, "q0");
    cluster.forget_measures();
    cluster.submit(plain("q1", kGpusPerNode, nodes / 2));
    report("F1 reclaim for one large job ", nodes, cluster, cluster.total_ns);
  }
  {
    Cluster cluster(two_queues((gpus - 80 + 1) * 1000, 80'000));
    cluster.two_types = false;
    cluster.add_nodes(nodes);
    fill(cluster, nodes, "q0");
    cluster.forget_measures();
    cluster.submit(plain("q1", kGpusPerNode, 10));
    report("F2 a large job that cannot   ", nodes, cluster, cluster.total_ns);
  }
  {
    Cluster cluster(two_queues(0, gpus * 1000));
    cluster.two_types = false;
    cluster.add_nodes(nodes);
    fill(cluster, nodes, "q0");
    for (int64_t i = 0; i < gpus; ++i) cluster.restore_pending(plain("q1", 1, 1));
    cluster.forget_measures();
    cluster.step(Tick{});
    report("F3 as many small as run      ", nodes, cluster, cluster.total_ns);
  }
  {
    Policy policy;
    for (const char* path : {"d0", "d0/q0", "d0/q1", "d1", "d1/q2", "d1/q3"}) {
      const bool leaf = std::strlen(path) > 2;
      policy.queues.push_back({.path = path,
                               .quota = leaf ? std::optional(MilliGpu(gpus * 250)) : std::nullopt,
                               .limit = {},
                               .weight = 1,
                               .priority = 0,
                               .user_limit = {}});
    }
    policy.minimum_runtime = Duration();
    Cluster cluster(std::move(policy));
    cluster.two_types = false;
    cluster.add_nodes(nodes);
    static const char* const kLeaves[] = {"d0/q0", "d0/q1", "d1/q2", "d1/q3"};
    for (uint32_t i = 0; i < gpus; ++i) {
      const uint32_t node = i % nodes;
      const JobSpec spec = plain(kLeaves[i % 4], 1, 1);
      if (i % 2 == 0) {
        cluster.restore_running(spec, node + 1, {node * kGpusPerNode + i / nodes + 1});
      } else {
        cluster.restore_pending(spec);
      }
    }
    cluster.forget_measures();
    cluster.step(Tick{});
    report("F4 half runs, half waits     ", nodes, cluster, cluster.total_ns);
  }
}

}  // namespace
}  // namespace tranche::bench

int main(int count, char** words) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  if (count > 1 && std::strcmp(words[1], "--quick") == 0) {
    tranche::bench::run_mixed(50, 1000, 300, 30);
    tranche::bench::run_fixtures(20);
    return 0;
  }
  const auto number = [&](int at, uint32_t otherwise) {
    return count > at ? static_cast<uint32_t>(std::strtoul(words[at], nullptr, 10)) : otherwise;
  };
  if (count > 1 && std::strcmp(words[1], "mixed") == 0) {
    tranche::bench::run_mixed(std::max(number(2, 10'000), 1u), number(3, 100'000), number(4, 20'000),
                              number(5, 200));
    return 0;
  }
  if (count > 2 && std::strcmp(words[1], "fixtures") == 0) {
    for (int i = 2; i < count; ++i) tranche::bench::run_fixtures(std::max(number(i, 100), 20u));
    return 0;
  }
  std::fputs(
      "usage: bench-scheduler-scale mixed [NODES [PENDING [ROUNDS [CLAIMS]]]] | fixtures NODES... | "
      "--quick\n",
      stderr);
  return 2;
}
