#include "cli/table.h"

#include <gtest/gtest.h>

#include "cli/job_text.h"
#include "cli/text.h"

namespace tranche::cli {
namespace {

Table example() {
  Table table({{.title = "ID", .right = true},
               {.title = "NAME", .width_min = 4},
               {.title = "REASON", .width_min = 6}});
  table.add({{"7"}, {"a-rather-long-name"}, {"waits for jobs 1, 2 and 3"}});
  table.add({{"1234"}, {"x"}, {""}});
  return table;
}

TEST(Table, AsWideAsItsContentOffTheTerminal) {
  EXPECT_EQ(example().render(Look{}),
            "  ID  NAME                REASON\n"
            "   7  a-rather-long-name  waits for jobs 1, 2 and 3\n"
            "1234  x\n");
}

TEST(Table, FitsTheTerminalFromTheWidestColumn) {
  for (size_t width = 20; width < 60; ++width) {
    for (const std::string& line : split(example().render(Look{.width = width}), '\n')) {
      EXPECT_LE(display_width(line), width) << line;
    }
  }
}

TEST(Table, ColumnsLeaveWhereNoneCanBeNarrower) {
  Table table({{.title = "ID"},
               {.title = "QUEUE", .width_min = 5, .leaves = 1},
               {.title = "CLASS", .leaves = 2},
               {.title = "TIME"}});
  table.add({{"7"}, {"default/ada"}, {"training"}, {"2h"}});
  EXPECT_EQ(table.render(Look{.width = 40}),
            "ID  QUEUE        CLASS     TIME\n7   default/ada  training  2h\n");
  EXPECT_EQ(table.render(Look{.width = 21}), "ID  QUEUE        TIME\n7   default/ada  2h\n");
  EXPECT_EQ(table.render(Look{.width = 16}), "ID  QUEUE   TIME\n7   defau…  2h\n");
  EXPECT_EQ(table.render(Look{.width = 9}), "ID  TIME\n7   2h\n");
  EXPECT_EQ(table.render(Look{.width = 6}), "ID  T…\n7   2h\n");
}

TEST(Table, OthersTextCannotActOnTheTerminal) {
  Table table({{.title = "NAME"}});
  table.add({{"evil\x1b[2J\nname"}});
  EXPECT_EQ(table.render(Look{}), "NAME\nevil\\x1b[2J\\nname\n");
}

TEST(Table, ColourOnlyWhereItIsWanted) {
  Table table({{.title = "STATE"}});
  table.add({{"running", Style::kGreen}});
  EXPECT_EQ(table.render(Look{}).find('\x1b'), std::string::npos);
  EXPECT_NE(table.render(Look{.colour = true}).find("\x1b[32mrunning\x1b[0m"), std::string::npos);
}

TEST(JobText, GpuRequestNamesItsTier) {
  api::JobSummary job;
  EXPECT_EQ(gpu_text(job), "-");
  job.gpu.count = 2;
  job.gpu.type = "h100-80";
  job.tier = api::Tier::enforced;
  EXPECT_EQ(gpu_text(job), "h100-80:2");
  job.gpu = GpuRequest();
  job.gpu.count = 1;
  job.gpu.kind = SliceKind::fraction;
  job.gpu.compute = MilliGpu(500);
  job.tier = api::Tier::unenforced;
  EXPECT_EQ(gpu_text(job), "0.5 unenforced");
  job.tier.reset();  // an old daemon that does not say: never claim more
  job.gpu.memory = MiB(20480);
  EXPECT_EQ(gpu_text(job), "0.5+20G unenforced");
}

TEST(JobText, IndicesAreShort) {
  const std::vector<uint32_t> indices = {7, 0, 1, 2, 5, 6};
  EXPECT_EQ(indices_text(indices), "0-2,5-7");
  const std::vector<uint32_t> two = {1, 0};
  EXPECT_EQ(indices_text(two), "0,1");
  EXPECT_EQ(indices_text({}), "-");
}

TEST(JobText, ExitCodes) {
  const auto code = [](JobState state, int exit, int signal) {
    api::JobSummary job;
    job.state = state;
    if (exit >= 0) job.exit_code = exit;
    if (signal > 0) job.signal = signal;
    return job_exit_code(job);
  };
  EXPECT_EQ(code(JobState::completed, 0, 0), 0);
  EXPECT_EQ(code(JobState::failed, 3, 0), 3);
  EXPECT_EQ(code(JobState::failed, -1, 11), 139);
  EXPECT_EQ(code(JobState::failed, -1, 0), 125);  // it never executed
  EXPECT_EQ(code(JobState::timed_out, -1, 15), 124);
  EXPECT_EQ(code(JobState::out_of_memory, -1, 9), 137);
  EXPECT_EQ(code(JobState::cancelled, -1, 0), 1);
  EXPECT_EQ(code(JobState::cancelled, 0, 0), 1);
  EXPECT_EQ(code(JobState::node_failed, -1, 0), 125);
  EXPECT_EQ(code(JobState::unknown, -1, 0), 125);
}

}  // namespace
}  // namespace tranche::cli
