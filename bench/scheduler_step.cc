// bench-scheduler-step [PENDING [GPUS [ROUNDS]]]: steps a second of the pure scheduler, on one core, while
// PENDING jobs of 20 users wait for GPUs that are all busy. A round is what one job costs in steady state: it
// exits, its GPU is released (and the next one starts), the next one runs, and a new one is submitted: four
// steps.
#include <array>
#include <cstdio>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/assert.h"
#include "base/random.h"
#include "measure.h"
#include "scheduler/scheduler.h"

namespace tranche::bench {
namespace {

constexpr uint32_t kGpusPerNode = 8;
constexpr uint32_t kUsers = 20;

class Cluster {
 public:
  Cluster() { step(PolicyChanged{}); }

  void add_nodes(uint32_t gpus) {
    for (uint32_t index = 0; index < gpus; ++index) {
      const uint32_t within = index % kGpusPerNode;
      if (within == 0) add_node();
      Gpu gpu;
      gpu.id = GpuId(index + 1);
      gpu.node = NodeId(last_node_);
      gpu.uuid = "GPU-" + std::to_string(index);
      gpu.index = within;
      gpu.type = "h100-80";
      gpu.memory_usable = MiB(80'000);
      step(GpuAdded{gpu});
    }
  }

  void submit() { step(next_submission()); }

  // As a restart does, so that the queue is full without as many decisions.
  void restore_pending(size_t count) {
    for (size_t i = 0; i < count; ++i) scheduler_.restore(next_event(next_submission()), {});
  }

  void round() {
    TRANCHE_ASSERT(!running_.empty());
    const size_t which = random_.below(running_.size());
    const Start ended = running_[which];
    running_[which] = running_.back();
    running_.pop_back();
    step(TaskExited{ended.task, ExitCause::exited, 0, 0});
    for (const Slice& slice : ended.slices) step(SliceReleased{ended.task, slice.gpu});
    run_prepared();
    submit();
  }

  void run_prepared() {
    for (const Start& start : std::exchange(prepared_, {})) {
      step(TaskStarted{start.task});
      running_.push_back(start);
    }
  }

  Samples spans;
  size_t decisions = 0;
  size_t running() const { return running_.size(); }

 private:
  void add_node() {
    const NodeId node(++last_node_);
    step(NodeAdded{Node{.id = node,
                        .name = "n" + std::to_string(last_node_),
                        .pool = "",
                        .cpu = MilliCpu(128'000),
                        .memory = MiB(2'000'000),
                        .labels = {}}});
  }

  EventPayload next_submission() {
    const auto user = static_cast<uint32_t>(random_.below(kUsers));
    JobSpec spec;
    spec.owner = {1000 + user, 100, "user" + std::to_string(user)};
    spec.queue = "default/" + spec.owner.user;
    spec.task.gpu.count = 1;
    spec.task.cpu = MilliCpu(1000);
    spec.time_limit = Duration(random_.between(1, 48) * kHour.count());
    return JobSubmitted{JobId(++last_job_), std::move(spec), {}};
  }

  Event next_event(EventPayload payload) {
    now_ = now_ + kMillisecond;
    return {EventSeq(++last_event_), now_, std::move(payload)};
  }

  void step(EventPayload payload) {
    const Event event = next_event(std::move(payload));
    const int64_t began = monotonic_ns();
    const std::vector<Decision> decided = scheduler_.step(event);
    spans.add(monotonic_ns() - began);
    decisions += decided.size();
    for (const Decision& decision : decided) {
      if (const auto* start = std::get_if<Start>(&decision)) prepared_.push_back(*start);
    }
  }

  scheduler::Scheduler scheduler_;
  Random random_{1};
  Time now_{1'700'000'000'000'000'000};
  uint64_t last_event_ = 0;
  uint64_t last_job_ = 0;
  uint32_t last_node_ = 0;
  std::vector<Start> running_;
  std::vector<Start> prepared_;
};

Result<void> run(size_t pending, uint32_t gpus, size_t rounds) {
  Cluster cluster;
  cluster.add_nodes(gpus);
  for (uint32_t i = 0; i < gpus; ++i) cluster.submit();
  cluster.run_prepared();
  cluster.restore_pending(pending);
  if (cluster.running() != gpus)
    return fail(ErrorCode::internal, "not every GPU is busy; the bench is wrong");
  cluster.spans = {};
  cluster.decisions = 0;
  const int64_t began = monotonic_ns();
  for (size_t i = 0; i < rounds; ++i) cluster.round();
  const int64_t took = monotonic_ns() - began;
  print_rate("scheduler steps", cluster.spans.count(), took);
  print_rate("scheduler jobs", rounds, took);
  print_spans("scheduler step", cluster.spans);
  return {};
}

}  // namespace
}  // namespace tranche::bench

int main(int count, char** words) {
  std::array<int64_t, 3> values{10'000, 64, 2'000};
  for (int i = 1; i < count && i <= 3; ++i) {
    const auto value = tranche::bench::to_number(words[i], "the argument");
    if (!value || *value < 1 || *value > 1'000'000) {
      std::fputs("usage: bench-scheduler-step [PENDING [GPUS [ROUNDS]]]\n", stderr);
      return 2;
    }
    values[static_cast<size_t>(i - 1)] = *value;
  }
  const auto done = tranche::bench::run(static_cast<size_t>(values[0]), static_cast<uint32_t>(values[1]),
                                        static_cast<size_t>(values[2]));
  if (done) return 0;
  std::fprintf(stderr, "bench-scheduler-step: %s\n", done.error().message().c_str());
  return 1;
}
