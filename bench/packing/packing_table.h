// The packing experiment as a table: published and own figures side by side, and whether the baselines are
// the published ones within the noise of ten seeds.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "packing/packing_policies.h"

namespace tranche::bench {

// The workloads of the published table.
inline constexpr std::string_view kPackingWorkloads[] = {
    "default",    "cpu050",     "cpu100",      "cpu200",     "cpu250",    "gpushare40",
    "gpushare60", "gpushare80", "gpushare100", "gpuspec10",  "gpuspec20", "gpuspec25",
    "gpuspec33",  "multigpu20", "multigpu30",  "multigpu40", "multigpu50"};
inline constexpr uint64_t kFirstSeed = 42;

struct Spread {
  double mean = 0;
  double deviation = 0;  // of the population, as published
};
Spread spread_of(const std::vector<double>& values);

// One policy on one workload.
struct PackingCell {
  std::string workload;
  std::string policy;          // as the published tables spell it, or "Tranche"
  std::vector<double> at_100;  // by seed
  std::vector<double> at_130;
  bool has_published = false;
  Spread published_100;
  Spread published_130;

  // The published mean is within max(0.35 point, 3 standard errors of the difference of two means of ten
  // seeds).
  bool is_as_published() const;
};

// Runs one seed and gives its curve; for baselines and for the scheduler alike.
using PackingRun = std::function<AllocationCurve(const PackingWorkload&, const PackingOrder&, uint64_t seed)>;

Result<PackingCell> run_packing_cell(const std::string& folder, const PackingWorkload& workload,
                                     const std::string& name, const std::string& policy, size_t seeds,
                                     const PackingRun& run);

}  // namespace tranche::bench
