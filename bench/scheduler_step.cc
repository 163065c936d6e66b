// Time of one pure decision: a machine of N GPUs, 10,000 waiting jobs, one job ending and the next starting.
// Prints microseconds per event, p50 and p99. Nothing is asserted on time.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

#include "scheduler/test_world.h"

using tranche::EventPayload;
using tranche::ExitCause;
using tranche::JobId;
using tranche::JobSubmitted;
using tranche::Slice;
using tranche::SliceReleased;
using tranche::TaskExited;
using tranche::TaskKey;
using tranche::kHour;
using tranche::kSecond;
using tranche::scheduler::test::Request;
using tranche::scheduler::test::World;

namespace {

void print(const char* what, std::vector<int64_t>& nanoseconds) {
  std::sort(nanoseconds.begin(), nanoseconds.end());
  const auto at = [&](size_t percent) { return nanoseconds[nanoseconds.size() * percent / 100] / 1000; };
  std::printf("%-44s p50 %6lld us  p99 %6lld us\n", what, static_cast<long long>(at(50)), static_cast<long long>(at(99)));
}

void measure(uint32_t gpus, uint32_t waiting, uint32_t users, uint32_t shapes) {
  World world;
  world.add_node(gpus, "h100-80", 80'000, 100'000'000);
  std::vector<int64_t> submits;
  std::vector<int64_t> ends;
  const auto timed = [&](EventPayload payload, std::vector<int64_t>& into) {
    const auto start = std::chrono::steady_clock::now();
    world.event(std::move(payload));
    into.push_back((std::chrono::steady_clock::now() - start).count());
  };
  for (uint32_t i = 0; i < waiting; ++i) {
    Request request{.user = "user" + std::to_string(i % users), .gpus = 1 + i % 2};
    request.time_limit = kHour + kSecond * static_cast<int64_t>(i % shapes);
    timed(JobSubmitted{JobId(i + 1), spec_of(request), {}}, submits);
    world.log.clear();
  }
  for (int i = 0; i < 300; ++i) {
    TaskKey task;
    for (const auto& gpu : world.scheduler.gpus()) {
      if (!gpu.tasks.empty()) task = gpu.tasks.front();
    }
    const auto slices = world.view(task.job).tasks[0].slices;
    timed(TaskExited{task, ExitCause::exited, 0, 0}, ends);
    for (const Slice& slice : slices) timed(SliceReleased{task, slice.gpu}, ends);
  }
  std::printf("%u GPUs, %u waiting, %u users, %u shapes\n", gpus, waiting, users, shapes * 2);
  print("  submit", submits);
  print("  exit or release (with the next start)", ends);
}

}  // namespace

int main() {
  measure(4, 10'000, 1, 1);
  measure(8, 10'000, 20, 5);
  measure(64, 10'000, 100, 10);
}
