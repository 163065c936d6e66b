#include "cli/job_request.h"

#include <gtest/gtest.h>

#include "cli/command_line.h"
#include "cli/dependency_text.h"
#include "cli/session.h"

namespace tranche::cli {
namespace {

using Words = std::vector<std::string>;

Session::Setup setup() {
  Session::Setup setup;
  setup.directory = "/home/ada";
  setup.environment = {"HOME=/home/ada", "PATH=/bin"};
  setup.now = Time(1'796'000'000'000'000'000);
  return setup;
}

Result<api::SubmitRequest> request_of(Words words) {
  Session session(setup());
  words.insert(words.begin(), "submit");
  words.insert(words.end(), {"--", "true"});
  TRY_ASSIGN(const CommandLine line, parse_command_line(words));
  return make_submit_request(session, line.arguments);
}

api::SubmitRequest accepted(const Words& words) {
  Result<api::SubmitRequest> request = request_of(words);
  if (!request) {
    ADD_FAILURE() << request.error().message();
    return {};
  }
  return std::move(*request);
}

std::string refused(const Words& words) {
  const Result<api::SubmitRequest> request = request_of(words);
  if (request) return "accepted";
  EXPECT_EQ(exit_code(request.error().code()), 2);
  return request.error().message();
}

TEST(JobRequest, WithoutOptionsAsksForNothingSpecial) {
  const api::SubmitRequest request = accepted({});
  EXPECT_EQ(request.directory, "/home/ada");
  EXPECT_TRUE(request.umask.has_value());
  EXPECT_EQ(request.environment.size(), 2U);
  api::SubmitRequest rest = request;
  rest.directory.clear();
  rest.umask.reset();
  rest.environment.clear();
  EXPECT_EQ(rest, api::SubmitRequest());
}

TEST(JobRequest, Gpus) {
  EXPECT_EQ(accepted({"-G", "2"}).gpu->count, 2U);
  EXPECT_EQ(accepted({"-G", "2"}).gpu->kind, SliceKind::whole);
  EXPECT_FALSE(accepted({"-G", "0"}).gpu.has_value());
  EXPECT_EQ(accepted({"-G", "h100-80:4"}).gpu->type, "h100-80");
  EXPECT_EQ(accepted({"-G", "h100-80:4"}).gpu->count, 4U);
  EXPECT_EQ(accepted({"-G", "rtx4090"}).gpu->count, 1U);
  EXPECT_EQ(accepted({"-G", "rtx4090"}).gpu->type, "rtx4090");
  const GpuRequest half = *accepted({"--gpus=0.5"}).gpu;
  EXPECT_EQ(half.kind, SliceKind::fraction);
  EXPECT_EQ(half.count, 1U);
  EXPECT_EQ(half.compute, MilliGpu(500));
  const GpuRequest typed = *accepted({"-G", "t4:0.25"}).gpu;
  EXPECT_EQ(typed.type, "t4");
  EXPECT_EQ(typed.compute, MilliGpu(250));
  const GpuRequest memory = *accepted({"--gpu-mem", "20G"}).gpu;
  EXPECT_EQ(memory.count, 1U);
  EXPECT_EQ(memory.kind, SliceKind::fraction);
  EXPECT_EQ(memory.memory, MiB(20480));
  EXPECT_EQ(memory.compute, MilliGpu(0));
  const GpuRequest both = *accepted({"-G", "2", "--gpu-mem", "8G", "--gpu-compute", "30%"}).gpu;
  EXPECT_EQ(both.count, 2U);
  EXPECT_EQ(both.compute, MilliGpu(300));
  EXPECT_EQ(accepted({"--exclusive", "-G", "1"}).gpu->kind, SliceKind::whole);
}

TEST(JobRequest, GpuMistakes) {
  for (const char* bad : {"nan", "1e-9", "-1", "1.5", "0.0001", "2:2", ":2", "h100:", "+1", ""}) {
    const Result<api::SubmitRequest> request = request_of({"-G", bad});
    EXPECT_TRUE(!request || (request->gpu && request->gpu->type == bad)) << bad;
  }
  EXPECT_NE(refused({"-G", "1.5"}).find("write 2 or 0.5"), std::string::npos);
  EXPECT_NE(refused({"-G", "200000"}).find("more than any machine has"), std::string::npos);
  EXPECT_NE(refused({"--exclusive", "-G", "0.5"}).find("contradict"), std::string::npos);
  EXPECT_NE(refused({"-G", "0.5", "--gpu-compute", "30%"}).find("give one of the two"), std::string::npos);
  EXPECT_NE(refused({"-G", "0", "--gpu-mem", "2G"}).find("0 GPUs"), std::string::npos);
  EXPECT_NE(refused({"--gpu-compute", "30"}).find("such as 30%"), std::string::npos);
  EXPECT_NE(refused({"--gpu-compute", "101%"}).find("between 0.1% and 100%"), std::string::npos);
  const GpuRequest burst = *accepted({"--gpu-mem", "10G..20G"}).gpu;
  EXPECT_EQ(burst.memory, MiB(10 * 1024));
  EXPECT_EQ(burst.memory_limit, MiB(20 * 1024));
  EXPECT_EQ(accepted({"--gpu-mem", "10G..10G"}).gpu->memory_limit, MiB()) << "no burst";
  EXPECT_NE(refused({"--gpu-mem", "20G..10G"}).find("less than it guarantees"), std::string::npos);
  for (const char* text : {"10G..", "..20G", "10G...20G", "10G..20G..30G", "0..20G"})
    refused({"--gpu-mem", text});
  EXPECT_NE(refused({"--gpu-mem", "20GB"}).find("--gpu-mem: "), std::string::npos);
}

TEST(JobRequest, RangesOfGpusAndOfTasks) {
  const GpuRequest moldable = *accepted({"-G", "1..4"}).gpu;
  EXPECT_EQ(moldable.count, 1U);
  EXPECT_EQ(moldable.count_max, 4U);
  EXPECT_EQ(accepted({"-G", "h100-80:2..4"}).gpu->type, "h100-80");
  EXPECT_EQ(accepted({"-G", "3..3"}).gpu->count_max, 0U) << "no range";
  const api::SubmitRequest elastic = accepted({"--elastic", "-G", "1..4"});
  EXPECT_TRUE(elastic.elastic);
  EXPECT_EQ(elastic.tasks, (api::TaskCount{1, 4}));
  EXPECT_EQ(elastic.gpu->count, 1U) << "a task has one, and there are more tasks";
  EXPECT_EQ(elastic.gpu->count_max, 0U);
  const api::SubmitRequest pairs = accepted({"--elastic", "-n", "2-8", "-G", "2"});
  EXPECT_EQ(pairs.tasks, (api::TaskCount{2, 8}));
  EXPECT_EQ(pairs.gpu->count, 2U);
  EXPECT_NE(refused({"--elastic", "-G", "2"}).find("range"), std::string::npos);
  EXPECT_NE(refused({"--elastic"}).find("range"), std::string::npos);
  EXPECT_NE(refused({"-n", "2", "-G", "1..4"}).find("--tasks"), std::string::npos);
  EXPECT_NE(refused({"-G", "4..1"}).find("smaller number first"), std::string::npos);
  EXPECT_NE(refused({"-G", "1..4", "--gpu-mem", "2G"}).find("range"), std::string::npos);
  for (const char* bad : {"..4", "1..", "1...4", "0..2", "1..x", "1..200000", "0.5..2"}) refused({"-G", bad});
}

TEST(JobRequest, HowGpusAreJoined) {
  EXPECT_EQ(accepted({"-G", "2", "--nvlink"}).gpu->topology, GpuTopology::nvlink);
  EXPECT_EQ(accepted({"-G", "2", "--numa"}).gpu->topology, GpuTopology::numa_node);
  EXPECT_EQ(accepted({"-G", "2"}).gpu->topology, GpuTopology::any);
  EXPECT_NE(refused({"--nvlink"}).find("whole GPUs"), std::string::npos);
  EXPECT_NE(refused({"-G", "0.5", "--numa"}).find("whole GPUs"), std::string::npos);
  EXPECT_NE(refused({"--gpu-mem", "8G", "--nvlink"}).find("whole GPUs"), std::string::npos);
  EXPECT_NE(refused({"-G", "2", "--nvlink", "--numa"}).find("one of the two"), std::string::npos);
}

TEST(JobRequest, EveryOtherOptionArrives) {
  EXPECT_EQ(accepted({"-J", "my run"}).name, "my run");
  EXPECT_EQ(accepted({"-c", "4"}).cpu, MilliCpu(4000));
  EXPECT_EQ(accepted({"--cpus", "0.5"}).cpu, MilliCpu(500));
  EXPECT_EQ(accepted({"--mem", "32G"}).memory, MiB(32768));
  EXPECT_EQ(accepted({"-n", "4"}).tasks, (api::TaskCount{4, 4}));
  EXPECT_EQ(accepted({"--tasks", "2-4"}).tasks, (api::TaskCount{2, 4}));
  EXPECT_EQ(accepted({"-t", "90"}).time_limit, 90 * kMinute);
  EXPECT_EQ(accepted({"--time", "1-12:00:00"}).time_limit, 36 * kHour);
  EXPECT_EQ(accepted({"-q", "physics/vision"}).queue, "physics/vision");
  EXPECT_EQ(accepted({"--partition", "gpu"}).queue, "gpu");
  EXPECT_EQ(accepted({"--class", "inference"}).job_class, JobClass::inference);
  EXPECT_EQ(accepted({"--priority", "-5"}).priority, -5);
  EXPECT_TRUE(accepted({"-H"}).held);
  EXPECT_EQ(accepted({"--requeue"}).requeue, true);
  EXPECT_EQ(accepted({"--no-requeue"}).requeue, false);
  EXPECT_EQ(accepted({"--grace", "45s"}).grace, 45 * kSecond);
  EXPECT_EQ(accepted({"-o", "out-%j"}).stdout_path, "out-%j");
  EXPECT_EQ(accepted({"-e", "err"}).stderr_path, "err");
  EXPECT_EQ(accepted({"-i", "in"}).stdin_path, "in");
  EXPECT_EQ(accepted({"-D", "/data"}).directory, "/data");
  EXPECT_EQ(accepted({"-D", "runs"}).directory, "/home/ada/runs");
  EXPECT_EQ(accepted({"--export", "NONE"}).environment.size(), 0U);
  EXPECT_EQ(accepted({"--begin", "now+2h"}).begin, setup().now + 2 * kHour);
}

TEST(JobRequest, OtherMistakes) {
  EXPECT_NE(refused({"--class", "gaming"}).find("training, inference and interactive"), std::string::npos);
  EXPECT_NE(refused({"-t", "0"}).find("every job has a limit"), std::string::npos);
  EXPECT_NE(refused({"-t", "forever"}).find("--time: "), std::string::npos);
  EXPECT_NE(refused({"-n", "0"}).find("--tasks: "), std::string::npos);
  EXPECT_NE(refused({"-n", "4-2"}).find("smaller number"), std::string::npos);
  EXPECT_NE(refused({"-c", "0"}).find("--cpus: "), std::string::npos);
  EXPECT_NE(refused({"--mem", "0"}).find("--mem: "), std::string::npos);
  EXPECT_NE(refused({"--priority", "high"}).find("--priority: "), std::string::npos);
  EXPECT_NE(refused({"--requeue", "--no-requeue"}).find("contradict"), std::string::npos);
  EXPECT_NE(refused({"--begin", "tomorrow"}).find("write 08:30"), std::string::npos);
  EXPECT_NE(refused({"--export", "A B"}).find("write ALL, NONE"), std::string::npos);
}

TEST(JobRequest, ValuesThatAreNoTextAreRefused) {
  for (const char* option : {"--name", "--output", "--error", "--input", "--chdir", "--queue", "--export",
                             "--gpus", "--class", "--time", "--begin", "--dependency", "--array"}) {
    for (const char* bad : {"\xff", "a\xc3(", "\xed\xa0\x80"}) {
      const std::string message = refused({option, bad});
      EXPECT_TRUE(message.starts_with(std::string(option) + ": '")) << message;
      EXPECT_NE(message.find(" is not UTF-8 text"), std::string::npos) << message;
    }
  }
  EXPECT_NE(refused({"--export", "A=\xff"}).find("is not UTF-8 text"), std::string::npos);
  Session::Setup elsewhere = setup();
  elsewhere.directory = "/home/\xff";
  Session session(elsewhere);
  const auto request = make_submit_request(session, Arguments());
  ASSERT_FALSE(request);
  EXPECT_EQ(request.error().message(),
            "the working directory '/home/\\xff' is not UTF-8 text; name another one with --chdir");
}

TEST(Dependencies, SlurmsSpelling) {
  const auto found = parse_dependencies("afterok:7:8,afterany:9_[1-3],after:@-1,afternotok:2");
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(*found, (std::vector<DependencyWish>{{DependencyKind::after_ok, "7"},
                                                 {DependencyKind::after_ok, "8"},
                                                 {DependencyKind::after_any, "9_[1-3]"},
                                                 {DependencyKind::after_start, "@-1"},
                                                 {DependencyKind::after_not_ok, "2"}}));
  for (const std::string_view bad :
       {"", "7", "afterok", "afterok:", "singleton", "afterok:0", "afterok:7?after:8"}) {
    EXPECT_FALSE(parse_dependencies(bad).has_value()) << bad;
  }
}

TEST(Retry, ByKindOrForAll) {
  EXPECT_EQ(parse_retry("3")->infrastructure, 3U);
  EXPECT_EQ(parse_retry("3")->error, 3U);
  const auto kinds = parse_retry("oom:1,infrastructure:5");
  ASSERT_TRUE(kinds.has_value());
  EXPECT_EQ(kinds->out_of_memory, 1U);
  EXPECT_EQ(kinds->infrastructure, 5U);
  EXPECT_EQ(kinds->error, 0U);
  for (const std::string_view bad : {"", "0", "101", "-1", "oom", "oom:", "disk:1", "oom:1,,", "error:x"}) {
    EXPECT_FALSE(parse_retry(bad).has_value()) << bad;
  }
  EXPECT_EQ(accepted({"--retry", "2", "--retry-delay", "30s"}).retry->delay, 30 * kSecond);
  EXPECT_NE(refused({"--retry-delay", "30s"}).find("--retry"), std::string::npos);
  EXPECT_NE(refused({"--retry", "1", "--retry-delay", "2h"}).find("at most"), std::string::npos);
}

TEST(LimitSignal, SlurmsSpellingAndUnits) {
  EXPECT_EQ(*parse_limit_signal("USR1@120"), (api::SignalRequest{10, 120 * kSecond}));
  EXPECT_EQ(*parse_limit_signal("B:SIGUSR2@5m"), (api::SignalRequest{12, 300 * kSecond}));
  EXPECT_EQ(*parse_limit_signal("10"), (api::SignalRequest{10, kMinute}));
  for (const std::string_view bad : {"", "@60", "NOSUCH@5", "USR1@", "USR1@0", "65@10", "USR1@-1"}) {
    EXPECT_FALSE(parse_limit_signal(bad).has_value()) << bad;
  }
}

TEST(Array, RangesStepsAndLimit) {
  EXPECT_EQ(parse_array("1-9%3")->indices.size(), 9U);
  EXPECT_EQ(parse_array("1-9%3")->running_max, 3U);
  EXPECT_EQ(parse_array("5,1-3,2")->indices, (std::vector<uint32_t>{1, 2, 3, 5}));
  EXPECT_EQ(parse_array("0-20:5")->indices, (std::vector<uint32_t>{0, 5, 10, 15, 20}));
  EXPECT_EQ(parse_array("999999999")->indices, std::vector<uint32_t>{999999999});
  for (const std::string_view bad :
       {"", "3-1", "1-", "a", "1-9%0", "1-9%", "0-100000", "1-5:0", "-3", "1,,2"}) {
    EXPECT_FALSE(parse_array(bad).has_value()) << bad;
  }
}

TEST(Begin, LocalTimesLieAhead) {
  const Time now = setup().now;
  const Result<Time> morning = parse_begin("08:30", now);
  ASSERT_TRUE(morning.has_value());
  EXPECT_GE(*morning, now);
  EXPECT_LE(*morning - now, 25 * kHour);
  EXPECT_EQ(parse_begin("2030-01-01T00:00:00Z", now)->nanoseconds(), 1'893'456'000'000'000'000);
  EXPECT_TRUE(parse_begin("2030-01-01", now).has_value());
  EXPECT_EQ(*parse_begin("2030-01-01T00:00", now), *parse_begin("2030-01-01", now));
  for (const std::string_view bad : {"25:00", "8:30", "2030-13-01", "now-1h", "", "2030-01-01X00:00"}) {
    EXPECT_FALSE(parse_begin(bad, now).has_value()) << bad;
  }
}

TEST(Export, ChoosesTheEnvironment) {
  const std::vector<std::string> environment = {"A=1", "B=2", "C=x=y", "BAD=\xff"};
  std::vector<std::string> left_out;
  using Pairs = std::vector<std::pair<std::string, std::string>>;
  EXPECT_EQ(*parse_export("ALL,D=4,A=9", environment, left_out),
            (Pairs{{"A", "9"}, {"B", "2"}, {"C", "x=y"}, {"D", "4"}}));
  EXPECT_EQ(left_out, std::vector<std::string>{"BAD"});
  EXPECT_EQ(*parse_export("A,Z,D=4", environment, left_out), (Pairs{{"A", "1"}, {"D", "4"}}));
  left_out.clear();
  EXPECT_EQ(*parse_export("NONE", environment, left_out), Pairs{});
  EXPECT_EQ(*parse_export("A", environment, left_out), (Pairs{{"A", "1"}}));
  EXPECT_TRUE(left_out.empty()) << "nobody asked for BAD";
  EXPECT_EQ(*parse_export("ALL,BAD=good", {"BAD=\xff"}, left_out), (Pairs{{"BAD", "good"}}));
  EXPECT_TRUE(left_out.empty());
  EXPECT_EQ(*parse_export("A,BAD,BAD", environment, left_out), (Pairs{{"A", "1"}}));
  EXPECT_EQ(left_out, std::vector<std::string>{"BAD"});
  EXPECT_EQ(*parse_export("NONE,D=4", environment, left_out), (Pairs{{"D", "4"}}));
  EXPECT_FALSE(parse_export("=4", environment, left_out).has_value());
}

}  // namespace
}  // namespace tranche::cli
