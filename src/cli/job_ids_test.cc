#include "cli/job_ids.h"

#include <gtest/gtest.h>

#include "cli/daemon.h"
#include "cli/fake_daemon.h"
#include "cli/session.h"

namespace tranche::cli {
namespace {

using Kind = JobReference::Kind;

std::vector<JobReference> parsed(std::string_view text) {
  Result<std::vector<JobReference>> references = parse_job_references(text);
  if (!references) {
    ADD_FAILURE() << text << ": " << references.error().message();
    return {};
  }
  return std::move(*references);
}

JobReference job(uint64_t id) { return {.kind = Kind::kJob, .job = id}; }
JobReference element(uint64_t array, uint32_t index) {
  return {.kind = Kind::kElement, .job = array, .index = index};
}
JobReference recent(uint32_t back) { return {.kind = Kind::kRecent, .back = back}; }

TEST(JobReferences, AllForms) {
  EXPECT_EQ(parsed("7"), std::vector{job(7)});
  EXPECT_EQ(parsed("7-9"), (std::vector{job(7), job(8), job(9)}));
  EXPECT_EQ(parsed("7,9"), (std::vector{job(7), job(9)}));
  EXPECT_EQ(parsed("7_3"), std::vector{element(7, 3)});
  EXPECT_EQ(parsed("7_[1-3,5]"), (std::vector{element(7, 1), element(7, 2), element(7, 3), element(7, 5)}));
  EXPECT_EQ(parsed("7_0,@-1"), (std::vector{element(7, 0), recent(1)}));
  EXPECT_EQ(parsed("@"), std::vector{recent(0)});
}

TEST(JobReferences, Mistakes) {
  for (const std::string_view bad :
       {"",      "x",    "7-",   "9-7",     "0",  "7_",   "7_1-3",       "7_[1",
        "7_[]",  "@x",   "@-0",  "@-",      "-7", "7,,8", "1-999999999", "99999999999999999999",
        "7; rm", "7\n8", "--me", "7_[3-1]", "@1"}) {
    EXPECT_FALSE(parse_job_references(bad).has_value()) << bad;
  }
}

// Array 10 has the indices 1, 2, 5, 9 in the jobs 10..13; job 14 is another one.
testing::FakeReply answer(const testing::FakeRequest& request) {
  const uint32_t indices[] = {1, 2, 5, 9};
  const std::string prefix = "/v1/jobs/";
  if (request.target.starts_with(prefix)) {
    const uint64_t id = std::stoull(request.target.substr(prefix.size()));
    if (id < 10 || id > 14) return testing::problem(404, "not_found", "there is no such job");
    api::JobDetail detail;
    detail.job = JobId(id);
    detail.display = std::to_string(id);
    detail.user = "ada";
    detail.submitted = Time(1);
    if (id < 14) detail.array = api::ArrayElement{JobId(10), indices[id - 10]};
    return {.body = api::encode(detail)};
  }
  api::JobList list;
  for (const uint64_t id : request.target.starts_with("/v1/history")
                               ? std::vector<uint64_t>{14, 3}
                               : std::vector<uint64_t>{10, 11, 12, 13}) {
    api::JobSummary summary;
    summary.job = JobId(id);
    summary.submitted = Time(1);
    if (id >= 10 && id < 14) summary.array = api::ArrayElement{JobId(10), indices[id - 10]};
    list.jobs.push_back(summary);
  }
  return {.body = api::encode(list)};
}

std::vector<uint64_t> found(const std::string& word, BareArray bare) {
  testing::FakeDaemon server(answer);
  Session::Setup setup;
  setup.user = "ada";
  Session session(setup);
  session.socket_path = server.socket_path();
  Daemon daemon(session);
  const Result<std::vector<api::JobDetail>> jobs = find_jobs(daemon, session, {&word, 1}, bare);
  if (!jobs) return {};
  std::vector<uint64_t> ids;
  for (const api::JobDetail& job : *jobs) ids.push_back(job.job.value());
  return ids;
}

TEST(FindJobs, ElementsOfAnArrayWithGaps) {
  EXPECT_EQ(found("10_1", BareArray::kFirst), std::vector<uint64_t>{10});
  EXPECT_EQ(found("10_5", BareArray::kFirst), std::vector<uint64_t>{12});
  EXPECT_EQ(found("10_9", BareArray::kFirst), std::vector<uint64_t>{13});
  EXPECT_EQ(found("10_[2,9]", BareArray::kFirst), (std::vector<uint64_t>{11, 13}));
  EXPECT_EQ(found("10_3", BareArray::kFirst), std::vector<uint64_t>{});
  EXPECT_EQ(found("10_0", BareArray::kFirst), std::vector<uint64_t>{});
  EXPECT_EQ(found("14_1", BareArray::kFirst), std::vector<uint64_t>{});
}

TEST(FindJobs, ABareArrayIsAllOfItWhereThatIsMeant) {
  EXPECT_EQ(found("10", BareArray::kFirst), std::vector<uint64_t>{10});
  EXPECT_EQ(found("10", BareArray::kWhole), (std::vector<uint64_t>{10, 11, 12, 13}));
  EXPECT_EQ(found("14", BareArray::kWhole), std::vector<uint64_t>{14});
  EXPECT_EQ(found("10,10_2", BareArray::kWhole), (std::vector<uint64_t>{10, 11, 12, 13}));
}

TEST(FindJobs, TheLastOnesAreCountedBySubmission) {
  EXPECT_EQ(found("@", BareArray::kFirst), std::vector<uint64_t>{14});
  EXPECT_EQ(found("@-1", BareArray::kFirst), std::vector<uint64_t>{10});
  EXPECT_EQ(found("@-9", BareArray::kFirst), std::vector<uint64_t>{});
}

}  // namespace
}  // namespace tranche::cli
