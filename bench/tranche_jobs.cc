#include <time.h>
#include <unistd.h>

#include <mutex>
#include <optional>
#include <thread>

#include "figures.h"
#include "linux/files.h"
#include "measure.h"
#include "rest_client.h"

namespace tranche::bench {
namespace {

// Jobs before the first that counts: the launcher's first start of a user makes that user's cgroup, and so
// on.
constexpr size_t kWarmUp = 5;
constexpr uint64_t kPauseMs = 20;
constexpr int64_t kPollNanoseconds = 20'000'000;

// When the job began, by its log, which goes.
Result<int64_t> take_stamp(const std::string& log) {
  TRY_ASSIGN(const std::string text, read_file(log, 4096));
  unlink(log.c_str());
  return to_number(text, "the job's stamp in " + log);
}

JobText stamp_job(const Setting& setting) {
  return {.command = {setting.bin + "/bench-stamp"}, .folder = setting.folder, .log = "stamp-%j.out"};
}

std::string stamp_log(const Setting& setting, int64_t job) {
  return setting.folder + "/stamp-" + std::to_string(job) + ".out";
}

// Submits `count` jobs over all connections at once, each of which sends its next when the last is
// acknowledged.
Result<void> submit_all(const Setting& setting, const std::string& body) {
  std::mutex mutex;
  size_t left = setting.count;
  std::optional<Error> trouble;
  const auto take = [&] {
    const std::lock_guard lock(mutex);
    if (trouble || left == 0) return false;
    --left;
    return true;
  };
  const auto work = [&] {
    RestClient client(setting.socket_path);
    while (take()) {
      const Result<int64_t> job = client.submit(body);
      if (job) continue;
      const std::lock_guard lock(mutex);
      if (!trouble) trouble = job.error().clone();
    }
  };
  std::vector<std::thread> threads;
  for (size_t i = 0; i < setting.connections; ++i) threads.emplace_back(work);
  for (std::thread& thread : threads) thread.join();
  if (trouble) return fail(std::move(*trouble));
  return {};
}

Result<void> wait_until_idle(const Setting& setting) {
  RestClient client(setting.socket_path);
  for (;;) {
    TRY_ASSIGN(const int64_t live, client.live_jobs());
    if (live == 0) return {};
    const timespec span{0, kPollNanoseconds};
    nanosleep(&span, nullptr);
  }
}

}  // namespace

Result<void> measure_request(const Setting& setting) {
  RestClient client(setting.socket_path);
  const std::string body = submission(stamp_job(setting));
  Samples to_first;
  Samples to_answer;
  for (size_t i = 0; i < kWarmUp + setting.count; ++i) {
    pause_below_ms(kPauseMs);
    const int64_t began = monotonic_ns();
    TRY_ASSIGN(const int64_t job, client.submit(body));
    const int64_t answered = monotonic_ns();
    TRY(client.wait(job));
    TRY_ASSIGN(const int64_t first, take_stamp(stamp_log(setting, job)));
    if (i < kWarmUp) continue;
    to_first.add(first - began);
    to_answer.add(answered - began);
  }
  print_spans("request", to_first);
  print_spans("acknowledged", to_answer);
  return {};
}

Result<void> measure_submit(const Setting& setting) {
  RestClient client(setting.socket_path);
  Samples to_first;
  for (size_t i = 0; i < kWarmUp + setting.count; ++i) {
    pause_below_ms(kPauseMs);
    TRY_ASSIGN(const Ended submitted,
               run_command({setting.bin + "/tranche", "submit", "--parsable", "-G", "1", "-o", "stamp-%j.out",
                            "--", setting.bin + "/bench-stamp"}));
    TRY_ASSIGN(const int64_t job, to_number(submitted.output, "what tranche submit printed"));
    TRY(client.wait(job));
    TRY_ASSIGN(const int64_t first, take_stamp(stamp_log(setting, job)));
    if (i >= kWarmUp) to_first.add(first - submitted.began_ns);
  }
  print_spans("submit", to_first);
  return {};
}

Result<void> measure_noop(const Setting& setting) {
  // A tenth of a core each, so that GPUs bound how many run at once, and not the cores that are counted out.
  const std::string body =
      submission({.command = {"/bin/true"}, .folder = setting.folder, .log = "/dev/null", .cpu_milli = 100});
  TRY(wait_until_idle(setting));
  const int64_t began = monotonic_ns();
  TRY(submit_all(setting, body));
  TRY(wait_until_idle(setting));
  print_rate("noop", setting.count, monotonic_ns() - began);
  return {};
}

Result<void> measure_held(const Setting& setting) {
  const std::string body =
      submission({.command = {"/bin/true"}, .folder = setting.folder, .log = "/dev/null", .held = true});
  const int64_t began = monotonic_ns();
  TRY(submit_all(setting, body));
  print_rate("held", setting.count, monotonic_ns() - began);
  return {};
}

Result<void> measure_list(const Setting& setting) {
  Samples spans;
  size_t bytes = 0;
  for (size_t i = 0; i < setting.count; ++i) {
    TRY_ASSIGN(const Ended listed, run_command({setting.bin + "/tranche", "ls"}));
    spans.add(listed.ended_ns - listed.began_ns);
    bytes = listed.output.size();
  }
  if (bytes == 0) return fail(ErrorCode::internal, "tranche ls printed nothing");
  print_spans("list", spans);
  return {};
}

Result<void> measure_held_by_commands(const Setting& setting) {
  const int64_t began = monotonic_ns();
  TRY(run_many(setting.count, setting.connections,
               {setting.bin + "/tranche", "submit", "--parsable", "--hold", "-G", "1", "-o", "/dev/null",
                "--", "/bin/true"}));
  print_rate("held by commands", setting.count, monotonic_ns() - began);
  return {};
}

}  // namespace tranche::bench
