#include "codec/job_rows.h"

#include <gtest/gtest.h>

#include "codec/random_values.h"

namespace tranche::api {
namespace {

// What the lines have no column for.
JobSummary without_what_lines_lack(JobSummary job) {
  job.array.reset();
  job.exit_code.reset();
  job.signal.reset();
  job.cause.reset();
  job.over_quota = false;
  if (job.name && job.name->empty()) job.name.reset();
  if (job.reason && job.reason->empty()) job.reason.reset();
  return job;
}

Result<void> read_into(std::string_view text, std::vector<JobSummary>& jobs) {
  return read_job_rows(text, [&](const JobSummary& job) { jobs.push_back(job); });
}

TEST(JobRows, AreReadAsTheyWereWritten) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    json::RandomFiller filler(seed);
    std::string text(kJobRowsHeading);
    std::vector<JobSummary> written;
    JobRowWriter writer;
    for (uint64_t i = filler.random.below(30); i > 0; --i) {
      JobSummary job = without_what_lines_lack(filler.make<JobSummary>());
      if (filler.random.chance(1, 3)) job.reason = "a\tb\nc\\d\re\\";
      if (!written.empty() && filler.random.chance(1, 2)) job.gpu = written.back().gpu;
      writer.append(text, job);
      written.push_back(std::move(job));
    }
    std::vector<JobSummary> read;
    const auto done = read_into(text, read);
    ASSERT_TRUE(done.has_value()) << done.error().message();
    EXPECT_EQ(read, written);
  }
}

TEST(JobRows, ColumnsOfANewerDaemonArePassedOver) {
  JobSummary job;
  job.job = JobId(7);
  job.display = "7";
  job.reason = "waits";
  std::string row;
  append_job_row(row, job);
  std::string text(kJobRowsHeading);
  text.insert(text.size() - 1, "\tcolour");
  text += row;
  text.insert(text.size() - 1, "\tblue");
  std::vector<JobSummary> read;
  ASSERT_TRUE(read_into(text, read).has_value());
  EXPECT_EQ(read, std::vector<JobSummary>{job});
}

TEST(JobRows, WhatIsDamagedIsRefusedWithItsLine) {
  JobSummary job;
  job.job = JobId(7);
  job.display = "7";
  std::string row;
  append_job_row(row, job);
  const std::string good = std::string(kJobRowsHeading) + row;
  std::vector<JobSummary> read;
  EXPECT_FALSE(read_into("", read).has_value());
  EXPECT_FALSE(read_into("jobs\n" + row, read).has_value());
  EXPECT_FALSE(read_into("{\"jobs\":[]}", read).has_value());
  for (size_t cut = kJobRowsHeading.size() + 1; cut < good.size(); ++cut) {
    const auto done = read_into(std::string_view(good).substr(0, cut), read);
    ASSERT_FALSE(done.has_value()) << cut;
    EXPECT_NE(done.error().message().find("line 2"), std::string::npos);
  }
  for (const char* bad : {"x7\t7", "-1\t7", "7\t\\x", "7\tends in \\"}) {
    EXPECT_FALSE(
        read_into(std::string(kJobRowsHeading) + bad + row.substr(row.find('\t', 2)), read).has_value())
        << bad;
  }
}

}  // namespace
}  // namespace tranche::api
