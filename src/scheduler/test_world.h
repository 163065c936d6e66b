// A small world for tests: events in, decisions out, with the numbers filled in. It keeps no account of its
// own; what a test expects it says itself.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/assert.h"
#include "scheduler/scheduler.h"

namespace tranche::scheduler::test {

inline constexpr Time kStart{1'700'000'000'000'000'000};

// A request for tests, built by naming what differs from one whole GPU for one hour.
struct Request {
  std::string user = "alice";
  std::string queue = "default";
  uint32_t gpus = 1;
  int64_t milli = 0;  // > 0 or memory > 0: a fraction
  int64_t gpu_memory = 0;
  std::string type = {};
  int64_t cpu = 1000;
  int64_t memory = 0;
  uint32_t tasks_min = 1;
  uint32_t tasks_max = 1;
  int32_t priority = 0;
  bool preemptible = true;
  bool requeue = false;
  bool held = false;
  Duration time_limit = kHour;
  Duration grace = 30 * kSecond.count() * kNanosecond;
  Time begin = {};
  std::vector<Dependency> dependencies = {};
  JobClass job_class = JobClass::training;
};

inline uint32_t uid_of(const std::string& user) {
  uint32_t uid = 1000;
  for (const char c : user) uid = uid * 31 + static_cast<unsigned char>(c);
  return uid % 50'000 + 1000;
}

inline JobSpec spec_of(const Request& request) {
  JobSpec spec;
  spec.owner = {uid_of(request.user), 100, request.user};
  spec.queue = request.queue + "/" + request.user;
  spec.job_class = request.job_class;
  spec.priority = request.priority;
  spec.preemptible = request.preemptible;
  spec.requeue = request.requeue;
  spec.held = request.held;
  spec.task.gpu.count = request.gpus;
  spec.task.gpu.type = request.type;
  if (request.milli > 0 || request.gpu_memory > 0) {
    spec.task.gpu.kind = SliceKind::fraction;
    spec.task.gpu.compute = MilliGpu(request.milli);
    spec.task.gpu.memory = MiB(request.gpu_memory);
  }
  spec.task.cpu = MilliCpu(request.cpu);
  spec.task.memory = MiB(request.memory);
  spec.tasks_min = request.tasks_min;
  spec.tasks_max = std::max(request.tasks_min, request.tasks_max);
  spec.time_limit = request.time_limit;
  spec.grace = request.grace;
  spec.begin = request.begin;
  spec.dependencies = request.dependencies;
  return spec;
}

class World {
 public:
  explicit World(Policy policy = {}, Time start = kStart) : now_(start) {
    event(PolicyChanged{std::move(policy)});
  }

  // A node with `gpus` GPUs of one type; ids rise with every call.
  void add_node(uint32_t gpus, const std::string& type = "h100-80", int64_t memory = 80'000,
                int64_t cpu = 64'000, int64_t host_memory = 512'000) {
    const NodeId node(++last_node_);
    event(NodeAdded{Node{.id = node,
                         .name = "n" + std::to_string(last_node_),
                         .pool = "",
                         .cpu = MilliCpu(cpu),
                         .memory = MiB(host_memory),
                         .labels = {}}});
    for (uint32_t i = 0; i < gpus; ++i) {
      Gpu gpu;
      gpu.id = GpuId(++last_gpu_);
      gpu.node = node;
      gpu.uuid = "GPU-" + std::to_string(last_gpu_);
      gpu.index = i;
      gpu.type = type;
      gpu.memory_usable = MiB(memory);
      event(GpuAdded{gpu});
    }
  }

  const std::vector<Decision>& event(EventPayload payload, Duration after = kSecond) {
    now_ = now_ + after;
    const Event event{EventSeq(++last_seq_), now_, std::move(payload)};
    last_ = scheduler.step(event);
    log.push_back({event, last_});
    return last_;
  }

  JobId submit(const Request& request, const ArraySpec& array = {}) {
    const JobId job(last_job_ + 1);
    last_job_ += std::max<size_t>(array.indices.size(), 1);
    event(JobSubmitted{job, spec_of(request), array});
    return job;
  }
  void tick_at(Time time) { event(Tick{}, time - now_); }

  // The process runs.
  void run(JobId job) {
    for (const Start& start : view(job).tasks) event(TaskStarted{start.task}, kNanosecond);
  }
  // All tasks exit, and their memory is seen to be gone.
  void finish(JobId job, ExitCause cause = ExitCause::exited, int32_t code = 0) {
    const auto tasks = view(job).tasks;
    for (const Start& start : tasks) event(TaskExited{start.task, cause, code, 0});
    for (const Start& start : tasks) release(start);
  }
  void release(const Start& start) {
    for (const Slice& slice : start.slices) event(SliceReleased{start.task, slice.gpu}, kNanosecond);
  }

  JobView view(JobId job) const {
    auto found = scheduler.job(job);
    TRANCHE_ASSERT(found.has_value());
    return std::move(*found);
  }
  JobState state(JobId job) const { return view(job).state; }
  bool started(JobId job) const { return scheduler.has_job(job) && !view(job).tasks.empty(); }
  std::vector<uint32_t> gpus_of(JobId job) const {
    std::vector<uint32_t> ids;
    for (const Start& start : view(job).tasks) {
      for (const Slice& slice : start.slices) ids.push_back(slice.gpu.value());
    }
    return ids;
  }
  // The final state that the last event brought to the job.
  std::optional<JobState> ended(JobId job) const {
    for (auto entry = log.rbegin(); entry != log.rend(); ++entry) {
      for (const Decision& decision : entry->second) {
        if (const auto* end = std::get_if<End>(&decision); end != nullptr && end->job == job)
          return end->state;
      }
    }
    return std::nullopt;
  }
  template <class Kind>
  std::vector<Kind> last() const {
    std::vector<Kind> found;
    for (const Decision& decision : last_) {
      if (const auto* one = std::get_if<Kind>(&decision)) found.push_back(*one);
    }
    return found;
  }
  Time now() const { return now_; }

  Scheduler scheduler;
  std::vector<std::pair<Event, std::vector<Decision>>> log;

 private:
  Time now_;
  uint64_t last_seq_ = 0;
  uint64_t last_job_ = 0;
  uint32_t last_node_ = 0;
  uint32_t last_gpu_ = 0;
  std::vector<Decision> last_;
};

}  // namespace tranche::scheduler::test
