// The verbs as a user meets them: words in, requests to the daemon, text and exit code out.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

#include "cli/fake_daemon.h"
#include "cli/job_text.h"
#include "cli/text.h"
#include "codec/api.h"
#include "codec/job_rows.h"

namespace tranche::cli {
namespace {

using testing::FakeDaemon;
using testing::FakeReply;
using testing::FakeRequest;
using testing::Outcome;
using testing::problem;
using testing::run_words;
using testing::TemporaryDirectory;
using testing::write_text;

constexpr std::string_view kNobody = "/nonexistent/tranche.sock";

api::JobDetail job_seven() {
  api::JobDetail job;
  job.job = JobId(7);
  job.display = "7";
  job.user = "ada";
  job.uid = 1000;
  job.queue = "physics/ada";
  job.state = JobState::running;
  job.submitted = Time(1'796'000'000'000'000'000);
  job.started = job.submitted + kMinute;
  job.time_limit = kHour;
  job.gpu.count = 1;
  job.gpus = {3};
  return job;
}

std::string submitted(uint64_t id) {
  api::SubmitResponse response;
  response.job = JobId(id);
  response.state = JobState::running;
  return api::encode(response);
}

api::SubmitRequest only_request(const FakeDaemon& daemon) {
  const std::vector<FakeRequest> requests = daemon.requests();
  EXPECT_EQ(requests.size(), 1U);
  Result<api::SubmitRequest> request = api::decode<api::SubmitRequest>(requests.at(0).body);
  EXPECT_TRUE(request.has_value()) << request.error().message();
  return std::move(*request);
}

TEST(Verbs, DaemonNotThere) {
  const Outcome outcome = run_words(std::string(kNobody), {"ls"});
  EXPECT_EQ(outcome.code, 5);
  EXPECT_TRUE(outcome.error.starts_with("tranche: ")) << outcome.error;
  EXPECT_EQ(outcome.output, "");
}

TEST(Verbs, SubmitSendsTheCommand) {
  const FakeDaemon daemon([](const FakeRequest&) { return FakeReply{.status = 201, .body = submitted(7)}; });
  const Outcome outcome = run_words(daemon.socket_path(), {"submit", "-G", "0.5", "-t", "90",
                                                           "--idempotency-key", "k1", "--", "echo", "a b"});
  EXPECT_EQ(outcome.code, 0) << outcome.error;
  EXPECT_EQ(outcome.output, "job 7 running, time limit 1h30m\n");
  EXPECT_EQ(daemon.asked(), std::vector<std::string>{"POST /v1/jobs"});
  EXPECT_NE(daemon.requests().at(0).head.find("Idempotency-Key: k1"), std::string::npos);
  const api::SubmitRequest request = only_request(daemon);
  EXPECT_EQ(request.argv, (std::vector<std::string>{"echo", "a b"}));
  EXPECT_EQ(request.gpu->compute, MilliGpu(500));
}

TEST(Verbs, SubmitSendsTheScriptWithTheCommandLineFirst) {
  const TemporaryDirectory directory;
  const std::string path = directory.path() + "/train.sh";
  write_text(path, "#!/bin/sh\n#TRANCHE -G 2 -t 1h\n#SBATCH --mail-type=ALL\necho $1\n");
  const FakeDaemon daemon([](const FakeRequest&) { return FakeReply{.status = 201, .body = submitted(8)}; });
  const Outcome outcome =
      run_words(daemon.socket_path(), {"submit", "--parsable", "-G", "1", path, "--epochs", "3"});
  EXPECT_EQ(outcome.code, 0) << outcome.error;
  EXPECT_EQ(outcome.output, "8\n");
  EXPECT_NE(outcome.error.find("--mail-type has no meaning here"), std::string::npos);
  const api::SubmitRequest request = only_request(daemon);
  EXPECT_EQ(request.gpu->count, 1U);
  EXPECT_EQ(request.time_limit, kHour);
  EXPECT_EQ(request.name, "train.sh");
  EXPECT_EQ(request.script_args, (std::vector<std::string>{"--epochs", "3"}));
  EXPECT_TRUE(request.script->ends_with("echo $1\n"));
  EXPECT_TRUE(request.argv.empty());
}

TEST(Verbs, VariablesThatAreNoTextAreLeftOutWithOneLine) {
  const FakeDaemon daemon([](const FakeRequest&) { return FakeReply{.status = 201, .body = submitted(7)}; });
  Session::Setup setup;
  setup.environment = {"HOME=/home/ada"};
  for (int i = 0; i < 7; ++i) setup.environment.push_back("BAD" + std::to_string(i) + "=\xff");
  const Outcome outcome = run_words(daemon.socket_path(), {"submit", "-D", "/", "--", "true"}, setup);
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(
      outcome.error,
      "tranche: the variables 'BAD0', 'BAD1', 'BAD2', 'BAD3', 'BAD4' and 2 more are not UTF-8 text and are "
      "left out\n");
  for (const auto& [name, value] : only_request(daemon).environment)
    EXPECT_FALSE(name.starts_with("BAD")) << name;
}

TEST(Verbs, AScriptsOddFileNameDoesNotRefuseTheJob) {
  const TemporaryDirectory directory;
  const std::string path = directory.path() + "/a\u200b\u009b" + std::string(200, 'b');
  write_text(path, "#!/bin/sh\n");
  const FakeDaemon daemon([](const FakeRequest&) { return FakeReply{.status = 201, .body = submitted(8)}; });
  EXPECT_EQ(run_words(daemon.socket_path(), {"submit", path}).code, 0);
  EXPECT_EQ(only_request(daemon).name, "a" + std::string(127, 'b'));
}

TEST(Verbs, RefusalsKeepTheirCodeAndCannotActOnTheTerminal) {
  const FakeDaemon daemon([](const FakeRequest&) {
    return problem(422, "never_fits", "9 GPUs never fit\\u001b[2J this server, which has 4");
  });
  const Outcome outcome = run_words(daemon.socket_path(), {"submit", "-G", "9", "--", "true"});
  EXPECT_EQ(outcome.code, 3);
  EXPECT_EQ(outcome.error, "tranche: 9 GPUs never fit\\x1b[2J this server, which has 4\n");
}

TEST(Verbs, SubmitWithoutAJobIsAUsageError) {
  EXPECT_EQ(run_words(std::string(kNobody), {"submit"}).code, 2);
  EXPECT_EQ(run_words(std::string(kNobody), {"submit", "/nonexistent.sh"}).code, 2);
  EXPECT_EQ(run_words(std::string(kNobody), {"submit", "--"}).code, 2);
  EXPECT_EQ(run_words(std::string(kNobody), {"run"}).code, 2);
  EXPECT_EQ(run_words(std::string(kNobody), {"run", "-a", "1-3", "true"}).code, 2);
}

TEST(Verbs, DryRunSaysWhen) {
  const FakeDaemon daemon([](const FakeRequest&) {
    api::DryRunResponse response;
    response.reason = "all 4 GPUs are busy";
    response.forecast.position = 2;
    return FakeReply{.body = api::encode(response)};
  });
  const Outcome outcome = run_words(daemon.socket_path(), {"submit", "--test-only", "-G", "1", "--", "true"});
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.output, "would wait: all 4 GPUs are busy; position 2\n");
  EXPECT_EQ(daemon.asked(), std::vector<std::string>{"POST /v1/jobs?dry_run=true"});
}

TEST(Verbs, SubmitAndWaitReturnsTheJobsCode) {
  const FakeDaemon daemon([](const FakeRequest& request) {
    if (request.method == "POST") return FakeReply{.status = 201, .body = submitted(7)};
    api::JobSummary ended = job_seven();
    ended.state = JobState::failed;
    ended.exit_code = 42;
    return FakeReply{.body = api::encode(ended)};
  });
  EXPECT_EQ(run_words(daemon.socket_path(), {"submit", "--wait", "--", "false"}).code, 42);
}

TEST(Verbs, WaitOutlastsASilentDaemonAndTakesTheWorst) {
  int timeouts = 0;
  const FakeDaemon daemon([&](const FakeRequest& request) {
    if (request.target.find("/wait") == std::string::npos) return FakeReply{.body = api::encode(job_seven())};
    if (timeouts++ == 0) return problem(504, "timed_out", "not yet");
    api::JobSummary ended = job_seven();
    ended.state = JobState::timed_out;
    return FakeReply{.body = api::encode(ended)};
  });
  const Outcome outcome = run_words(daemon.socket_path(), {"wait", "7"});
  EXPECT_EQ(outcome.code, 124);
  EXPECT_EQ(outcome.error, "job 7 timed_out\n");
  EXPECT_EQ(timeouts, 2);
}

TEST(Verbs, LsShowsAllUsersAndFollowsTheCursor) {
  const FakeDaemon daemon([](const FakeRequest& request) {
    api::JobList list;
    api::JobSummary job = job_seven();
    const bool second = request.target.find("cursor=next%2Fpage") != std::string::npos;
    if (second) {
      job.job = JobId(8);
      job.display = "8";
      job.user = "eve\xe2\x80\xae";
      job.state = JobState::pending;
      job.started.reset();
      job.gpus.clear();
      job.reason = "waits for 7";
      job.gpu.kind = SliceKind::fraction;
      job.gpu.compute = MilliGpu(500);
      job.tier = api::Tier::unenforced;
    } else {
      list.next_cursor = "next/page";
    }
    list.jobs.push_back(job);
    return FakeReply{.body = api::encode(list)};
  });
  Session::Setup setup;
  setup.now = job_seven().submitted + 11 * kMinute;
  const Outcome outcome = run_words(daemon.socket_path(), {"ls", "--all", "-s", "running"}, setup);
  EXPECT_EQ(outcome.code, 0) << outcome.error;
  EXPECT_EQ(
      outcome.output,
      "ID  NAME  USER             QUEUE        CLASS     STATE    GPU             GPUS  TIME  LIMIT  REASON\n"
      " 7  -     ada              physics/ada  training  running  1               3      10m     1h\n"
      " 8  -     eve\\xe2\\x80\\xae  physics/ada  training  pending  0.5 unenforced  -        -     1h  "
      "waits for 7\n");
  EXPECT_EQ(daemon.asked(),
            (std::vector<std::string>{"GET /v1/jobs?state=running&all=true&limit=2000",
                                      "GET /v1/jobs?state=running&all=true&limit=2000&cursor=next%2Fpage"}));
}

TEST(Verbs, LsReadsRowsWhereTheDaemonHasThem) {
  const FakeDaemon daemon([](const FakeRequest& request) {
    const bool second = request.target.find("cursor=") != std::string::npos;
    api::JobSummary job = job_seven();
    if (second) job.display = "8";
    std::string rows(api::kJobRowsHeading);
    api::append_job_row(rows, job);
    const std::string type = "Content-Type: text/tab-separated-values\r\n";
    return FakeReply{.body = rows, .extra_headers = second ? type : type + "Tranche-Next-Cursor: 7\r\n"};
  });
  Session::Setup setup;
  setup.now = job_seven().submitted + 11 * kMinute;
  const Outcome outcome = run_words(daemon.socket_path(), {"ls", "--no-header"}, setup);
  EXPECT_EQ(outcome.output,
            "7  -  ada  physics/ada  training  running  1  3  10m  1h\n"
            "8  -  ada  physics/ada  training  running  1  3  10m  1h\n");
  EXPECT_EQ(daemon.asked(),
            (std::vector<std::string>{"GET /v1/jobs?limit=2000", "GET /v1/jobs?limit=2000&cursor=7"}));
  EXPECT_NE(daemon.requests().front().head.find("text/tab-separated-values"), std::string::npos);
}

TEST(Verbs, RowsThatAreCutAreAnError) {
  const FakeDaemon daemon([](const FakeRequest&) {
    return FakeReply{.body = std::string(api::kJobRowsHeading) + "7\t7",
                     .extra_headers = "Content-Type: text/tab-separated-values\r\n"};
  });
  const Outcome outcome = run_words(daemon.socket_path(), {"ls"});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_NE(outcome.error.find("line 2"), std::string::npos) << outcome.error;
}

TEST(Verbs, JsonIsTheDaemonsOwn) {
  const std::string document = "{\"jobs\":[],\"from_a_newer_daemon\":1}";
  const FakeDaemon daemon([&](const FakeRequest&) { return FakeReply{.body = document}; });
  EXPECT_EQ(run_words(daemon.socket_path(), {"ls", "--json"}).output, document + "\n");
}

TEST(Verbs, GarbageFromTheDaemonIsAnError) {
  const FakeDaemon daemon([](const FakeRequest&) { return FakeReply{.body = "[[["}; });
  for (const char* verb : {"ls", "gpus", "who", "queue", "share", "history", "doctor", "events"}) {
    const Outcome outcome = run_words(daemon.socket_path(), {verb});
    EXPECT_EQ(outcome.code, 1) << verb;
    EXPECT_TRUE(outcome.error.starts_with("tranche: ")) << verb;
  }
}

TEST(Verbs, QueueShowsProcessorsWhereSomeAreBounded) {
  api::QueueList list;
  list.queues.resize(2);
  list.queues[0].path = "bio";
  list.queues[1].path = "physics";
  list.queues[1].used_cpu = MilliCpu(6'000);
  list.queues[1].used_memory = MiB(16'384);
  const FakeDaemon daemon([&](const FakeRequest&) { return FakeReply{.body = api::encode(list)}; });
  EXPECT_EQ(run_words(daemon.socket_path(), {"queue"}).output.find("CPUS"), std::string::npos);
  list.queues[1].quota_cpu = MilliCpu(8'000);
  list.queues[1].limit_cpu = MilliCpu(32'000);
  list.queues[1].limit_memory = MiB(65'536);
  const std::string output = run_words(daemon.socket_path(), {"queue"}).output;
  EXPECT_NE(output.find("6 of 8, limit 32"), std::string::npos) << output;
  EXPECT_NE(output.find("16G of 64G"), std::string::npos) << output;
}

TEST(Verbs, CancelGoesOnAfterARefusal) {
  const FakeDaemon daemon([](const FakeRequest& request) {
    if (request.target == "/v1/jobs/8/cancel")
      return problem(403, "denied", "job 8 is eve's; only eve can cancel it");
    api::JobDetail job = job_seven();
    const bool eighth = request.target.starts_with("/v1/jobs/8");
    if (eighth) {
      job.job = JobId(8);
      job.display = "8";
    }
    return FakeReply{.body = api::encode(job)};
  });
  const Outcome outcome = run_words(daemon.socket_path(), {"cancel", "8", "7"});
  EXPECT_EQ(outcome.code, 3);
  EXPECT_EQ(outcome.error, "tranche: job 8 is eve's; only eve can cancel it\n");
  EXPECT_EQ(outcome.output, "job 7 cancelled\n");
  EXPECT_EQ(run_words(daemon.socket_path(), {"cancel"}).code, 2);
  EXPECT_EQ(run_words(daemon.socket_path(), {"cancel", "--me", "7"}).code, 2);
}

TEST(Verbs, AnArrayIsCancelledInOneRequest) {
  const FakeDaemon daemon([](const FakeRequest& request) {
    if (request.target == "/v1/arrays/7/cancel") {
      api::ArrayChange change;
      change.array = JobId(7);
      change.elements = 2000;
      change.changed = 1990;
      change.stopping = 8;
      change.unchanged = 2;
      return FakeReply{.body = api::encode(change)};
    }
    api::JobDetail job = job_seven();
    const uint64_t id = request.target.starts_with("/v1/jobs/9") ? 9 : 7;
    job.job = JobId(id);
    job.display = "7_" + std::to_string(id - 6);
    job.array = api::ArrayElement{JobId(7), static_cast<uint32_t>(id - 6)};
    return FakeReply{.body = api::encode(job)};
  });
  // The element is of the array that is named too: it is not cancelled once more.
  const Outcome outcome = run_words(daemon.socket_path(), {"cancel", "9", "7"});
  EXPECT_EQ(outcome.code, 0) << outcome.error;
  EXPECT_EQ(outcome.output, "array 7: 1990 cancelled, 8 being ended, 2 had ended already\n");
  EXPECT_EQ(daemon.asked(),
            (std::vector<std::string>{"GET /v1/jobs/9", "GET /v1/jobs/7", "POST /v1/arrays/7/cancel"}));
  EXPECT_EQ(run_words(daemon.socket_path(), {"hold", "7", "--dry-run"}).output, "would be held: array 7\n");
  EXPECT_EQ(run_words(daemon.socket_path(), {"cancel", "9", "--dry-run"}).output,
            "would be cancelled: job 7_3\n");
}

TEST(Verbs, NotFoundIsFour) {
  const FakeDaemon daemon([](const FakeRequest&) { return problem(404, "not_found", "there is no job 99"); });
  for (const char* verb : {"show", "why", "logs", "cancel", "wait"}) {
    EXPECT_EQ(run_words(daemon.socket_path(), {verb, "99"}).code, 4) << verb;
  }
}

TEST(Verbs, ShowTellsEverything) {
  const FakeDaemon daemon([](const FakeRequest&) {
    api::JobDetail job = job_seven();
    job.name = "fine tune";
    job.argv = {{"python", "train it.py"}};
    job.directory = "/home/ada";
    job.history = {{job.submitted, JobState::pending, ""}, {*job.started, JobState::running, "GPU 3"}};
    return FakeReply{.body = api::encode(job)};
  });
  const Outcome outcome = run_words(daemon.socket_path(), {"show", "7"});
  EXPECT_EQ(outcome.code, 0) << outcome.error;
  for (const std::string_view expected :
       {"job 7 'fine tune'  running\n", "Queue        physics/ada\n", "Command      python 'train it.py'\n",
        "GPUs held    3\n", "within what its queue is entitled to", "History\n"}) {
    EXPECT_NE(outcome.output.find(expected), std::string::npos) << expected << "\n" << outcome.output;
  }
}

TEST(Verbs, WhyLabelsTheForecast) {
  const Time now = job_seven().submitted;
  const FakeDaemon daemon([&](const FakeRequest& request) {
    if (!request.target.ends_with("/why")) return FakeReply{.body = api::encode(job_seven())};
    Explanation why;
    why.job = JobId(7);
    why.proof.kind = ProofKind::busy;
    why.proof.blockers = {JobId(3), JobId(4)};
    why.forecast = {.known = true, .start = now + kHour, .position = 3};
    why.reason = "all GPUs are busy";
    why.helps = {"ask for -G 1"};
    return FakeReply{.body = api::encode(why)};
  });
  Session::Setup setup;
  setup.now = now;
  const Outcome outcome = run_words(daemon.socket_path(), {"why", "7"}, setup);
  EXPECT_EQ(outcome.code, 0) << outcome.error;
  EXPECT_NE(
      outcome.output.find("Why          all GPUs are busy\nProof        busy\nWaits for    jobs 3, 4\n"),
      std::string::npos)
      << outcome.output;
  EXPECT_NE(outcome.output.find("(in 1h, from time limits)"), std::string::npos) << outcome.output;
  EXPECT_NE(outcome.output.find("Would help   ask for -G 1\n"), std::string::npos);
}

TEST(Verbs, LogsOfOthersAreTheirs) {
  const FakeDaemon daemon([](const FakeRequest&) { return FakeReply{.body = api::encode(job_seven())}; });
  Session::Setup setup;
  setup.uid = 2000;
  const Outcome outcome = run_words(daemon.socket_path(), {"logs", "7"}, setup);
  EXPECT_EQ(outcome.code, 3);
  EXPECT_EQ(outcome.error, "tranche: the log of job 7 belongs to ada; only its owner can read it\n");
}

TEST(Verbs, LogsPrintsAndFollowsToTheEnd) {
  const TemporaryDirectory directory;
  const std::string path = directory.path() + "/log";
  write_text(path, "one\ntwo\nthree\n");
  const FakeDaemon daemon([&](const FakeRequest& request) {
    api::JobDetail job = job_seven();
    job.stdout_path = path;
    if (request.target.find("/wait") != std::string::npos) {
      write_text(path, "four\n");
      job.state = JobState::completed;
    }
    return FakeReply{.body = api::encode(job)};
  });
  EXPECT_EQ(run_words(daemon.socket_path(), {"logs", "7"}).output, "one\ntwo\nthree\n");
  EXPECT_EQ(run_words(daemon.socket_path(), {"logs", "7", "-n", "1"}).output, "three\n");
  EXPECT_EQ(run_words(daemon.socket_path(), {"logs", "7", "-n", "0"}).output, "");
  EXPECT_EQ(run_words(daemon.socket_path(), {"logs", "7", "-f", "-n", "1"}).output, "three\nfour\n");
}

TEST(Verbs, GpusNamesWhoDoesNotAsk) {
  const FakeDaemon daemon([](const FakeRequest&) {
    api::GpuList list;
    api::GpuStatus gpu;
    gpu.index = 3;
    gpu.uuid = "GPU-x";
    gpu.type = "t4";
    gpu.memory_total = MiB(16384);
    gpu.slices = {{.job = JobId(7),
                   .display = "7",
                   .user = "ada",
                   .kind = SliceKind::fraction,
                   .compute = MilliGpu(500),
                   .memory = MiB(8192),
                   .tier = api::Tier::unenforced,
                   .memory_limit = {},
                   .memory_charged = {},
                   .processes = {}}};
    gpu.processes = {{.pid = 99, .user = "eve", .memory = MiB(1024), .job = std::nullopt}};
    list.gpus.push_back(gpu);
    return FakeReply{.body = api::encode(list)};
  });
  const Outcome outcome = run_words(daemon.socket_path(), {"gpus"});
  EXPECT_EQ(outcome.code, 0) << outcome.error;
  EXPECT_NE(outcome.output.find("7 ada 0.5+8G unenforced, unmanaged: eve pid 99 1G"), std::string::npos)
      << outcome.output;
  EXPECT_NE(outcome.output.find(" ? "), std::string::npos) << "what was not measured is never shown as zero";
}

TEST(Verbs, GpusShowsFaultsMigDevicesAndTopology) {
  const FakeDaemon daemon([](const FakeRequest&) {
    api::GpuList list;
    for (const uint32_t index : std::initializer_list<uint32_t>{0, 1}) {
      api::GpuStatus gpu;
      gpu.index = index;
      gpu.uuid = "GPU-x";
      gpu.type = "a100-40";
      gpu.numa_node = 1;
      gpu.cpu_affinity = "0-15";
      gpu.links = {{.peer = 1 - index, .kind = LinkKind::nvlink}};
      list.gpus.push_back(gpu);
    }
    list.gpus[0].faults = {{.age = 2 * kMinute,
                            .xid = 31,
                            .of_the_job = true,
                            .text = "XID 31: the program used memory that is not its own",
                            .jobs = {JobId(92)},
                            .displays = {"90_2"}}};
    list.gpus[1].mig_devices = {{.uuid = "MIG-y",
                                 .gpu_instance = 9,
                                 .compute_instance = 0,
                                 .multiprocessors = 14,
                                 .memory = MiB(4864)}};
    return FakeReply{.body = api::encode(list)};
  });
  const Outcome outcome = run_words(daemon.socket_path(), {"gpus"});
  EXPECT_NE(outcome.output.find("not its own (on it then: job 90_2), 2m ago"), std::string::npos)
      << outcome.output;
  EXPECT_NE(outcome.output.find("mig 9/0, 4864M, 14 SM, MIG-y"), std::string::npos) << outcome.output;
  const Outcome topology = run_words(daemon.socket_path(), {"gpus", "--topology"});
  EXPECT_NE(topology.output.find("nvlink"), std::string::npos) << topology.output;
  EXPECT_NE(topology.output.find("0-15"), std::string::npos) << topology.output;
}

TEST(Verbs, DrainNeedsAReason) {
  const FakeDaemon daemon([](const FakeRequest&) { return FakeReply{.body = "{}"}; });
  EXPECT_EQ(run_words(daemon.socket_path(), {"gpus", "drain", "3"}).code, 2);
  EXPECT_EQ(run_words(daemon.socket_path(), {"gpus", "drain", "x", "--reason", "y"}).code, 2);
  EXPECT_EQ(run_words(daemon.socket_path(), {"gpus", "drain", "3", "--reason", "fan"}).code, 0);
  EXPECT_EQ(run_words(daemon.socket_path(), {"gpus", "undrain", "3"}).code, 0);
  EXPECT_EQ(daemon.asked(), (std::vector<std::string>{"POST /v1/gpus/3/drain", "POST /v1/gpus/3/undrain"}));
}

TEST(Verbs, DoctorFailsWithItsChecks) {
  const FakeDaemon daemon([](const FakeRequest&) {
    api::DoctorReport report;
    report.checks = {{"driver", api::CheckStatus::ok, "535", ""},
                     {"cgroup", api::CheckStatus::fail, "v1", "boot with v2"}};
    return FakeReply{.body = api::encode(report)};
  });
  const Outcome outcome = run_words(daemon.socket_path(), {"doctor"});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_EQ(outcome.output, "ok    driver: 535\nfail  cgroup: v1\n      boot with v2\n");
}

TEST(Verbs, EventsPrintsEveryPage) {
  const FakeDaemon daemon([](const FakeRequest& request) {
    if (request.target == "/v1/events?since=0") {
      return FakeReply{
          .body = R"({"events":[{"seq":1,"time":"2026-11-30T11:29:47.000000001Z","kind":"tick","version":1,)"
                  R"("event":{},"decisions":[]},{"seq":2,"time":"2026-11-30T11:29:48.000000000Z",)"
                  R"("kind":"job_held","version":1,"event":{"job":7,"by":"ada"},"decisions":[]}]})"};
    }
    return FakeReply{.body = R"({"events":[]})"};
  });
  const Outcome outcome = run_words(daemon.socket_path(), {"events"});
  EXPECT_EQ(outcome.code, 0) << outcome.error;
  EXPECT_EQ(
      outcome.output,
      "2026-11-30T11:29:47.000000001Z 1 tick\n2026-11-30T11:29:48.000000000Z 2 job_held job 7 by ada\n");
  const Outcome json = run_words(daemon.socket_path(), {"events", "--json"});
  EXPECT_EQ(std::count(json.output.begin(), json.output.end(), '\n'), 2);
  EXPECT_NE(json.output.find("\"seq\":2"), std::string::npos);
}

TEST(Verbs, ConfigCheckNamesFileAndLine) {
  const TemporaryDirectory directory;
  const std::string path = directory.path() + "/tranche.toml";
  write_text(path, "[policy]\nhalf_life = \"7d\"\n");
  const Outcome good = run_words(std::string(kNobody), {"config", "check", path});
  EXPECT_EQ(good.code, 0) << good.error;
  EXPECT_NE(good.output.find("is in order"), std::string::npos);
  EXPECT_EQ(run_words(std::string(kNobody), {"config", "explain", path}).code, 0);
  write_text(path, "wieght = 3\n");
  const Outcome bad = run_words(std::string(kNobody), {"config", "check", path});
  EXPECT_EQ(bad.code, 2);
  EXPECT_NE(bad.error.find("tranche.toml:3:"), std::string::npos) << bad.error;
  EXPECT_EQ(run_words(std::string(kNobody), {"config", "chekc"}).code, 2);
  EXPECT_EQ(run_words(std::string(kNobody), {"config", "reload"}).code, 5);
}

TEST(Verbs, CompletionKnowsEveryVerb) {
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const Outcome outcome = run_words(std::string(kNobody), {"completion", shell});
    EXPECT_EQ(outcome.code, 0);
    EXPECT_NE(outcome.output.find("history"), std::string::npos);
  }
  EXPECT_EQ(run_words(std::string(kNobody), {"completion", "tcsh"}).code, 2);
}

TEST(Verbs, VersionNeedsNoDaemon) {
  EXPECT_EQ(run_words(std::string(kNobody), {"version"}).output, "tranche " TRANCHE_VERSION "\n");
}

TEST(Verbs, DoctorKeepsToTheTerminalsWidth) {
  api::DoctorReport report;
  report.checks.push_back(
      {"fences", api::CheckStatus::warn,
       "whole GPUs are enforced by the kernel's device filter and fractions are guarded, because "
       "the driver has no limits of its own before release 615",
       "a driver of release 615 or later holds fractions itself: see docs/sharing.md for the table"});
  const FakeDaemon daemon([&](const FakeRequest&) { return FakeReply{.body = api::encode(report)}; });
  Session::Setup narrow;
  narrow.look.width = 60;
  const Outcome outcome = run_words(daemon.socket_path(), {"doctor"}, narrow);
  EXPECT_EQ(outcome.code, 0);
  size_t longest = 0;
  std::string words;
  for (const std::string& line : split(outcome.output, '\n')) {
    longest = std::max(longest, display_width(line));
    words += line.substr(std::min(line.size(), line.find_first_not_of(' '))) + " ";
  }
  EXPECT_LE(longest, 60u) << outcome.output;
  EXPECT_NE(words.find(report.checks[0].detail), std::string::npos) << words;
  EXPECT_NE(words.find(report.checks[0].help), std::string::npos) << words;
}

TEST(Verbs, ASweepIsSentWithItsElements) {
  const FakeDaemon daemon([](const FakeRequest&) { return FakeReply{.status = 201, .body = submitted(7)}; });
  const Outcome outcome =
      run_words(daemon.socket_path(), {"submit", "--sweep", "lr=0.1,0.01 seed=1..3 %2", "--notify",
                                       "mail:fail chat:start,end", "--", "train", "{lr}"});
  EXPECT_EQ(outcome.code, 0) << outcome.error;
  const api::SubmitRequest request = only_request(daemon);
  EXPECT_EQ(request.array->indices, (std::vector<uint32_t>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(request.array->running_max, 2u);
  EXPECT_EQ(request.sweep.size(), 2u);
  ASSERT_EQ(request.notify.size(), 2u);
  EXPECT_EQ(request.notify[0].where, "mail");
  EXPECT_EQ(request.notify[1].events, (std::vector{api::NoticeKind::started, api::NoticeKind::ended}));
}

TEST(Verbs, ASweepsParametersComeFromAFileToo) {
  const TemporaryDirectory folder;
  const std::string path = folder.path() + "/grid.txt";
  std::ofstream(path) << "# tried in spring\nlr=0.1,0.01\n\nseed=1..3\n";
  const FakeDaemon daemon([](const FakeRequest&) { return FakeReply{.status = 201, .body = submitted(7)}; });
  const Outcome outcome = run_words(daemon.socket_path(), {"submit", "--param-file", path, "--sweep",
                                                           "mode=a,b %4", "--", "train", "{lr}"});
  EXPECT_EQ(outcome.code, 0) << outcome.error;
  const api::SubmitRequest request = only_request(daemon);
  ASSERT_EQ(request.sweep.size(), 3u);
  EXPECT_EQ(request.sweep[2].name, "mode");
  EXPECT_EQ(request.array->indices.size(), 12u);
  EXPECT_EQ(request.array->running_max, 4u);
  const Outcome missing =
      run_words(daemon.socket_path(), {"submit", "--param-file", path + ".none", "--", "train"});
  EXPECT_NE(missing.code, 0);
  EXPECT_NE(missing.error.find("--param-file"), std::string::npos) << missing.error;
  EXPECT_EQ(run_words(daemon.socket_path(), {"run", "--param-file", path, "--", "train"}).code, 2);
}

TEST(Verbs, ATokenIsPrintedAloneAndWhatItIsBesideIt) {
  api::TokenCreated created;
  created.token = "tranche_3_abc";
  created.row.id = 3;
  created.row.user = "ada";
  created.row.created = created.row.expires = Time(1'796'000'000'000'000'000);
  const FakeDaemon daemon(
      [&](const FakeRequest&) { return FakeReply{.status = 201, .body = api::encode(created)}; });
  const Outcome outcome =
      run_words(daemon.socket_path(), {"token", "create", "--scope", "jobs", "--lifetime", "1d"});
  EXPECT_EQ(outcome.output, "tranche_3_abc\n") << "so that it can be written into a file";
  EXPECT_NE(outcome.error.find("token 3 of ada"), std::string::npos) << outcome.error;
  EXPECT_EQ(daemon.requests().at(0).body, R"({"scope":"jobs","lifetime":"1d"})");
  EXPECT_EQ(run_words(daemon.socket_path(), {"token", "revoke"}).code, 2);
  EXPECT_EQ(run_words(daemon.socket_path(), {"token", "ls", "--scope", "jobs"}).code, 2);
}

}  // namespace
}  // namespace tranche::cli
