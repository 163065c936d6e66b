// Who gets what: shares, reclaim, preemption, backfill, fractions.
#include <gtest/gtest.h>

#include <cstdlib>

#include "scheduler/decay.h"
#include "scheduler/fairness.h"
#include "scheduler/ledger.h"
#include "scheduler/test_world.h"

namespace tranche::scheduler::test {
namespace {

Policy two_queues(int64_t a_quota, int64_t b_quota) {
  Policy policy;
  QueuePolicy a{.path = "a", .quota = {}, .limit = {}, .weight = 1, .priority = 0, .user_limit = {}};
  QueuePolicy b = a;
  b.path = "b";
  if (a_quota >= 0) a.quota = MilliGpu(a_quota);
  if (b_quota >= 0) b.quota = MilliGpu(b_quota);
  policy.queues = {a, b};
  policy.usage_half_life = Duration();
  policy.minimum_runtime = Duration();
  return policy;
}

QueueShare share_of(const World& world, const std::string& path) {
  for (const QueueShare& share : world.scheduler.shares()) {
    if (share.path == path) return share;
  }
  return {};
}

TEST(WaterFilling, SatisfiesSmallNeedsAndDividesTheRestByWeight) {
  std::vector<Claimant> claimants = {{10, 1, 0}, {100, 1, 0}, {100, 1, 0}};
  water_fill(claimants, 90);
  EXPECT_EQ(claimants[0].share, 10);
  EXPECT_EQ(claimants[1].share, 40);
  EXPECT_EQ(claimants[2].share, 40);
  claimants = {{9'000, 1, 0}, {9'000, 2, 0}};
  water_fill(claimants, 3'000);
  EXPECT_EQ(claimants[0].share, 1'000);
  EXPECT_EQ(claimants[1].share, 2'000);
}

TEST(Decay, HalvesInAHalfLifeAndKeepsTheOrderWhileIdle) {
  QueueTree queues;
  Policy policy;
  policy.usage_half_life = kHour;
  queues.advance(kStart);
  queues.configure(policy, kStart);
  const QueueIndex a = queues.ensure("a");
  const QueueIndex b = queues.ensure("b");
  queues.charge(a, MilliGpu(4'000), true, kStart);
  queues.charge(b, MilliGpu(5'000), true, kStart);
  Time now = kStart + kHour;
  queues.charge(a, MilliGpu(-4'000), true, now);
  queues.charge(b, MilliGpu(-5'000), true, now);
  // 4 GPUs for an hour, decaying with a half-life of an hour: 4000 x (1 - 1/2) / ln 2 = 2885.
  EXPECT_LE(std::abs(queues.usage_milli_gpu_hours(a, now) - 2885), 2);
  EXPECT_LE(std::abs(queues.usage_milli_gpu_hours(a, now + kHour) - 1442), 2);
  for (int hours = 0; hours < 40; ++hours) {
    now = now + kHour;
    queues.advance(now);
    EXPECT_LT(queues.usage(a, now), queues.usage(b, now)) << hours;
  }
  queues.advance(now + kDay * 4'000);
  EXPECT_EQ(queues.usage_milli_gpu_hours(b, now + kDay * 4'000), 0);
}

TEST(Shares, QuotaFirstThenTheSurplusByWeight) {
  World world(two_queues(3'000, -1));
  world.add_node(4);
  for (int i = 0; i < 5; ++i) {
    world.submit({.user = "alice", .queue = "a"});
    world.submit({.user = "bob", .queue = "b"});
  }
  EXPECT_EQ(share_of(world, "a").fair_share, MilliGpu(3'500));
  EXPECT_EQ(share_of(world, "b").fair_share, MilliGpu(500));
  EXPECT_EQ(share_of(world, "a/alice").jobs_waiting, share_of(world, "a").jobs_waiting);
}

TEST(Shares, TheQueueFurthestBelowItsShareIsNext) {
  World world(two_queues(-1, -1));
  world.add_node(2);
  const JobId first = world.submit({.user = "alice", .queue = "a", .gpus = 2});
  const JobId second = world.submit({.user = "alice", .queue = "a"});
  const JobId third = world.submit({.user = "bob", .queue = "b"});
  EXPECT_EQ(world.scheduler.waiting_order(), (std::vector<JobId>{third, second}));
  world.run(first);
  world.finish(first);
  EXPECT_TRUE(world.started(third));
}

TEST(Shares, PastUseOrdersQueuesThatUseTheSame) {
  Policy policy = two_queues(-1, -1);
  policy.usage_half_life = kDay;
  World world(policy);
  world.add_node(1);
  const JobId first = world.submit({.user = "alice", .queue = "a"});
  const JobId mine = world.submit({.user = "alice", .queue = "a"});
  const JobId theirs = world.submit({.user = "bob", .queue = "b"});
  world.run(first);
  world.event(Tick{}, kHour);
  world.finish(first);
  EXPECT_TRUE(world.started(theirs));
  EXPECT_FALSE(world.started(mine));
}

TEST(Reclaim, AQueueTakesItsQuotaBackFromWorkOverQuota) {
  World world(two_queues(2'000, 2'000));
  world.add_node(4);
  std::vector<JobId> theirs;
  for (int i = 0; i < 4; ++i) theirs.push_back(world.submit({.user = "bob", .queue = "b"}));
  for (const JobId job : theirs) world.run(job);
  EXPECT_FALSE(world.view(theirs[1]).over_quota);
  EXPECT_TRUE(world.view(theirs[3]).over_quota);
  const JobId mine = world.submit({.user = "alice", .queue = "a"});
  ASSERT_EQ(world.last<Stop>().size(), 1u);
  EXPECT_EQ(world.last<Stop>()[0].task.job, theirs[3]) << "the last one that was started";
  EXPECT_EQ(world.last<Stop>()[0].reason, StopReason::reclaimed);
  EXPECT_EQ(world.last<Stop>()[0].beneficiary, mine);
  const JobId other = world.submit({.user = "bob", .queue = "b"});
  world.finish(theirs[3], ExitCause::killed);
  EXPECT_TRUE(world.started(mine)) << "the freed room is kept for it";
  EXPECT_FALSE(world.started(other));
  EXPECT_EQ(world.state(theirs[3]), JobState::pending);
  EXPECT_EQ(world.view(theirs[3]).attempt, 2u);
  world.submit({.user = "alice", .queue = "a"});
  EXPECT_EQ(world.last<Stop>().size(), 1u);
  world.submit({.user = "alice", .queue = "a"});
  EXPECT_TRUE(world.last<Stop>().empty()) << "work inside its quota is never reclaimed";
}

TEST(Reclaim, MinimumRuntimeProtectsAndATickEndsIt) {
  Policy policy = two_queues(1'000, 0);
  policy.minimum_runtime = Duration(10 * kMinute.count());
  World world(policy);
  world.add_node(1);
  const JobId theirs = world.submit({.user = "bob", .queue = "b"});
  world.run(theirs);
  const Time started = world.view(theirs).started;
  world.submit({.user = "alice", .queue = "a"});
  EXPECT_TRUE(world.last<Stop>().empty());
  ASSERT_EQ(world.last<WakeAt>().size(), 1u);
  EXPECT_EQ(world.last<WakeAt>()[0].time, started + policy.minimum_runtime);
  world.tick_at(started + policy.minimum_runtime);
  EXPECT_EQ(world.last<Stop>().size(), 1u);
}

TEST(Reclaim, TwoQueuesDoNotTradeOneMachine) {
  World world(two_queues(-1, -1));
  world.add_node(8);
  const JobId theirs = world.submit({.user = "bob", .queue = "b", .gpus = 8});
  world.run(theirs);
  world.submit({.user = "alice", .queue = "a", .gpus = 8});
  EXPECT_TRUE(world.last<Stop>().empty());
  world.event(Tick{}, kHour * 3);
  EXPECT_TRUE(world.last<Stop>().empty());
}

TEST(Reclaim, FairShareIsTakenBackOnlyDownToTheOthersShare) {
  World world(two_queues(-1, -1));
  world.add_node(4);
  for (int i = 0; i < 4; ++i) world.run(world.submit({.user = "bob", .queue = "b"}));
  world.submit({.user = "alice", .queue = "a"});
  EXPECT_EQ(world.last<Stop>().size(), 1u);
  world.submit({.user = "alice", .queue = "a"});
  EXPECT_EQ(world.last<Stop>().size(), 1u);
  world.submit({.user = "alice", .queue = "a"});
  EXPECT_TRUE(world.last<Stop>().empty());
}

TEST(Reclaim, JobsThatCannotBePreemptedRunOnlyInsideQuota) {
  World world(two_queues(1'000, -1));
  world.add_node(4);
  const JobId first = world.submit({.user = "alice", .queue = "a", .preemptible = false});
  const JobId second = world.submit({.user = "alice", .queue = "a", .preemptible = false});
  EXPECT_TRUE(world.started(first));
  EXPECT_FALSE(world.started(second));
  EXPECT_EQ(world.scheduler.proof(second)->kind, ProofKind::quota);
  EXPECT_TRUE(world.started(world.submit({.user = "bob", .queue = "b", .preemptible = false})));
}

TEST(Preemption, OnlyStrictlyHigherPriorityInTheSameQueue) {
  World world;
  world.add_node(2);
  const JobId low = world.submit({.priority = 1});
  const JobId lower = world.submit({.priority = 0});
  world.run(low);
  world.run(lower);
  world.submit({.priority = 0});
  EXPECT_TRUE(world.last<Stop>().empty());
  const JobId high = world.submit({.priority = 2});
  ASSERT_EQ(world.last<Stop>().size(), 1u);
  EXPECT_EQ(world.last<Stop>()[0].task.job, lower);
  EXPECT_EQ(world.last<Stop>()[0].reason, StopReason::preempted);
  world.finish(lower, ExitCause::killed);
  EXPECT_TRUE(world.started(high));
}

TEST(Backfill, SmallJobsStartAroundTheHeadsReservation) {
  World world;
  world.add_node(2);
  const JobId running = world.submit({});
  world.run(running);
  const JobId head = world.submit({.gpus = 2});
  const JobId too_long = world.submit({.time_limit = kHour * 2});
  const JobId fits = world.submit({.time_limit = kMinute});
  EXPECT_FALSE(world.started(head));
  EXPECT_FALSE(world.started(too_long));
  EXPECT_TRUE(world.started(fits));
  world.run(fits);
  world.finish(fits);
  const Time end = world.view(running).started + kHour + kSecond * 30;
  EXPECT_LE(world.scheduler.forecast(head)->start - end, kMillisecond);
  EXPECT_GE(world.scheduler.forecast(head)->start, end);
  const Proof proof = *world.scheduler.proof(too_long);
  EXPECT_EQ(proof.kind, ProofKind::reserved);
  EXPECT_EQ(proof.blockers, std::vector<JobId>{head});
  EXPECT_EQ(proof.until, end);
  world.finish(running);
  EXPECT_TRUE(world.started(head));
}

TEST(Backfill, SwitchedOffNobodyPassesTheHead) {
  Policy policy;
  policy.backfill = false;
  World world(policy);
  world.add_node(2);
  world.run(world.submit({}));
  world.submit({.gpus = 2});
  EXPECT_FALSE(world.started(world.submit({.time_limit = kMinute})));
}

TEST(Fractions, FillSharedGpusOfTheirUserAndRecordWhatTheyTake) {
  World world;
  world.add_node(3);
  const JobId half = world.submit({.milli = 500});
  EXPECT_EQ(world.view(half).tasks[0].slices[0].memory, MiB(40'000));
  const JobId by_memory = world.submit({.gpu_memory = 20'001});
  EXPECT_EQ(world.gpus_of(by_memory), world.gpus_of(half));
  EXPECT_EQ(world.view(by_memory).tasks[0].slices[0].compute, MilliGpu(251));
  const JobId other_user = world.submit({.user = "bob", .milli = 100});
  EXPECT_NE(world.gpus_of(other_user), world.gpus_of(half));
  const JobId whole = world.submit({});
  EXPECT_EQ(world.gpus_of(whole), std::vector<uint32_t>{3});
  EXPECT_FALSE(world.started(world.submit({.user = "carol", .milli = 100})));
  // Charged is the larger of the two fractions.
  const JobId large_memory = world.submit({.user = "bob", .milli = 100, .gpu_memory = 40'000});
  EXPECT_TRUE(world.started(large_memory));
  EXPECT_EQ(share_of(world, "default/bob").used, MilliGpu(600));
}

// Two tasks on the same pair of GPUs would leave the third task one GPU short.
TEST(Fractions, OfAGangAreSpreadSoThatAllOfItFits) {
  World world;
  world.add_node(3);
  const JobId gang = world.submit({.gpus = 2, .milli = 400, .tasks_min = 3});
  ASSERT_TRUE(world.started(gang));
  EXPECT_EQ(world.last<Start>().size(), 3u);
}

// On the type that it asks for it is charged most of a GPU, so the limit refuses it at the door.
TEST(Fractions, AreChargedByTheTypeThatTheyAskFor) {
  Policy policy;
  QueuePolicy queue;
  queue.path = "small";
  queue.limit = MilliGpu(500);
  policy.queues.push_back(queue);
  World world(policy);
  world.add_node(1, "h100-80", 80'000);
  world.add_node(1, "t4", 15'000);
  Request request{.queue = "small", .gpu_memory = 12'000};
  EXPECT_TRUE(world.scheduler.check(spec_of(request), {}));
  request.type = "t4";
  EXPECT_FALSE(world.scheduler.check(spec_of(request), {}));
}

TEST(Fractions, OfDifferentUsersMeetWhenThePolicySaysSo) {
  Policy policy;
  policy.users_share_gpu = true;
  World world(policy);
  world.add_node(2);
  const JobId first = world.submit({.milli = 300});
  EXPECT_EQ(world.gpus_of(world.submit({.user = "bob", .milli = 700})), world.gpus_of(first));
  EXPECT_NE(world.gpus_of(world.submit({.user = "bob", .milli = 1})), world.gpus_of(first));
}

TEST(Placement, WholeGpusGoToTheFullestNodeAndTheSmallestType) {
  World world;
  world.add_node(4);
  world.add_node(2);
  world.add_node(1, "t4", 15'110);
  EXPECT_EQ(world.gpus_of(world.submit({})), std::vector<uint32_t>{7});
  EXPECT_EQ(world.gpus_of(world.submit({})), std::vector<uint32_t>{5});
  EXPECT_EQ(world.gpus_of(world.submit({.gpus = 3})), (std::vector<uint32_t>{1, 2, 3}));
  EXPECT_EQ(world.gpus_of(world.submit({.type = "h100-80"})), std::vector<uint32_t>{4});
}

// --- the audit itself: faulty logs that it has to reject --------------------------------------------------
using Log = std::vector<std::pair<Event, std::vector<Decision>>>;

Log good_log() {
  World world(two_queues(1'000, 1'000));
  world.add_node(2);
  const JobId first = world.submit({.user = "bob", .queue = "b"});
  const JobId second = world.submit({.user = "bob", .queue = "b"});
  world.run(first);
  world.run(second);
  world.submit({.user = "alice", .queue = "a"});
  world.finish(second, ExitCause::killed);
  world.submit({.user = "bob", .queue = "b", .tasks_min = 2});
  world.finish(first);
  world.event(JobCancelled{JobId(2), "bob"});
  return world.log;
}

std::vector<std::string> audit(const Log& log) {
  Ledger ledger;
  for (const auto& [event, decisions] : log) ledger.row(event, decisions);
  return ledger.violations;
}

// Changes the first decision of a kind for which `change` says true, and tells whether there was one.
template <class Kind, class Change>
bool change_first(Log& log, Change change) {
  for (auto& [event, decisions] : log) {
    for (Decision& decision : decisions) {
      if (auto* found = std::get_if<Kind>(&decision); found != nullptr && change(*found)) return true;
    }
  }
  return false;
}

TEST(Audit, AcceptsAGoodLogAndRejectsEveryFaultyOne) {
  ASSERT_TRUE(audit(good_log()).empty()) << audit(good_log()).front();
  const std::vector<std::pair<const char*, bool (*)(Log&)>> faults = {
      {"GPU given twice",
       [](Log& log) {
         return change_first<Start>(log, [](Start& s) {
           if (s.task.job != JobId(2)) return false;
           s.slices[0].gpu = GpuId(1);
           return true;
         });
       }},
      {"unknown GPU",
       [](Log& log) {
         return change_first<Start>(log, [](Start& s) {
           s.slices[0].gpu = GpuId(9);
           return true;
         });
       }},
      {"less memory than the whole",
       [](Log& log) {
         return change_first<Start>(log, [](Start& s) {
           s.slices[0].memory = MiB(1);
           return true;
         });
       }},
      {"wrong attempt",
       [](Log& log) {
         return change_first<Start>(log, [](Start& s) {
           s.task.attempt = 2;
           return true;
         });
       }},
      {"missing slice",
       [](Log& log) {
         return change_first<Start>(log, [](Start& s) {
           s.slices.clear();
           return true;
         });
       }},
      {"skipped attempt",
       [](Log& log) {
         return change_first<Requeue>(log, [](Requeue& r) {
           ++r.attempt;
           return true;
         });
       }},
      {"state that is not final",
       [](Log& log) {
         return change_first<End>(log, [](End& e) {
           e.state = JobState::running;
           return true;
         });
       }},
      {"reclaim from within a quota",
       [](Log& log) {
         return change_first<Stop>(log, [&](Stop& s) {
           log[0].first.payload = PolicyChanged{two_queues(1'000, 2'000)};
           return s.reason == StopReason::reclaimed;
         });
       }},
      {"preemption across queues",
       [](Log& log) {
         return change_first<Stop>(log, [](Stop& s) {
           s.reason = StopReason::preempted;
           return true;
         });
       }},
      {"victim for nobody",
       [](Log& log) {
         return change_first<Stop>(log, [](Stop& s) {
           s.beneficiary = JobId(77);
           return true;
         });
       }},
      {"start doubled",
       [](Log& log) {
         for (auto& row : log) {
           if (row.second.empty() || !std::holds_alternative<Start>(row.second[0])) continue;
           const Decision again = row.second[0];
           row.second.push_back(again);
           return true;
         }
         return false;
       }},
      {"start on a drained GPU",
       [](Log& log) {
         for (auto& row : log) {
           if (!std::holds_alternative<TaskStarted>(row.first.payload)) continue;
           row.first.payload = GpuDrained{GpuId(2), "root", ""};
           return true;
         }
         return false;
       }},
      {"release before the exit is no release",
       [](Log& log) {
         // The victim's exit is lost from the log, so its GPU is not free when it is given away.
         for (auto& row : log) {
           if (!std::holds_alternative<TaskExited>(row.first.payload)) continue;
           row.first.payload = Tick{};
           return true;
         }
         return false;
       }},
  };
  for (const auto& [name, make] : faults) {
    Log log = good_log();
    ASSERT_TRUE(make(log)) << name;
    EXPECT_FALSE(audit(log).empty()) << "not noticed: " << name;
  }
}

}  // namespace
}  // namespace tranche::scheduler::test
