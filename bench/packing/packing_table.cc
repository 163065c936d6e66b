#include "packing/packing_table.h"

#include <algorithm>
#include <cmath>

#include "replay/trace_file.h"

namespace tranche::bench {
namespace {

constexpr double kPointsAllowed = 0.35;
constexpr double kErrorsAllowed = 3;
constexpr double kPublishedSeeds = 10;

double micro_value(const replay::TraceTable& table, size_t row, size_t column) {
  return static_cast<double>(table.micro(row, column)) / 1e6;
}

Result<void> take_published(const std::string& folder, PackingCell& cell) {
  TRY_ASSIGN(const replay::TraceTable table,
             replay::TraceTable::read_csv(folder + "/fgd-expected/summary_alloc.csv"));
  TRY_ASSIGN(const size_t mean_100, table.column("a100_mean"));
  TRY_ASSIGN(const size_t mean_130, table.column("a130_mean"));
  for (size_t row = 0; row < table.rows(); ++row) {
    if (table.cell(row, 0) != cell.workload || table.cell(row, 1) != cell.policy) continue;
    cell.has_published = true;
    cell.published_100 = {micro_value(table, row, mean_100), micro_value(table, row, mean_100 + 1)};
    cell.published_130 = {micro_value(table, row, mean_130), micro_value(table, row, mean_130 + 1)};
  }
  return table.check();
}

bool is_close(const Spread& published, const std::vector<double>& own) {
  const Spread mine = spread_of(own);
  const double error = std::sqrt(published.deviation * published.deviation / kPublishedSeeds +
                                 mine.deviation * mine.deviation / static_cast<double>(own.size()));
  return std::abs(published.mean - mine.mean) <= std::max(kPointsAllowed, kErrorsAllowed * error);
}

}  // namespace

Spread spread_of(const std::vector<double>& values) {
  Spread spread;
  for (const double value : values) spread.mean += value;
  spread.mean /= static_cast<double>(values.size());
  for (const double value : values) spread.deviation += (value - spread.mean) * (value - spread.mean);
  spread.deviation = std::sqrt(spread.deviation / static_cast<double>(values.size()));
  return spread;
}

bool PackingCell::is_as_published() const {
  return has_published && is_close(published_100, at_100) && is_close(published_130, at_130);
}

Result<PackingCell> run_packing_cell(const std::string& folder, const PackingWorkload& workload,
                                     const std::string& name, const std::string& policy, size_t seeds,
                                     const PackingRun& run) {
  PackingCell cell;
  cell.workload = name;
  cell.policy = policy;
  TRY(take_published(folder, cell));
  for (uint64_t seed = kFirstSeed; seed < kFirstSeed + seeds; ++seed) {
    const AllocationCurve curve = run(workload, packing_order(workload, seed), seed);
    cell.at_100.push_back(curve.at(100));
    cell.at_130.push_back(curve.at(130));
  }
  return cell;
}

}  // namespace tranche::bench
