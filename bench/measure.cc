#include "measure.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <optional>
#include <thread>

#include "base/json_writer.h"
#include "base/random.h"

extern char** environ;

namespace tranche::bench {
namespace {

Error system_error(std::string_view what, int error) {
  return Error(ErrorCode::internal, std::string(what) + ": " + std::strerror(error));
}

void print_line(std::string& json) {
  json += '\n';
  std::fputs(json.c_str(), stdout);
  std::fflush(stdout);
}

std::string drained(int file) {
  std::string text;
  char block[16 * 1024];
  for (;;) {
    const ssize_t got = read(file, block, sizeof block);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return text;
    text.append(block, static_cast<size_t>(got));
  }
}

Result<pid_t> spawn(const std::vector<std::string>& words, int output) {
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
  pid_t pid = -1;
  const int error = posix_spawnp(&pid, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) return fail(system_error("starting " + words[0], error));
  return pid;
}

}  // namespace

int64_t monotonic_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

void pause_below_ms(uint64_t most) {
  static Random random(1);
  const auto nanoseconds = static_cast<long>(random.below(most * 1'000'000));
  const timespec span{nanoseconds / 1'000'000'000, nanoseconds % 1'000'000'000};
  nanosleep(&span, nullptr);
}

int64_t Samples::percentile(size_t percent) const {
  if (values_.empty()) return 0;
  std::vector<int64_t> sorted = values_;
  std::sort(sorted.begin(), sorted.end());
  const size_t rank = (sorted.size() * percent + 99) / 100;
  return sorted[std::max<size_t>(rank, 1) - 1];
}

void print_spans(std::string_view name, const Samples& samples) {
  std::string line;
  JsonWriter json(line);
  json.begin_object().field("name", name).field("count", samples.count());
  for (const size_t percent : {size_t{50}, size_t{90}, size_t{99}, size_t{100}}) {
    json.field(percent == 100 ? "max_us" : "p" + std::to_string(percent) + "_us",
               samples.percentile(percent) / 1000);
  }
  json.end_object();
  print_line(line);
}

void print_rate(std::string_view name, size_t count, int64_t nanoseconds) {
  std::string line;
  JsonWriter json(line);
  const auto per_second = static_cast<int64_t>(count) * 1'000'000'000 / std::max<int64_t>(nanoseconds, 1);
  json.begin_object().field("name", name).field("count", count).field("per_second", per_second).end_object();
  print_line(line);
}

Result<Ended> run_command(const std::vector<std::string>& words) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return fail(system_error("making a pipe", errno));
  Ended ended;
  ended.began_ns = monotonic_ns();
  Result<pid_t> pid = spawn(words, ends[1]);
  close(ends[1]);
  if (pid) ended.output = drained(ends[0]);
  close(ends[0]);
  if (!pid) return fail(std::move(pid).error());
  int status = 0;
  while (waitpid(*pid, &status, 0) < 0 && errno == EINTR) {
  }
  ended.ended_ns = monotonic_ns();
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    return fail(ErrorCode::internal, words[0] + " failed; its message is above");
  }
  return ended;
}

Result<void> run_many(size_t count, size_t at_once, const std::vector<std::string>& words) {
  std::atomic<int64_t> left = static_cast<int64_t>(count);
  std::mutex mutex;
  std::optional<Error> trouble;
  const auto work = [&] {
    while (left.fetch_sub(1) > 0) {
      const Result<Ended> ended = run_command(words);
      if (ended) continue;
      const std::lock_guard lock(mutex);
      if (!trouble) trouble = ended.error().clone();
      left = 0;
    }
  };
  std::vector<std::thread> threads;
  for (size_t i = 0; i < at_once; ++i) threads.emplace_back(work);
  for (std::thread& thread : threads) thread.join();
  if (trouble) return fail(std::move(*trouble));
  return {};
}

Result<int64_t> to_number(std::string_view text, std::string_view what) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\n')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\n')) text.remove_suffix(1);
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) {
    return fail(ErrorCode::corrupt,
                std::string(what) + " is not a number: '" + std::string(text.substr(0, 80)) + "'");
  }
  return number;
}

}  // namespace tranche::bench
