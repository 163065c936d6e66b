// Virtual time: jobs end when their work is done, what is recorded can be read back, and a what-if under the
// policy that was recorded gives the history that was recorded, to the nanosecond.
#include "replay/simulation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "base/random.h"
#include "codec/json_document.h"
#include "replay/recorded_history.h"
#include "replay/replay_report.h"

namespace tranche::replay {
namespace {

constexpr Time kBegin{1'700'000'000'000'000'000};

JobSpec spec_of(const std::string& user, uint32_t gpus, Duration limit) {
  JobSpec spec;
  spec.owner = {1000 + static_cast<uint32_t>(user.size()), 100, user};
  spec.queue = "default/" + user;
  spec.task.gpu.count = gpus;
  spec.time_limit = limit;
  return spec;
}

void add_machine(Simulation& simulation, uint32_t gpus, const Policy& policy = {}) {
  simulation.add(kBegin, PolicyChanged{policy});
  Node node;
  node.id = NodeId(1);
  node.name = "n";
  node.cpu = MilliCpu(64'000);
  node.memory = MiB(100'000);
  simulation.add(kBegin, NodeAdded{node});
  for (uint32_t i = 0; i < gpus; ++i) {
    Gpu gpu;
    gpu.id = GpuId(i + 1);
    gpu.node = node.id;
    gpu.uuid = "GPU-" + std::to_string(i);
    gpu.index = i;
    gpu.type = "h100-80";
    gpu.memory_usable = MiB(80'000);
    simulation.add(kBegin, GpuAdded{gpu});
  }
}

TEST(Simulation, AJobEndsWhenItsWorkIsDoneAndTheNextOneStarts) {
  Simulation simulation;
  add_machine(simulation, 1);
  for (uint64_t i = 1; i <= 2; ++i) {
    simulation.set_work(JobId(i), 10 * kMinute);
    simulation.add(kBegin + kMinute, JobSubmitted{JobId(i), spec_of("ada", 1, kHour), {}});
  }
  const SimulationResult result = simulation.run();
  ASSERT_EQ(result.stories.size(), 2u);
  EXPECT_EQ((result.stories[1].started - result.stories[0].started).count() / kSecond.count(), 600);
  EXPECT_EQ(result.stories[1].state, JobState::completed);
  // Two jobs of ten minutes on one GPU, back to back.
  const ReplayReport report = report_of("r", result.stories, result.totals);
  EXPECT_EQ(report.all.gpu_milli_hours, 333);
  EXPECT_GE(report.held_permille, 999);
  EXPECT_EQ(report.all.wait_max_us / 1'000'000, 600);
  EXPECT_EQ(report.all.wait_median_us / 1'000'000, 0);
}

TEST(Simulation, ATimeLimitEndsWhatWorksLonger) {
  Simulation simulation;
  add_machine(simulation, 1);
  simulation.set_work(JobId(1), kHour);
  simulation.add(kBegin + kMinute, JobSubmitted{JobId(1), spec_of("ada", 1, 5 * kMinute), {}});
  const SimulationResult result = simulation.run();
  EXPECT_EQ(result.stories[0].state, JobState::timed_out);
  EXPECT_EQ((result.stories[0].ended - result.stories[0].started).count() / kSecond.count(), 300);
}

// A preemptible job of low priority gives way and starts anew; a checkpoint keeps what it had done.
Duration run_with_checkpoint(Duration interval) {
  SimulationSettings settings;
  settings.checkpoint_interval = interval;
  Policy policy;
  policy.minimum_runtime = Duration(0);
  Simulation simulation(settings);
  add_machine(simulation, 1, policy);
  simulation.set_work(JobId(1), kHour);
  simulation.set_work(JobId(2), kMinute);
  simulation.add(kBegin + kMinute, JobSubmitted{JobId(1), spec_of("ada", 1, 10 * kHour), {}});
  JobSpec urgent = spec_of("ada", 1, kHour);
  urgent.priority = 10;
  simulation.add(kBegin + 31 * kMinute, JobSubmitted{JobId(2), urgent, {}});
  const SimulationResult result = simulation.run();
  EXPECT_EQ(result.stories[0].preemptions, 1u);
  EXPECT_EQ(result.stories[0].state, JobState::completed);
  return result.stories[0].ended - result.stories[0].submitted;
}

TEST(Simulation, APreemptedJobStartsAnewLessItsCheckpoint) {
  EXPECT_EQ(run_with_checkpoint(Duration(0)).count() / kMinute.count(), 30 + 1 + 60);
  EXPECT_EQ(run_with_checkpoint(20 * kMinute).count() / kMinute.count(), 30 + 1 + 40);
}

TEST(Simulation, WhatTheSchedulerRefusesIsCountedAndNotSubmitted) {
  Simulation simulation;
  add_machine(simulation, 1);
  simulation.add(kBegin + kMinute, JobSubmitted{JobId(1), spec_of("ada", 2, kHour), {}});
  const SimulationResult result = simulation.run();
  EXPECT_EQ(result.refused, 1u);
  EXPECT_EQ(result.refusals.size(), 1u);
  EXPECT_TRUE(result.stories.empty());
}

// A seeded week: users, sizes, limits, priorities, holds. As lines of a journal.
std::string recorded_lines(uint64_t seed, SimulationResult* result) {
  Random random(seed);
  Simulation simulation;
  std::string lines;
  simulation.observe([&](const Event& event, std::span<const Decision> decisions) {
    append_row(lines, event, decisions);
    lines += '\n';
  });
  add_machine(simulation, 4);
  Time time = kBegin + kMinute;
  for (uint64_t i = 1; i <= 120; ++i) {
    time = time + random.between(1, 2400) * kSecond;
    const std::string user = std::string("a").append(random.below(4), 'b');
    JobSpec spec = spec_of(user, static_cast<uint32_t>(random.between(1, 4)), random.between(1, 6) * kHour);
    spec.priority = static_cast<int32_t>(random.below(3)) * 10;
    simulation.set_work(JobId(i), random.between(1, 20'000) * kSecond);
    simulation.add(time, JobSubmitted{JobId(i), spec, {}});
    if (random.chance(1, 10)) simulation.add(time + kHour, JobHeld{JobId(i), user});
    if (random.chance(1, 10)) simulation.add(time + 3 * kHour, JobReleased{JobId(i), user});
  }
  *result = simulation.run();
  return lines;
}

TEST(RecordedHistory, TheRecordedPolicyGivesTheRecordedHistory) {
  const char* given = std::getenv("TRANCHE_SEED");
  const uint64_t first = given != nullptr ? std::strtoull(given, nullptr, 10) : 1;
  const uint64_t count = given != nullptr ? 1 : std::getenv("TRANCHE_LONG") != nullptr ? 50 : 10;
  std::printf("seeds %llu to %llu\n", static_cast<unsigned long long>(first),
              static_cast<unsigned long long>(first + count - 1));
  for (uint64_t seed = first; seed < first + count; ++seed) {
    SimulationResult recorded;
    const std::string lines = recorded_lines(seed, &recorded);
    const auto history = read_history_lines(lines);
    ASSERT_TRUE(history) << history.error().message();
    ASSERT_EQ(history->stories.size(), recorded.stories.size());
    // Preempted jobs work from the beginning again, and so does what the record says of their last attempt.
    const SimulationResult again = replay_history(*history, nullptr, {});
    ASSERT_EQ(again.stories.size(), recorded.stories.size());
    for (size_t i = 0; i < again.stories.size(); ++i) {
      const auto seconds = [](Time a, Time b) { return (a - b).count() / kSecond.count(); };
      EXPECT_EQ(seconds(again.stories[i].started, recorded.stories[i].started), 0)
          << "seed " << seed << " job " << i + 1;
      EXPECT_EQ(seconds(again.stories[i].ended, recorded.stories[i].ended), 0)
          << "seed " << seed << " job " << i + 1;
      EXPECT_EQ(again.stories[i].preemptions, recorded.stories[i].preemptions) << "seed " << seed;
      EXPECT_EQ(again.stories[i].state, recorded.stories[i].state) << "seed " << seed << " job " << i + 1;
    }
    EXPECT_EQ(again.totals.held_milli_us / 1'000'000, recorded.totals.held_milli_us / 1'000'000);
  }
}

TEST(RecordedHistory, AnotherPolicyIsTold) {
  SimulationResult recorded;
  const auto history = read_history_lines(recorded_lines(3, &recorded));
  ASSERT_TRUE(history);
  Policy strict;
  strict.backfill = false;
  const SimulationResult other = replay_history(*history, &strict, {});
  EXPECT_NE(report_of("a", other.stories, other.totals).all.wait_mean_us,
            report_of("b", recorded.stories, recorded.totals).all.wait_mean_us);
}

TEST(RecordedHistory, ARowThatNamesWhatIsNotThereIsRefused) {
  for (const char* event : {R"("kind":"gpu_removed","version":1,"event":{"gpu":7})",
                            R"("kind":"node_removed","version":1,"event":{"node":7})",
                            R"("kind":"gpu_undrained","version":1,"event":{"gpu":7,"by":"ada"})"}) {
    const auto history =
        read_history_lines(std::string(R"({"seq":1,"time":5,)") + event + R"(,"decisions":[]})");
    ASSERT_FALSE(history) << event;
    EXPECT_NE(history.error().message().find("which no row before it has"), std::string::npos)
        << history.error().message();
  }
}

TEST(RecordedHistory, DamagedLinesAreRefusedWithTheirNumber) {
  SimulationResult recorded;
  std::string lines = recorded_lines(1, &recorded);
  EXPECT_FALSE(read_history_lines(""));
  const size_t second = lines.find('\n') + 1;
  const auto doubled = read_history_lines(lines.substr(0, second) + lines);
  ASSERT_FALSE(doubled);
  EXPECT_NE(doubled.error().message().find("line 2"), std::string::npos);
  lines[second + 5] = '?';
  const auto damaged = read_history_lines(lines);
  ASSERT_FALSE(damaged);
  EXPECT_NE(damaged.error().message().find("line 2"), std::string::npos);
}

TEST(ReplayReport, IsOneObjectWithAMemberForEachReport) {
  SimulationResult recorded;
  recorded_lines(1, &recorded);
  const ReplayReport report = report_of("recorded", recorded.stories, recorded.totals);
  EXPECT_EQ(report.all.jobs, 120u);
  EXPECT_LE(report.all.wait_median_us, report.all.wait_p90_us);
  EXPECT_LE(report.all.wait_p99_us, report.all.wait_max_us);
  uint64_t jobs = 0;
  for (const auto& [user, summary] : report.by_user) jobs += summary.jobs;
  EXPECT_EQ(jobs, 120u);
  const std::string json = encode_reports({report});
  EXPECT_TRUE(json::Document::parse(json, ErrorCode::corrupt)) << json;
}

}  // namespace
}  // namespace tranche::replay
