// bench-packing [--seeds N] [--workload NAME]... [--policy NAME]... FOLDER: FGD's inflation experiment on the
// openb trace in FOLDER, published and own means side by side. Policies: the six published ones, and Tranche,
// which is the scheduler itself through step(). Default: all of them, ten seeds.
#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "measure.h"
#include "packing/packing_scheduler.h"
#include "packing/packing_table.h"

namespace tranche::bench {
namespace {

struct Options {
  size_t seeds = 10;
  std::vector<std::string> workloads;
  std::vector<std::string> policies;
  std::string folder;
};

PackingRun run_of(const std::string& policy) {
  for (const PackingPolicy each : kPackingPolicies) {
    if (published_name(each) != policy) continue;
    return [each](const PackingWorkload& workload, const PackingOrder& order, uint64_t seed) {
      return run_packing_policy(workload, order, each, seed);
    };
  }
  return [](const PackingWorkload& workload, const PackingOrder& order, uint64_t) {
    return run_packing_scheduler(workload, order);
  };
}

void print_cell(const PackingCell& cell, const PackingCell* fgd, double seconds) {
  const Spread own_100 = spread_of(cell.at_100);
  const Spread own_130 = spread_of(cell.at_130);
  std::printf("| %-11s | %-13s |", cell.workload.c_str(), cell.policy.c_str());
  if (cell.has_published)
    std::printf(" %5.2f / %5.2f |", cell.published_100.mean, cell.published_130.mean);
  else
    std::printf(" %13s |", "");
  std::printf(" %5.2f+-%.2f / %5.2f+-%.2f |", own_100.mean, own_100.deviation, own_130.mean,
              own_130.deviation);
  if (cell.has_published) {
    std::printf(" %s |", cell.is_as_published() ? "as published " : "DIFFERS      ");
  } else if (fgd != nullptr) {
    // Paired: the same seeds, so the difference is of the same arrivals.
    double by_100 = 0;
    double by_130 = 0;
    for (size_t i = 0; i < cell.at_100.size(); ++i) {
      by_100 += (cell.at_100[i] - fgd->at_100[i]) / static_cast<double>(cell.at_100.size());
      by_130 += (cell.at_130[i] - fgd->at_130[i]) / static_cast<double>(cell.at_130.size());
    }
    std::printf(" %+5.2f / %+5.2f |", by_100, by_130);
  } else {
    std::printf(" %13s |", "");
  }
  std::printf(" %6.2f s |\n", seconds);
  std::fflush(stdout);
}

Result<int> run(const Options& options) {
  std::printf(
      "FGD's inflation experiment, openb trace: allocated GPUs in %% of all when 100 %% / 130 %% have "
      "arrived; "
      "mean and deviation of %zu seeds.\n"
      "Tranche: every pod is submitted to the scheduler through step() and cancelled in the same instant if "
      "it "
      "did not start; its last column is the paired difference to own FGD.\n\n",
      options.seeds);
  std::printf(
      "| workload    | policy        | published     | own                          | verdict       | time   "
      "  |\n");
  std::printf("|---|---|---|---|---|---|\n");
  int differing = 0;
  for (const std::string& name : options.workloads) {
    TRY_ASSIGN(const PackingWorkload workload, read_packing_workload(options.folder, name));
    std::vector<PackingCell> cells;
    for (const std::string& policy : options.policies) {
      const int64_t began = monotonic_ns();
      TRY_ASSIGN(PackingCell cell,
                 run_packing_cell(options.folder, workload, name, policy, options.seeds, run_of(policy)));
      const auto fgd =
          std::find_if(cells.begin(), cells.end(), [](const auto& each) { return each.policy == "FGD"; });
      print_cell(cell, fgd == cells.end() ? nullptr : &*fgd,
                 static_cast<double>(monotonic_ns() - began) / 1e9);
      differing += cell.has_published && !cell.is_as_published() ? 1 : 0;
      cells.push_back(std::move(cell));
    }
  }
  std::printf("\n%d cells differ from what is published by more than max(0.35, 3 standard errors)\n",
              differing);
  return differing == 0 ? 0 : 1;
}

Result<Options> parse(int count, char** words) {
  Options options;
  for (int i = 1; i < count; ++i) {
    const std::string word = words[i];
    if (word == "--seeds" && i + 1 < count) {
      TRY_ASSIGN(const int64_t seeds, to_number(words[++i], "the number of seeds"));
      options.seeds = static_cast<size_t>(std::clamp<int64_t>(seeds, 1, 1000));
    } else if (word == "--workload" && i + 1 < count) {
      options.workloads.emplace_back(words[++i]);
    } else if (word == "--policy" && i + 1 < count) {
      options.policies.emplace_back(words[++i]);
    } else {
      options.folder = word;
    }
  }
  if (options.folder.empty() || options.folder.starts_with("-"))
    return fail(ErrorCode::invalid_argument,
                "write: bench-packing [--seeds N] [--workload NAME]... [--policy NAME]... FOLDER");
  if (options.workloads.empty())
    options.workloads.assign(std::begin(kPackingWorkloads), std::end(kPackingWorkloads));
  if (options.policies.empty()) {
    for (const PackingPolicy policy : kPackingPolicies) options.policies.emplace_back(published_name(policy));
    options.policies.emplace_back("Tranche");
  }
  return options;
}

}  // namespace
}  // namespace tranche::bench

int main(int count, char** words) {
  auto options = tranche::bench::parse(count, words);
  const auto code = options ? tranche::bench::run(*options)
                            : tranche::Result<int>(tranche::fail(std::move(options).error()));
  if (code) return *code;
  std::fprintf(stderr, "%s\n", code.error().message().c_str());
  return 2;
}
