#include "machine/admission.h"

#include <gtest/gtest.h>

namespace tranche::machine {
namespace {

const Caller kAlice{2001, 2001, "alice", false};
const Caller kOperator{2002, 2002, "bob", true};

api::SubmitRequest request() {
  api::SubmitRequest request;
  request.argv = {"/usr/bin/python3", "train.py"};
  request.directory = "/home/alice";
  return request;
}

TEST(Admission, FillsInTheClassesDefaults) {
  Policy policy;
  const auto job = admit(request(), kAlice, policy, false);
  ASSERT_TRUE(job);
  EXPECT_EQ(job->spec.job_class, JobClass::training);
  EXPECT_EQ(job->spec.time_limit, policy.for_class(JobClass::training).time_limit_default);
  EXPECT_TRUE(job->spec.preemptible);
  EXPECT_EQ(job->spec.grace, policy.grace_default);
  EXPECT_EQ(job->name, "python3");
  EXPECT_EQ(job->spec.queue, "default/alice");
}

TEST(Admission, ADefaultNameCanBePrintedAndIsCutBetweenCharacters) {
  const auto name_of = [](const std::string& command) {
    auto odd = request();
    odd.argv = {command};
    return admit(odd, kAlice, Policy(), false)->name;
  };
  EXPECT_EQ(name_of("/bin/\u009b31mred\u202e\x1b[m"), "31mred[m");
  EXPECT_EQ(name_of("/bin/\u009b"), "job");
  EXPECT_EQ(name_of("/bin/"), "job");
  std::string long_name = "x";
  for (int i = 0; i < 40; ++i) long_name += "é";
  EXPECT_EQ(name_of(long_name), long_name.substr(0, 63));
}

TEST(Admission, TakesIdentityFromTheKernelOnly) {
  const auto job = admit(request(), kAlice, Policy(), false);
  ASSERT_TRUE(job);
  EXPECT_EQ(job->spec.owner, (Owner{2001, 2001, "alice"}));
}

TEST(Admission, RefusesRoot) {
  EXPECT_EQ(admit(request(), Caller{0, 0, "root", true}, Policy(), false).error().code(), ErrorCode::denied);
}

TEST(Admission, OnlyOperatorsRaisePriorityAboveTheClass) {
  auto raised = request();
  raised.priority = 10;
  EXPECT_EQ(admit(raised, kAlice, Policy(), false).error().code(), ErrorCode::denied);
  EXPECT_TRUE(admit(raised, kOperator, Policy(), false));
  raised.priority = -10;
  EXPECT_TRUE(admit(raised, kAlice, Policy(), false)) << "stepping back is free";
}

TEST(Admission, ATerminalMakesAJobInteractive) {
  auto terminal = request();
  terminal.pty = true;
  EXPECT_EQ(admit(terminal, kAlice, Policy(), true)->spec.job_class, JobClass::interactive);
  EXPECT_EQ(admit(request(), kAlice, Policy(), true)->spec.job_class, JobClass::training);
}

TEST(Admission, RefusesWhatAForegroundJobCannotBe) {
  auto array = request();
  array.array = ArraySpec{{1, 2}, 0};
  EXPECT_FALSE(admit(array, kAlice, Policy(), true));
  auto held = request();
  held.held = true;
  EXPECT_FALSE(admit(held, kAlice, Policy(), true));
  auto gang = request();
  gang.tasks = api::TaskCount{2, 2};
  EXPECT_FALSE(admit(gang, kAlice, Policy(), true));
}

TEST(LeafQueue, IsTheUsersOwnBelowTheQueue) {
  EXPECT_EQ(leaf_queue(std::nullopt, "alice", Policy()), "default/alice");
  EXPECT_EQ(leaf_queue("physics/vision", "alice", Policy()), "physics/vision/alice");
  EXPECT_EQ(leaf_queue("physics/vision/alice", "alice", Policy()), "physics/vision/alice");
}

}  // namespace
}  // namespace tranche::machine
