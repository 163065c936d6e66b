// The same of task-spooler, which users have today: no isolation, no GPUs to keep apart, no journal.
#include <unistd.h>

#include <string>

#include "figures.h"
#include "linux/files.h"
#include "measure.h"

namespace tranche::bench {
namespace {

std::string line_of(const Ended& ended) { return ended.output.substr(0, ended.output.find('\n')); }

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

}  // namespace tranche::bench
