#include "cli/top_page.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "cli/text.h"

namespace tranche::cli {
namespace {

TopState busy_server(size_t jobs) {
  TopState state;
  state.now = Time(1'796'000'000'000'000'000);
  state.status.jobs_running = 1;
  state.status.jobs_waiting = static_cast<uint32_t>(jobs - 1);
  for (uint32_t index = 0; index < 2; ++index) {
    api::GpuStatus& gpu = state.gpus.gpus.emplace_back();
    gpu.index = index;
    gpu.type = "h100-80";
    gpu.memory_total = MiB(81920);
  }
  state.gpus.gpus[0].utilisation_percent = 55;
  state.gpus.gpus[0].memory_used = MiB(40960);
  api::SliceRow& slice = state.gpus.gpus[0].slices.emplace_back();
  slice.job = JobId(7);
  slice.user = "ada";
  for (size_t i = 0; i < jobs; ++i) {
    api::JobSummary& job = state.jobs.emplace_back();
    job.job = JobId(100 - i);
    job.display = std::to_string(100 - i);
    job.user = "ada";
    job.state = i + 1 == jobs ? JobState::running : JobState::pending;
  }
  return state;
}

std::vector<std::string> lines_of(const std::string& page) {
  std::vector<std::string> lines = split(page, '\n');
  lines.pop_back();
  return lines;
}

TEST(TopPage, ShowsLoadAndHolders) {
  const auto lines = lines_of(top_page(busy_server(3), Look{}, 0, 0));
  EXPECT_NE(lines[0].find("1 of 2 GPUs in use, 1 running, 2 waiting"), std::string::npos) << lines[0];
  EXPECT_NE(lines[2].find("#####-----    55%"), std::string::npos) << lines[2];
  EXPECT_NE(lines[2].find("40G/80G"), std::string::npos) << lines[2];
  EXPECT_NE(lines[2].find("7 ada"), std::string::npos) << lines[2];
  EXPECT_NE(lines[3].find("free"), std::string::npos) << lines[3];
  EXPECT_NE(lines[6].find("running"), std::string::npos) << "what runs comes first: " << lines[6];
}

TEST(TopPage, NeverLargerThanTheTerminal) {
  for (const size_t jobs : {size_t{1}, size_t{5}, size_t{80}}) {
    for (const size_t rows : {size_t{1}, size_t{4}, size_t{7}, size_t{8}, size_t{24}}) {
      for (const size_t width : {size_t{20}, size_t{60}, size_t{120}}) {
        const auto lines = lines_of(top_page(busy_server(jobs), Look{.width = width}, 0, rows));
        EXPECT_LE(lines.size(), rows) << jobs << " jobs, " << width << " wide";
        for (const std::string& line : lines) EXPECT_LE(display_width(line), width) << line;
      }
    }
  }
}

TEST(TopPage, CountsWhatHasNoRoom) {
  const auto lines = lines_of(top_page(busy_server(80), Look{}, 0, 24));
  ASSERT_EQ(lines.size(), 24U);
  const auto shown =
      static_cast<size_t>(std::count_if(lines.begin(), lines.end(), [](const std::string& line) {
        return line.find("pending") != std::string::npos || line.find("running  ") != std::string::npos;
      }));
  EXPECT_EQ(lines.back(), "and " + std::to_string(80 - shown) + " more")
      << "of 80, " << shown << " are shown";
}

}  // namespace
}  // namespace tranche::cli
