// When what runs of a job is enough, and what comes and goes next.
#include "model/task_groups.h"

#include <gtest/gtest.h>

namespace tranche {
namespace {

TaskGroup tasks(uint32_t parent, uint32_t least, uint32_t most) {
  TaskGroup group;
  group.parent = parent;
  group.tasks_min = least;
  group.tasks_max = most;
  return group;
}

TaskGroup groups(uint32_t parent, uint32_t least) {
  TaskGroup group;
  group.parent = parent;
  group.groups_min = least;
  return group;
}

// Two replicas of an encoder and a decoder, of which one is enough.
JobSpec two_replicas() {
  JobSpec spec;
  spec.groups = {groups(0, 0), tasks(1, 1, 2), tasks(1, 1, 1), groups(0, 0), tasks(4, 1, 2), tasks(4, 1, 1)};
  spec.groups_min = 1;
  spec.tasks_min = 2;
  spec.tasks_max = 6;
  return spec;
}

TaskGroups::RankSet running(const JobSpec& spec, const TaskGroups::Ranks& ranks) {
  TaskGroups::RankSet set(spec.tasks_max);
  for (const uint32_t rank : ranks) set[rank] = true;
  return set;
}

TEST(TaskGroups, StartsWithTheFewestThatAreEnough) {
  const JobSpec spec = two_replicas();
  ASSERT_EQ(check_groups(spec), "");
  const TaskGroups parts(spec);
  EXPECT_EQ(parts.missing(running(spec, {})), (TaskGroups::Ranks{0, 2}));
  EXPECT_FALSE(parts.is_satisfied(running(spec, {0, 3})));
  EXPECT_TRUE(parts.is_satisfied(running(spec, {3, 5})));
}

TEST(TaskGroups, GrowsByTasksAndByWholeParts) {
  const JobSpec spec = two_replicas();
  const TaskGroups parts(spec);
  EXPECT_EQ(parts.next_step(running(spec, {0, 2})), (TaskGroups::Ranks{1}));
  // The second replica comes with all that it needs, or not at all.
  EXPECT_EQ(parts.next_step(running(spec, {0, 1, 2})), (TaskGroups::Ranks{3, 5}));
  EXPECT_EQ(parts.next_step(running(spec, {0, 1, 2, 3, 4, 5})), TaskGroups::Ranks{});
  // What it lacks comes before what it may have beyond that.
  EXPECT_EQ(parts.next_step(running(spec, {1, 3})), (TaskGroups::Ranks{2}));
}

TEST(TaskGroups, GivesUpTheLastRanksFirst) {
  const JobSpec spec = two_replicas();
  const TaskGroups parts(spec);
  EXPECT_EQ(parts.surplus(running(spec, {0, 1, 2})), (TaskGroups::Ranks{1}));
  EXPECT_EQ(parts.surplus(running(spec, {0, 2})), TaskGroups::Ranks{});
  EXPECT_EQ(parts.surplus(running(spec, {0, 1, 2, 3, 4, 5})), (TaskGroups::Ranks{5, 4, 3, 1}));
}

TEST(TaskGroups, AJobWithoutGroupsIsOnePart) {
  JobSpec spec;
  spec.tasks_min = 2;
  spec.tasks_max = 4;
  spec.task.gpu.count = 3;
  const TaskGroups parts(spec);
  EXPECT_EQ(parts.missing(running(spec, {3})), (TaskGroups::Ranks{0}));
  EXPECT_EQ(parts.surplus(running(spec, {0, 1, 2, 3})), (TaskGroups::Ranks{3, 2}));
  EXPECT_EQ(request_of(spec, 3).gpu.count, 3u);
}

TEST(TaskGroups, EachRankAsksForWhatItsGroupDoes) {
  JobSpec spec = two_replicas();
  spec.groups[2].task.gpu.count = 4;
  EXPECT_EQ(request_of(spec, 1).gpu.count, 0u);
  EXPECT_EQ(request_of(spec, 2).gpu.count, 4u);
}

TEST(TaskGroups, WhatCannotBeIsRefusedWithAdvice) {
  const auto problem = [](auto change) {
    JobSpec spec = two_replicas();
    change(spec);
    return check_groups(spec);
  };
  EXPECT_NE(problem([](JobSpec& s) { s.groups[1].parent = 5; }).find("must come after"), std::string::npos);
  EXPECT_NE(problem([](JobSpec& s) { s.groups[2].parent = 2; }).find("must not be part"), std::string::npos);
  EXPECT_NE(problem([](JobSpec& s) { s.groups[1].tasks_min = 3; }).find("tasks_min"), std::string::npos);
  EXPECT_NE(problem([](JobSpec& s) { s.groups_min = 3; }).find("groups_min"), std::string::npos);
  EXPECT_NE(problem([](JobSpec& s) { s.tasks_max = 7; }).find("sum"), std::string::npos);
  EXPECT_NE(problem([](JobSpec& s) { s.tasks_min = 1; }).find("must be 2"), std::string::npos);
  EXPECT_NE(problem([](JobSpec& s) { s.groups.push_back(groups(0, 0)); }).find("must have tasks"),
            std::string::npos);
  JobSpec none = two_replicas();
  for (TaskGroup& group : none.groups) group.tasks_min = 0;
  EXPECT_NE(check_groups(none).find("at least one task"), std::string::npos);
}

}  // namespace
}  // namespace tranche
