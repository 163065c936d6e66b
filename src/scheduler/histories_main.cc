// Plays histories in as many processes as there are processors, and says how many, how fast and what the
// premises have exempted. A history that fails is made smaller, and the line that plays it again is printed.
//
//   scheduler-histories [--property NAME] [--first SEED] [--count N] [--times N] [--processes N] [--sum-only]
//
// TRANCHE_SEED=N, with TRANCHE_DROP=1,2,... plays that one history again. Exit status: 0 nothing found, 1 a
// finding, 2 wrong use. Every history is played in a process that may end: one that ends the program is found
// like any other.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

#include "scheduler/property.h"

namespace tranche::scheduler::test {
namespace {

struct Options {
  std::string property = "histories";
  uint64_t first = 1;
  uint64_t count = 0;  // none: as many as the property says
  uint64_t processes = std::max(1u, std::thread::hardware_concurrency());
  uint64_t times = 1;
  bool sum_only = false;
};

uint64_t number(const char* text) { return std::strtoull(text, nullptr, 10); }

std::optional<Options> options_of(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--sum-only") {
      options.sum_only = true;
    } else if (i + 1 == argc) {
      return std::nullopt;
    } else if (name == "--property") {
      options.property = argv[++i];
    } else if (name == "--first") {
      options.first = number(argv[++i]);
    } else if (name == "--count") {
      options.count = number(argv[++i]);
    } else if (name == "--times") {
      options.times = number(argv[++i]);
    } else if (name == "--processes") {
      options.processes = number(argv[++i]);
    } else {
      return std::nullopt;
    }
  }
  const bool is_sound = find_property(options.property) != nullptr && options.first > 0 &&
                        options.processes > 0 && options.processes <= 256;
  if (!is_sound) return std::nullopt;
  if (options.count == 0) options.count = find_property(options.property)->histories * options.times;
  return options;
}

std::set<uint64_t> numbers_of(const char* text) {
  std::set<uint64_t> numbers;
  while (text != nullptr && *text != '\0') {
    char* end = nullptr;
    numbers.insert(std::strtoull(text, &end, 10));
    text = *end == ',' ? end + 1 : nullptr;
  }
  return numbers;
}

// What processes tell each other: the history that each is playing, and whether somebody has found something.
struct Board {
  std::atomic<uint64_t> playing[256];
  std::atomic<bool> stop;
};

// A history in a process of its own.
struct Outcome {
  bool failed = false;
  std::string property;  // "signal" if it ended the process
  std::string what;
  uint64_t inputs = 0;
};

Outcome play_apart(const Property& property, const Played& played) {
  int ends[2];
  if (::pipe(ends) != 0) std::abort();
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(ends[0]);
    Played own = played;
    Counts counts;
    const auto finding = property.play(own, counts);
    std::string text = std::to_string(own.inputs) + "\n";
    if (finding) text += finding->property + "\n" + finding->what;
    const ssize_t written = ::write(ends[1], text.data(), text.size());
    ::_exit(written < 0 ? 1 : 0);
  }
  ::close(ends[1]);
  std::string text;
  char buffer[4096];
  for (ssize_t got; (got = ::read(ends[0], buffer, sizeof buffer)) > 0;)
    text.append(buffer, static_cast<size_t>(got));
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  Outcome outcome;
  if (!WIFEXITED(status))
    return {true, "signal", "it ended the process, signal " + std::to_string(status), 400};
  const size_t line = text.find('\n');
  outcome.inputs = number(text.c_str());
  const size_t next = text.find('\n', line + 1);
  if (next == std::string::npos) return outcome;
  outcome.failed = true;
  outcome.property = text.substr(line + 1, next - line - 1);
  outcome.what = text.substr(next + 1);
  return outcome;
}

// Fewer inputs that show a fault of the same property: halves, quarters, ... are taken out as long as it
// stays.
Played made_smaller(const Property& property, Played played, Outcome& outcome) {
  const std::string of = outcome.property;
  for (uint64_t size = std::max<uint64_t>(outcome.inputs / 2, 1); size > 0; size /= 2) {
    for (uint64_t from = 1; from <= outcome.inputs; from += size) {
      Played fewer = played;
      for (uint64_t i = from; i < from + size; ++i) fewer.dropped.insert(i);
      if (fewer.dropped.size() == played.dropped.size()) continue;
      Outcome again = play_apart(property, fewer);
      if (!again.failed || again.property != of) continue;
      again.inputs = std::max(again.inputs, outcome.inputs);
      played = fewer;
      outcome = again;
    }
  }
  return played;
}

