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
  for (int64_t i = 0; i < processors; ++i) {
    Gpu gpu;
    gpu.id = GpuId(static_cast<uint32_t>(i + 1));
    gpu.node = node.id;
    gpu.uuid = "GPU-" + std::to_string(i);
    gpu.index = static_cast<uint32_t>(i);
    gpu.type = "processor";
    gpu.memory_usable = MiB(1000);
    simulation.add(kBegin, GpuAdded{gpu});
  }
  for (size_t i = 0; i < jobs.size(); ++i) {
    JobSpec spec;
    const auto uid = static_cast<uint32_t>(std::max<int64_t>(jobs[i].user, 0) + 1000);
    spec.owner = {uid, uid, "u" + std::to_string(uid)};
    spec.queue = "default/all";
    spec.owner.user = "all";
    spec.preemptible = false;
    spec.task.gpu.count = static_cast<uint32_t>(jobs[i].processors);
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
