// tranche-fuzz: decoders of what comes from outside, under changed inputs.
//
//   tranche-fuzz list
//   tranche-fuzz TARGET|all SECONDS [SEED]     each target for so long; exit 0 when nothing was found
//   tranche-fuzz TARGET --input FILE...        those inputs only, such as one that was found
//
// Built with AddressSanitizer (preset asan) it follows the branches that inputs take and keeps those that
// take new ones; without, it changes the inputs to begin with, and those that are accepted. A finding's input
// is written to fuzz-found-TARGET in the working directory. TRANCHE_SEED is SEED, if set.
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>

#include "coverage.h"
#include "fuzz_target.h"
#include "linux/log.h"
#include "mutator.h"

// A finding ends the program, wherever it is reported.
extern "C" const char* __asan_default_options();
extern "C" const char* __asan_default_options() {
  return "max_allocation_size_mb=512:hard_rss_limit_mb=4096:abort_on_error=0:handle_abort=0";
}
extern "C" const char* __ubsan_default_options();
extern "C" const char* __ubsan_default_options() { return "halt_on_error=1:print_stacktrace=1"; }
extern "C" __attribute__((weak)) void __sanitizer_set_death_callback(void (*callback)());

namespace tranche::fuzz {
namespace {

constexpr unsigned kSecondsOfOneInput = 20;
constexpr size_t kKeptMax = 20'000;

std::string_view current;  // what is being tried
char found_path[256];

// From signal handlers too: no allocation.
void write_found() {
  const int file = ::open(found_path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (file < 0) return;
  (void)!::write(file, current.data(), current.size());
  ::close(file);
  static constexpr char kSaid[] = "\nfound; the input is in ";
  (void)!::write(STDERR_FILENO, kSaid, sizeof kSaid - 1);
  (void)!::write(STDERR_FILENO, found_path, std::strlen(found_path));
  (void)!::write(STDERR_FILENO, "\n", 1);
}

void on_signal(int signal) {
  static constexpr char kSlow[] = "an input takes longer than the bound";
  if (signal == SIGALRM) (void)!::write(STDERR_FILENO, kSlow, sizeof kSlow - 1);
  write_found();
  ::_exit(1);
}

bool try_input(const Target& target, std::string_view input) {
  current = input;
  ::alarm(kSecondsOfOneInput);
  forget_branches();
  const bool accepted = target.run(input);
  ::alarm(0);
  return accepted;
}

struct Counts {
  uint64_t inputs = 0, accepted = 0;
};

void fuzz(const Target& target, double seconds, uint64_t seed) {
  std::snprintf(found_path, sizeof found_path, "fuzz-found-%s", std::string(target.name).c_str());
  Random dice(seed);
  Mutator mutator(dice.next(), target.words());
  std::vector<std::string> kept;
  Counts counts;
  for (std::string& input : target.seeds()) {
    require(input.size() <= kInputMax, "an input to begin with is too long");
    // All of them must be right, or nothing is begun with.
    require(try_input(target, input), "an input to begin with is refused");
    if (took_new_branches() || branches_known() == 0) kept.push_back(std::move(input));
    ++counts.inputs;
  }
  const size_t seeds = kept.size();
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (std::chrono::steady_clock::now() < end) {
    // The latest half of the time: they are where something new was met.
    const size_t oldest = dice.chance(1, 2) ? kept.size() * 3 / 4 : 0;
    const std::string& base = kept[oldest + static_cast<size_t>(dice.below(kept.size() - oldest))];
    std::string input = mutator.change(base, kept);
    const bool accepted = try_input(target, input);
    ++counts.inputs;
    counts.accepted += accepted ? 1 : 0;
    const bool is_new = branches_known() > 0 ? took_new_branches() : accepted && dice.chance(1, 64);
    if (is_new && kept.size() < kKeptMax) kept.push_back(std::move(input));
  }
  std::printf(
      "%-10s %llu inputs, %llu accepted; %zu to begin with, %zu kept, %zu pairs of branches; seed %llu: "
      "nothing found\n",
      std::string(target.name).c_str(), static_cast<unsigned long long>(counts.inputs),
      static_cast<unsigned long long>(counts.accepted), seeds, kept.size() - seeds, branches_known(),
      static_cast<unsigned long long>(seed));
  std::fflush(stdout);
}

int run_files(const Target& target, int count, char** paths) {
  std::snprintf(found_path, sizeof found_path, "fuzz-found-%s", std::string(target.name).c_str());
  for (int i = 0; i < count; ++i) {
    std::ifstream file(paths[i], std::ios::binary);
    if (!file) return std::fprintf(stderr, "%s cannot be read\n", paths[i]), 2;
    const std::string input((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    std::printf("%s: %s\n", paths[i], try_input(target, input) ? "accepted" : "refused");
  }
  return 0;
}

int usage() {
  std::fputs("usage: tranche-fuzz list | TARGET|all SECONDS [SEED] | TARGET --input FILE...\n", stderr);
  return 2;
}

int run(int count, char** words) {
  if (count == 2 && std::strcmp(words[1], "list") == 0) {
    for (const Target& target : targets()) std::printf("%s\n", std::string(target.name).c_str());
    return 0;
  }
  if (count < 3) return usage();
  const char* seed = std::getenv("TRANCHE_SEED");
  if (seed == nullptr) seed = count > 3 ? words[3] : "1";
  for (const int signal : {SIGABRT, SIGALRM}) ::signal(signal, on_signal);
  ::signal(SIGPIPE, SIG_IGN);
  if (__sanitizer_set_death_callback != nullptr) __sanitizer_set_death_callback(write_found);
  set_log_sink([](LogLevel, std::string_view) {});
  bool known = false;
  for (const Target& target : targets()) {
    if (std::strcmp(words[1], "all") != 0 && target.name != words[1]) continue;
    known = true;
    if (std::strcmp(words[2], "--input") == 0) return run_files(target, count - 3, words + 3);
    fuzz(target, std::atof(words[2]), std::strtoull(seed, nullptr, 10));
  }
  return known ? 0 : usage();
}

}  // namespace

void require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "found: %s\n", what);
  write_found();
  std::_Exit(1);
}

const std::vector<Target>& targets() {
  static const std::vector<Target> all = [] {
    std::vector<Target> joined;
    for (auto* part : {text_targets, state_targets, peer_targets, launcher_targets}) {
      for (const Target& target : part()) joined.push_back(target);
    }
    return joined;
  }();
  return all;
}

}  // namespace tranche::fuzz

int main(int count, char** words) { return tranche::fuzz::run(count, words); }
