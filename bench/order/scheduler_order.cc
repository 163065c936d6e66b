#include "order/scheduler_order.h"

#include <algorithm>

namespace tranche::bench {

SchedulerOrderFigures run_scheduler_order(const std::vector<replay::SwfJob>& jobs, int64_t processors,
                                          const Policy& base) {
  constexpr Time kBegin{1'000'000'000'000'000'000};
  constexpr Duration kLongest{365 * kDay.count()};
  Policy policy = base;
  policy.jobs_per_user_max = UINT32_MAX;
  for (ClassPolicy& job_class : policy.classes) job_class.time_limit_max = kLongest;
  // The log's limits did not end its jobs.
  replay::SimulationSettings settings;
  settings.limits_end_jobs = false;
  replay::Simulation simulation(settings);
  simulation.add(kBegin, PolicyChanged{policy});
  Node node;
  node.id = NodeId(1);
  node.name = "n1";
  node.cpu = MilliCpu(processors * 1000);
  node.memory = MiB(1'000'000);
  simulation.add(kBegin, NodeAdded{node});
  for (size_t i = 0; i < jobs.size(); ++i) {
    JobSpec spec;
    const auto uid = static_cast<uint32_t>(std::max<int64_t>(jobs[i].user, 0) + 1000);
    // One queue for all: the literature's order is that of arrival. Users stay apart by uid.
    spec.owner = {uid, uid, "all"};
    spec.queue = "default/all";
    spec.preemptible = false;
    spec.task.cpu = MilliCpu(jobs[i].processors * 1000);
    spec.time_limit = Duration(jobs[i].requested_s * kSecond.count());
    simulation.set_work(JobId(i + 1), Duration(jobs[i].run_s * kSecond.count()));
    simulation.add(kBegin + kSecond + Duration(jobs[i].submit_s * kSecond.count()),
                   JobSubmitted{JobId(i + 1), spec, {}});
  }
  SchedulerOrderFigures figures;
  figures.result = simulation.run();
  std::vector<int64_t> starts(jobs.size());
  for (const replay::JobStory& job : figures.result.stories) {
    starts[job.job.value() - 1] = ((job.started - kBegin).count() / kSecond.count()) - 1;
  }
  figures.waits = wait_figures(jobs, starts);
  return figures;
}

}  // namespace tranche::bench
