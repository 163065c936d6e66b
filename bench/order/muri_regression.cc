#include "order/muri_regression.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "order/published.h"
#include "replay/trace_file.h"

namespace tranche::bench {

bool prints_as(double value, const std::string& text) {
  const size_t point = text.find('.');
  const int places = point == std::string::npos ? 0 : static_cast<int>(text.size() - point - 1);
  // Half a unit of the last printed place, and what a sum of thousands of doubles may be off.
  const double slack = 0.5 * std::pow(10.0, -places) + 2e-6;
  return std::abs(value - std::strtod(text.c_str(), nullptr)) <= slack;
}

Result<std::vector<MuriCell>> run_muri_regression(const std::string& folder,
                                                  const std::vector<std::string>& traces) {
  TRY_ASSIGN(const replay::TraceTable table,
             replay::TraceTable::read_csv(folder + "/published_simulation.csv"));
  std::vector<MuriCell> cells;
  for (size_t row = 0; row < table.rows(); ++row) {
    MuriCell cell;
    cell.policy = table.cell(row, 0);
    cell.trace = table.cell(row, 1);
    if (cell.policy != "SRTF" && cell.policy != "SRSF") continue;
    if (!traces.empty() && std::find(traces.begin(), traces.end(), cell.trace) == traces.end()) continue;
    for (size_t i = 0; i < 3; ++i) cell.published[i] = table.cell(row, 2 + i);
    TRY_ASSIGN(const std::vector<replay::MuriJob> jobs,
               replay::read_muri_jobs(folder + "/" + cell.trace + ".csv.gz"));
    const MuriOrder order = cell.policy == "SRTF" ? MuriOrder::remaining_time : MuriOrder::remaining_service;
    cell.own = simulate_muri(jobs, order, kMuriNodes, kMuriGpusPerNode);
    cell.matches = prints_as(cell.own.mean_s, cell.published[0]) &&
                   prints_as(cell.own.makespan_s, cell.published[1]) &&
                   prints_as(cell.own.p99_s, cell.published[2]);
    cells.push_back(std::move(cell));
  }
  return cells;
}

}  // namespace tranche::bench
