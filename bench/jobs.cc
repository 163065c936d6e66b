// bench-jobs FIGURE BIN FOLDER COUNT [CONNECTIONS]: takes one figure, as the user who runs it, against the
// daemon that runs. bench/run calls it; the log files of the jobs lie in FOLDER only while they are needed.
#include <cstdio>
#include <string_view>
#include <utility>

#include "figures.h"
#include "measure.h"

namespace {

using tranche::Result;
using tranche::bench::Setting;

constexpr std::pair<std::string_view, Result<void> (*)(const Setting&)> kFigures[] = {
    {"request", tranche::bench::measure_request},
    {"submit", tranche::bench::measure_submit},
    {"noop", tranche::bench::measure_noop},
    {"held", tranche::bench::measure_held},
    {"held-by-commands", tranche::bench::measure_held_by_commands},
    {"list", tranche::bench::measure_list},
    {"tsp-submit", tranche::bench::measure_tsp_submit},
    {"tsp-noop", tranche::bench::measure_tsp_noop},
    {"disk", tranche::bench::measure_disk},
    {"slurm-submit", tranche::bench::measure_slurm_submit},
    {"slurm-run", tranche::bench::measure_slurm_run},
    {"slurm-noop", tranche::bench::measure_slurm_noop},
    {"slurm-held", tranche::bench::measure_slurm_held},
};

int usage() {
  std::fputs("usage: bench-jobs FIGURE BIN FOLDER COUNT [CONNECTIONS]\nfigures:", stderr);
  for (const auto& [name, measure] : kFigures) {
    std::fprintf(stderr, " %.*s", static_cast<int>(name.size()), name.data());
  }
  std::fputs("\n", stderr);
  return 2;
}

}  // namespace

int main(int count, char** words) {
  if (count < 5 || count > 6) return usage();
  Setting setting;
  setting.bin = words[2];
  setting.folder = words[3];
  const auto jobs = tranche::bench::to_number(words[4], "COUNT");
  const auto connections = tranche::bench::to_number(count == 6 ? words[5] : "1", "CONNECTIONS");
  if (!jobs || !connections || *jobs < 1 || *connections < 1 || *connections > 256) return usage();
  setting.count = static_cast<size_t>(*jobs);
  setting.connections = static_cast<size_t>(*connections);
  for (const auto& [name, measure] : kFigures) {
    if (name != words[1]) continue;
    const Result<void> done = measure(setting);
    if (done) return 0;
    std::fprintf(stderr, "bench-jobs: %s\n", done.error().message().c_str());
    return 1;
  }
  return usage();
}
