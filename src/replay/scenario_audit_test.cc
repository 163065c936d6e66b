// The audit must object: each test does what no scheduler may and looks for the objection.
#include "replay/scenario_audit.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace tranche::replay {
namespace {

// Two 1-GPU nodes; queue q (quota 2, limit 2) with running jobs a and b, and waiting: c (1 GPU), d (2 tasks
// of 1 GPU).
constexpr std::string_view kCase =
    R"({"id":"x","nodes":[{"name":"n0","gpus":1},{"name":"n1","gpus":1}],)"
    R"("queues":[{"name":"q","deserved_gpus":2,"limit_gpus":LIMIT,"weight":1}],"jobs":[)"
    R"({"name":"a","queue":"q","priority":50,"created_order":0,"tasks":[{"id":"a-0","gpus":1,"state":"running","node":"n0"}]},)"
    R"({"name":"b","queue":"q","priority":100,"created_order":1,"tasks":[{"id":"b-0","gpus":1,"state":"running","node":"n1"}]},)"
    R"({"name":"c","queue":"q","priority":75,"created_order":2,"tasks":[{"id":"c-0","gpus":1,"state":"pending"}]},)"
    R"({"name":"d","queue":"q","priority":75,"created_order":3,"min_members":2,)"
    R"("tasks":[{"id":"d-0","gpus":1,"state":"pending"},{"id":"d-1","gpus":1,"state":"pending"}]}],"expected":{}})";

class Audited : public ::testing::Test {
 protected:
  void begin(const std::string& limit) {
    std::string text(kCase);
    text.replace(text.find("LIMIT"), 5, limit);
    const auto document = json::Document::parse(text, ErrorCode::corrupt);
    ASSERT_TRUE(document) << document.error().message();
    auto scenario = read_scenario(document->root());
    ASSERT_TRUE(scenario) << scenario.error().message();
    scenario_ = std::move(*scenario);
    auto cluster = ScenarioCluster::build(scenario_, Policy{});
    ASSERT_TRUE(cluster) << cluster.error().message();
    cluster_ = std::move(*cluster);
    audit_.emplace(scenario_, cluster_);
    for (const PlacedJob& job : cluster_.jobs) {
      if (job.ranks.front().node.is_set())
        audit_->started(Start{{job.id, 0, 1}, job.ranks.front().node, job.ranks.front().slices}, true);
    }
  }
  void start(uint64_t job, uint32_t rank, uint32_t gpu) {
    const Slice slice{GpuId(gpu), SliceKind::whole, kWholeGpu, MiB(100)};
    audit_->started(Start{{JobId(job), rank, 1}, NodeId(gpu), {slice}}, false);
  }
  void stop(uint64_t job, uint64_t beneficiary) {
    audit_->stopped(Stop{{JobId(job), 0, 1}, StopReason::preempted, JobId(beneficiary)});
    audit_->released({JobId(job), 0, 1});
  }
  bool objects_to(std::string_view what) const {
    return std::any_of(audit_->violations.begin(), audit_->violations.end(),
                       [&](const std::string& each) { return each.find(what) != std::string::npos; });
  }

  Scenario scenario_;
  ScenarioCluster cluster_;
  std::optional<ScenarioAudit> audit_;
};

TEST_F(Audited, NothingIsSaidOfARightEviction) {
  begin("-1");
  stop(1, 3);
  start(3, 0, 1);
  audit_->quiet();
  EXPECT_TRUE(audit_->violations.empty()) << audit_->violations.front();
}

TEST_F(Audited, ADeviceTwice) {
  begin("-1");
  start(3, 0, 1);
  EXPECT_TRUE(objects_to("beyond what it has"));
}

TEST_F(Audited, AQueueBeyondItsLimit) {
  begin("1");
  stop(1, 3);
  start(3, 0, 1);
  EXPECT_TRUE(objects_to("beyond its limit"));
}

TEST_F(Audited, AGangInPart) {
  begin("-1");
  stop(1, 4);
  start(4, 0, 1);
  audit_->quiet();
  EXPECT_TRUE(objects_to("job d runs in part"));
}

TEST_F(Audited, AnEvictionForNobodyAndOneInVain) {
  begin("-1");
  stop(1, 0);
  EXPECT_TRUE(objects_to("evicted for nobody"));
  begin("-1");
  stop(1, 3);
  audit_->quiet();
  EXPECT_TRUE(objects_to("did not start"));
}

TEST_F(Audited, WhatIsNotPreemptibleAndInsideItsQuota) {
  begin("-1");
  stop(2, 3);
  EXPECT_TRUE(objects_to("not preemptible"));
}

TEST_F(Audited, AVictimThatWasNotNeeded) {
  begin("-1");
  // Job c needs one GPU, and two jobs went for it.
  audit_->stopped(Stop{{JobId(1), 0, 1}, StopReason::preempted, JobId(3)});
  audit_->stopped(Stop{{JobId(2), 0, 1}, StopReason::preempted, JobId(3)});
  audit_->quiet();
  EXPECT_TRUE(objects_to("need not have been"));
}

}  // namespace
}  // namespace tranche::replay
