#include "packing/packing_scheduler.h"

#include <algorithm>

#include "scheduler/scheduler.h"

namespace tranche::bench {
namespace {

// All GPUs have the same memory here: the trace states none, and fractions are of compute.
constexpr MiB kGpuMemory{32'000};
constexpr uint32_t kUser = 1000;

class PackingWorld {
 public:
  PackingWorld(const PackingWorkload& workload, const PackingOrder& order) {
    Policy policy;
    policy.users_share_gpu = true;
    policy.jobs_per_user_max = UINT32_MAX;
    policy.usage_half_life = Duration(0);
    // A pod that does not start is cancelled in the same instant, so no promise to it could decide anything.
    policy.no_head_reservation = true;
    step(PolicyChanged{policy});
    uint32_t gpu_id = 0;
    for (size_t i = 0; i < order.nodes.size(); ++i) {
      const replay::OpenbNode& listed = workload.nodes[order.nodes[i]];
      Node node;
      node.id = NodeId(static_cast<uint32_t>(i + 1));
      node.name = listed.name;
      node.cpu = MilliCpu(listed.cpu_milli);
      node.memory = MiB(listed.memory_mib);
      step(NodeAdded{node});
      for (int64_t g = 0; g < listed.gpus; ++g) {
        Gpu gpu;
        gpu.id = GpuId(++gpu_id);
        gpu.node = node.id;
        gpu.uuid = "GPU-" + std::to_string(gpu_id);
        gpu.index = static_cast<uint32_t>(g);
        gpu.type = listed.model;
        gpu.memory_usable = kGpuMemory;
        step(GpuAdded{gpu});
      }
    }
  }

  // The GPU milli that it was given; nothing if it did not start.
  int64_t arrive(const PodClass& pod) {
    const JobId job(++last_job_);
    int64_t given = 0;
    bool started = false;
    for (const Decision& decision : step(JobSubmitted{job, spec_of(pod), {}})) {
      const auto* start = std::get_if<Start>(&decision);
      if (start == nullptr) continue;
      started = true;
      for (const Slice& slice : start->slices) given += slice.compute.count();
    }
    if (!started) step(JobCancelled{job, "trace"});
    return given;
  }

 private:
  static JobSpec spec_of(const PodClass& pod) {
    JobSpec spec;
    spec.owner = {kUser, kUser, "trace"};
    spec.queue = "default/trace";
    spec.task.cpu = MilliCpu(pod.cpu_milli);
    spec.task.memory = MiB(pod.memory_mib);
    spec.task.gpu.count = static_cast<uint32_t>(pod.gpus);
    for (const std::string& model : pod.models)
      spec.task.gpu.type += (spec.task.gpu.type.empty() ? "" : "|") + model;
    if (pod.is_shared()) {
      spec.task.gpu.kind = SliceKind::fraction;
      spec.task.gpu.compute = MilliGpu(pod.gpu_milli);
    }
    // Pods never end here; the limit must not bound what may start beside them.
    spec.time_limit = 7 * kDay;
    return spec;
  }

  std::vector<Decision> step(EventPayload payload) {
    now_ = now_ + kNanosecond;
    return scheduler_.step(Event{EventSeq(++last_event_), now_, std::move(payload)});
  }

  scheduler::Scheduler scheduler_;
  Time now_{1'700'000'000'000'000'000};
  uint64_t last_event_ = 0;
  uint64_t last_job_ = 0;
};

}  // namespace

AllocationCurve run_packing_scheduler(const PackingWorkload& workload, const PackingOrder& order) {
  PackingWorld world(workload, order);
  AllocationCurve curve(workload.capacity_milli);
  int64_t arrived = 0;
  int64_t allocated = 0;
  for (const size_t pod : order.pods) {
    const PodClass& wanted = workload.classes[workload.class_of[pod]];
    arrived += wanted.total_milli();
    allocated += world.arrive(wanted);
    curve.arrived(arrived, allocated);
  }
  return curve;
}

}  // namespace tranche::bench
