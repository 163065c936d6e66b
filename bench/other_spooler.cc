// The same of what users have today: task-spooler (no isolation, no GPUs to keep apart, no journal), and
// Slurm as bench/slurm.py sets it up.
#include <time.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "figures.h"
#include "linux/files.h"
#include "measure.h"

namespace tranche::bench {
namespace {

constexpr size_t kSlurmWarmUp = 5;
constexpr int64_t kSlurmPollNanoseconds = 1'000'000;
constexpr int64_t kLongestSlurmWait = 60'000'000'000;

std::string line_of(const Ended& ended) { return ended.output.substr(0, ended.output.find('\n')); }

void pause_for_a_poll() {
  const timespec span{0, kSlurmPollNanoseconds};
  nanosleep(&span, nullptr);
}

std::vector<std::string> sbatch(const std::vector<std::string>& more) {
  std::vector<std::string> command = {"sbatch", "--parsable", "--gres=gpu:1", "--mem=1M"};
  command.insert(command.end(), more.begin(), more.end());
  return command;
}

Result<void> wait_until_slurm_is_idle() {
  for (;;) {
    TRY_ASSIGN(const Ended listed, run_command({"squeue", "--noheader", "--format=%i"}));
    if (listed.output.empty()) return {};
    pause_for_a_poll();
  }
}

// The job's stamp, once it is there.
Result<int64_t> wait_for_stamp(const std::string& log) {
  const int64_t began = monotonic_ns();
  for (;;) {
    const Result<std::string> text = read_file(log, 4096);
    if (text && text->ends_with('\n')) {
      unlink(log.c_str());
      return to_number(*text, "the job's stamp in " + log);
    }
    if (monotonic_ns() - began > kLongestSlurmWait) {
      return fail(ErrorCode::timed_out, "no stamp in " + log + " after a minute; see what squeue says");
    }
    pause_for_a_poll();
  }
}

}  // namespace

Result<void> measure_tsp_submit(const Setting& setting) {
  Samples to_first;
  TRY(run_command({"tsp", "true"}));  // starts its server
  for (size_t i = 0; i < setting.count; ++i) {
    pause_below_ms(20);
    TRY_ASSIGN(const Ended submitted, run_command({"tsp", setting.bin + "/bench-stamp"}));
    const std::string id = line_of(submitted);
    TRY(run_command({"tsp", "-w", id}));
    TRY_ASSIGN(const Ended named, run_command({"tsp", "-o", id}));
    const std::string log = line_of(named);
    TRY_ASSIGN(const std::string text, read_file(log, 4096));
    unlink(log.c_str());
    TRY_ASSIGN(const int64_t first, to_number(text, "the job's stamp in " + log));
    to_first.add(first - submitted.began_ns);
  }
  print_spans("tsp submit", to_first);
  return {};
}

Result<void> measure_tsp_noop(const Setting& setting) {
  // As many at once as there are GPUs for Tranche's.
  const std::string slots = std::to_string(setting.connections);
  TRY(run_command({"tsp", "-S", slots}));
  const int64_t began = monotonic_ns();
  for (size_t i = 1; i < setting.count; ++i) TRY(run_command({"tsp", "/bin/true"}));
  // The last takes all slots, so that it ends after all others.
  TRY_ASSIGN(const Ended last, run_command({"tsp", "-N", slots, "/bin/true"}));
  TRY(run_command({"tsp", "-w", line_of(last)}));
  print_rate("tsp noop", setting.count, monotonic_ns() - began);
  return {};
}

Result<void> measure_slurm_submit(const Setting& setting) {
  Samples to_first;
  for (size_t i = 0; i < kSlurmWarmUp + setting.count; ++i) {
    pause_below_ms(20);
    // sbatch takes scripts only, so a shell comes before the stamp, as it does for Slurm's users.
    TRY_ASSIGN(const Ended submitted, run_command(sbatch({"--output=" + setting.folder + "/slurm-%j.out",
                                                          "--wrap=exec " + setting.bin + "/bench-stamp"})));
    TRY_ASSIGN(const int64_t first, wait_for_stamp(setting.folder + "/slurm-" + line_of(submitted) + ".out"));
    if (i >= kSlurmWarmUp) to_first.add(first - submitted.began_ns);
  }
  print_spans("slurm submit", to_first);
  return wait_until_slurm_is_idle();
}

Result<void> measure_slurm_run(const Setting& setting) {
  Samples to_first;
  for (size_t i = 0; i < kSlurmWarmUp + setting.count; ++i) {
    pause_below_ms(20);
    TRY_ASSIGN(const Ended ended,
               run_command({"srun", "--quiet", "--gres=gpu:1", "--mem=1M", setting.bin + "/bench-stamp"}));
    TRY_ASSIGN(const int64_t first, to_number(ended.output, "what the job printed through srun"));
    if (i >= kSlurmWarmUp) to_first.add(first - ended.began_ns);
  }
  print_spans("slurm run", to_first);
  return {};
}

Result<void> measure_slurm_noop(const Setting& setting) {
  const int64_t began = monotonic_ns();
  TRY(run_many(setting.count, setting.connections, sbatch({"--output=/dev/null", "--wrap=exec true"})));
  TRY(wait_until_slurm_is_idle());
  print_rate("slurm noop", setting.count, monotonic_ns() - began);
  return {};
}

Result<void> measure_slurm_held(const Setting& setting) {
  const int64_t began = monotonic_ns();
  TRY(run_many(setting.count, setting.connections,
               sbatch({"--hold", "--output=/dev/null", "--wrap=exec true"})));
  print_rate("slurm held", setting.count, monotonic_ns() - began);
  TRY(run_command({"scancel", "--state=PENDING", "--quiet", "--user=" + std::to_string(getuid())}));
  return wait_until_slurm_is_idle();
}

}  // namespace tranche::bench
