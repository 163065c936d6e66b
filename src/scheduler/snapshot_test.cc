// What a snapshot's bytes are, and that others are refused; that a restart through one is no restart is a
// property (property_test.cc).
#include "scheduler/snapshot.h"

#include <gtest/gtest.h>

#include "base/checksum.h"
#include "model/archive.h"
#include "scheduler/test_world.h"

namespace tranche::scheduler::test {
namespace {

// A little of everything that a state may hold.
Scheduler furnished() {
  Scheduler scheduler;
  uint64_t seq = 0;
  const auto happens = [&](EventPayload payload) {
    ++seq;
    return scheduler.step(
        Event{EventSeq(seq), kStart + Duration(static_cast<int64_t>(seq)) * 1000, std::move(payload)});
  };
  Policy policy;
  policy.queues.resize(2);
  policy.queues[0].path = "default";
  policy.queues[1].path = "lab";
  policy.queues[1].quota = MilliGpu(2000);
  happens(PolicyChanged{policy});
  happens(NodeAdded{Node{NodeId(1), "n", "", MilliCpu(8000), MiB(64'000), {{"room", "2"}}}});
  for (uint32_t i = 1; i <= 2; ++i) {
    Gpu gpu;
    gpu.id = GpuId(i);
    gpu.node = NodeId(1);
    gpu.index = i - 1;
    gpu.type = "h100-80";
    gpu.memory_usable = MiB(80'000);
    happens(GpuAdded{gpu});
  }
  const JobSpec one = spec_of(Request{});
  happens(JobSubmitted{JobId(1), one, {}});
  happens(TaskStarted{TaskKey{JobId(1), 0, 1}});
  happens(JobSubmitted{JobId(2), spec_of(Request{.user = "bob", .milli = 300}), ArraySpec{{0, 1, 5}, 2}});
  happens(JobSubmitted{JobId(5), spec_of(Request{.user = "eve", .queue = "lab", .gpus = 2}), {}});
  happens(TaskExited{TaskKey{JobId(1), 0, 1}, ExitCause::exited, 0, 0});
  happens(SliceReleased{TaskKey{JobId(1), 0, 1}, GpuId(1)});
  happens(JobHeld{JobId(5), "eve"});
  return scheduler;
}

TEST(Snapshot, ItsFormatIsTheOneThatItsNumberSays) {
  const std::string bytes = furnished().save();
  // These bytes are what format 2 writes. Do they differ because something was added to what is saved? Raise
  // kSnapshotFormat; snapshots of the former format are then passed over, and the journal is replayed.
  EXPECT_EQ(kSnapshotFormat, 2U);
  EXPECT_EQ(bytes.size(), 1164U);
  // Without its own checksum at the end: with it, this figure would be the same for all bytes.
  EXPECT_EQ(checksum(std::string_view(bytes).substr(0, bytes.size() - sizeof(uint32_t))), 4276299482U);
}

TEST(Snapshot, DamageOfAnyByteIsSeen) {
  const std::string bytes = furnished().save();
  ASSERT_TRUE(Scheduler::load(bytes));
  for (size_t at = 0; at < bytes.size(); ++at) {
    for (const int change : {1, 0x40, 0xff}) {
      std::string damaged = bytes;
      damaged[at] = static_cast<char>(damaged[at] ^ change);
      ASSERT_FALSE(Scheduler::load(damaged)) << "byte " << at << " changed by " << change;
    }
    ASSERT_FALSE(Scheduler::load(bytes.substr(0, at))) << "cut after " << at << " bytes";
  }
  EXPECT_FALSE(Scheduler::load(bytes + '\0'));
}

// The parts may each be possible and not fit together: then it is the hash of the state that says so.
TEST(Snapshot, WhatReadsWellAndIsNotTheStateIsRefused) {
  const std::string bytes = furnished().save();
  std::string content(*without_checksum(bytes));
  const size_t queue = content.find("default/bob");
  ASSERT_NE(queue, std::string::npos);
  content.replace(queue, 11, "default/rob");
  const auto loaded = Scheduler::load(with_checksum(content));
  ASSERT_FALSE(loaded);
  EXPECT_EQ(loaded.error().code(), ErrorCode::corrupt);
}

// Checksums are right here: nobody may go through groups that lead nowhere.
TEST(Snapshot, GroupsOfTasksThatDoNotFitAreRefused) {
  JobSpec spec = spec_of(Request{});
  spec.groups.resize(2);
  for (TaskGroup& group : spec.groups) group.tasks_min = group.tasks_max = 1;
  spec.tasks_min = spec.tasks_max = 2;
  const auto is_read = [](const JobSpec& written) {
    ArchiveWriter writer;
    writer(written);
    ArchiveReader reader(writer.bytes());
    JobSpec read;
    reader(read);
    return reader.finish().has_value();
  };
  EXPECT_TRUE(is_read(spec));
  JobSpec bad = spec;
  bad.groups[1].parent = 7;
  EXPECT_FALSE(is_read(bad));
  bad = spec;
  bad.tasks_max = 3;
  EXPECT_FALSE(is_read(bad));
  bad = spec_of(Request{});
  bad.tasks_max = UINT32_MAX;
  EXPECT_FALSE(is_read(bad));
}

TEST(Snapshot, AnotherFormatIsNotRead) {
  const std::string bytes = furnished().save();
  std::string content(*without_checksum(bytes));
  content[0] = static_cast<char>(kSnapshotFormat + 1);
  const auto loaded = Scheduler::load(with_checksum(content));
  ASSERT_FALSE(loaded);
  EXPECT_EQ(loaded.error().code(), ErrorCode::conflict);
}

}  // namespace
}  // namespace tranche::scheduler::test