void tell(const Property& property, const Played& first, const Outcome& of_first) {
  std::printf("seed %llu: %s: %s\n", static_cast<unsigned long long>(first.seed), of_first.property.c_str(),
              of_first.what.c_str());
  Outcome outcome = of_first;
  const Played played = made_smaller(property, first, outcome);
  std::string dropped;
  for (const uint64_t input : played.dropped) dropped += (dropped.empty() ? "" : ",") + std::to_string(input);
  std::printf("made smaller, to %llu of %llu inputs: %s: %s\n",
              static_cast<unsigned long long>(outcome.inputs -
                                              std::min<uint64_t>(outcome.inputs, played.dropped.size())),
              static_cast<unsigned long long>(outcome.inputs), outcome.property.c_str(),
              outcome.what.c_str());
  std::printf("play it again: TRANCHE_SEED=%llu TRANCHE_DROP=%s scheduler-histories --property %s\n",
              static_cast<unsigned long long>(played.seed), dropped.c_str(), property.name);
}

// What one process does; its counts go through the pipe, a line each.
int work(const Property& property, const Options& options, uint64_t own, Board& board, int out) {
  Counts counts;
  int status = 0;
  for (uint64_t i = own; i < options.count && !board.stop; i += options.processes) {
    Played played{options.first + i};
    board.playing[own] = played.seed;
    if (property.play(played, counts)) {
      board.stop = true;
      status = 1;
      break;
    }
  }
  std::string text;
  for (const auto& [what, count] : counts.all()) text += std::to_string(count) + " " + what + "\n";
  for (size_t at = 0; at < text.size();) {
    const ssize_t written = ::write(out, text.data() + at, text.size() - at);
    if (written <= 0) return 1;
    at += static_cast<size_t>(written);
  }
  return status;
}

Counts counts_of(FILE* in) {
  Counts counts;
  char line[512];
  while (std::fgets(line, sizeof line, in) != nullptr) {
    char* what = nullptr;
    const uint64_t count = std::strtoull(line, &what, 10);
    what[std::strcspn(what, "\n")] = '\0';
    counts.add(what + 1, count);
  }
  return counts;
}

void print(const Counts& counts) {
  for (const auto& [what, count] : counts.all())
    std::printf("%12llu %s\n", static_cast<unsigned long long>(count), what.c_str());
}

int play_all(const Property& property, const Options& options) {
  void* const shared =
      ::mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) return 2;
  Board& board = *new (shared) Board{};
  struct Worker {
    pid_t process = 0;
    FILE* in = nullptr;
  };
  std::vector<Worker> workers;
  const auto began = std::chrono::steady_clock::now();
  for (uint64_t own = 0; own < options.processes; ++own) {
    int ends[2];
    if (::pipe(ends) != 0) return 2;
    const pid_t child = ::fork();
    if (child < 0) return 2;
    if (child == 0) {
      ::close(ends[0]);
      ::_exit(work(property, options, own, board, ends[1]));
    }
    ::close(ends[1]);
    workers.push_back({child, ::fdopen(ends[0], "r")});
  }
  Counts counts;
  std::vector<uint64_t> failed;
  for (uint64_t own = 0; own < options.processes; ++own) {
    counts.add(counts_of(workers[own].in));
    std::fclose(workers[own].in);
    int status = 0;
    ::waitpid(workers[own].process, &status, 0);
    if (status == 0) continue;
    board.stop = true;
    failed.push_back(board.playing[own]);
  }
  const auto took =
      std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - began);
  const auto milliseconds = static_cast<uint64_t>(std::max<int64_t>(took.count(), 1));
  if (options.sum_only) {
    std::printf("%llu\n", static_cast<unsigned long long>(counts.of("sum of the states' hashes")));
  } else {
    print(counts);
    std::printf("%llu histories from seed %llu in %llu s, %llu a second in %llu processes\n",
                static_cast<unsigned long long>(options.count),
                static_cast<unsigned long long>(options.first),
                static_cast<unsigned long long>(milliseconds / 1000),
                static_cast<unsigned long long>(options.count * 1000 / milliseconds),
                static_cast<unsigned long long>(options.processes));
  }
  std::fflush(stdout);
  for (const uint64_t seed : failed) {
    const Outcome outcome = play_apart(property, Played{seed});
    tell(property, Played{seed}, outcome);
  }
  return failed.empty() ? 0 : 1;
}

int play_one(const Property& property, uint64_t seed) {
  Played played{seed, numbers_of(std::getenv("TRANCHE_DROP"))};
  Counts counts;
  const auto finding = property.play(played, counts);
  print(counts);
  if (finding) std::printf("%s: %s\n", finding->property.c_str(), finding->what.c_str());
  return finding ? 1 : 0;
}

}  // namespace
}  // namespace tranche::scheduler::test

int main(int argc, char** argv) {
  using namespace tranche::scheduler::test;
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  const auto options = options_of(argc, argv);
  if (!options) {
    std::fprintf(
        stderr,
        "usage: scheduler-histories [--property NAME] [--first SEED] [--count N] [--times N] [--processes N] "
        "[--sum-only]\nproperties:\n");
    for (const Property& property : properties())
      std::fprintf(stderr, "  %-10s %s\n", property.name, property.statement);
    return 2;
  }
  const Property& property = *find_property(options->property);
  const char* const seed = std::getenv("TRANCHE_SEED");
  return seed != nullptr ? play_one(property, number(seed)) : play_all(property, *options);
}
