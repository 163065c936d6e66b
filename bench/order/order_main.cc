// bench-order TRACES: the experiments of order, published and own figures side by side. TRACES is the folder
// with muri-sigcomm22 and kth-sp2-1996.
#include <cstdio>
#include <string>

#include "measure.h"
#include "order/muri_regression.h"
#include "order/published.h"
#include "order/scheduler_order.h"

namespace tranche::bench {
namespace {

double seconds_since(int64_t began) { return static_cast<double>(monotonic_ns() - began) / 1e9; }

Result<void> print_muri(const std::string& folder) {
  const int64_t began = monotonic_ns();
  TRY_ASSIGN(const std::vector<MuriCell> cells, run_muri_regression(folder, {}));
  std::printf(
      "Muri (SIGCOMM'22), simulated job completion times in seconds on 8 x 8 GPUs: published, own rebuilt "
      "simulation. A regression of the simulator; Tranche has no part in it.\n\n");
  std::printf(
      "| policy | trace | mean published | own | makespan published | own | p99 published | own | digits |\n"
      "|---|---|---|---|---|---|---|---|---|\n");
  size_t matching = 0;
  for (const MuriCell& cell : cells) {
    std::printf("| %s | %s | %s | %.4f | %s | %.6f | %s | %.6f | %s |\n", cell.policy.c_str(),
                cell.trace.c_str(), cell.published[0].c_str(), cell.own.mean_s, cell.published[1].c_str(),
                cell.own.makespan_s, cell.published[2].c_str(), cell.own.p99_s,
                cell.matches ? "equal" : "differ");
    if (cell.matches) ++matching;
  }
  std::printf("\n%zu of %zu cells to the printed digits, %.1f s\n\n", matching, cells.size(),
              seconds_since(began));
  return {};
}

void print_row(const char* what, const char* published, const WaitFigures& figures, double seconds) {
  std::printf("| %-58s | %9s | %8.1f | %8.0f | %6.2f s |\n", what, published, figures.bounded_slowdown,
              figures.wait_s, seconds);
  std::fflush(stdout);
}

Result<void> print_kth(const std::string& path) {
  TRY_ASSIGN(const std::vector<replay::SwfJob> jobs, replay::read_swf_jobs(path));
  std::printf(
      "KTH-SP2, 100 processors, %zu jobs: mean bounded slow-down (bound 10 s) and mean wait in seconds. "
      "Tranche: every job through step() on virtual time, the user's estimate as its limit, true run times "
      "never told.\n\n",
      jobs.size());
  std::printf("| order and estimates | published | slow-down | wait | time |\n|---|---|---|---|---|\n");
  struct Row {
    const char* what;
    const char* published;
    EasySettings settings;
  };
  const Row rows[] = {
      {"first come, no backfill", "6818.6", {.backfill = false}},
      {"EASY, users' estimates", "92.8", {}},
      {"EASY, shortest first, users' estimates", "68.0", {.order = BackfillOrder::shortest_first}},
      {"EASY, shortest first, last two runs",
       "68.3",
       {.order = BackfillOrder::shortest_first, .estimate = RunEstimate::last_two}},
      {"EASY, exact run times", "70.6", {.estimate = RunEstimate::exact}},
      {"EASY, shortest first, exact run times",
       "48.7",
       {.order = BackfillOrder::shortest_first, .estimate = RunEstimate::exact}}};
  for (const Row& row : rows) {
    const int64_t began = monotonic_ns();
    const WaitFigures figures = simulate_easy(jobs, kKthProcessors, row.settings);
    print_row(row.what, row.published, figures, seconds_since(began));
  }
  const int64_t began = monotonic_ns();
  const SchedulerOrderFigures ours = run_scheduler_order(jobs, kKthProcessors, Policy{});
  print_row("Tranche, default policy", "", ours.waits, seconds_since(began));
  Policy shortest;
  shortest.backfill_order = tranche::BackfillOrder::shortest;
  const int64_t began_shortest = monotonic_ns();
  const SchedulerOrderFigures passing = run_scheduler_order(jobs, kKthProcessors, shortest);
  print_row("Tranche, backfill_order = \"shortest\"", "<= 68.3", passing.waits,
            seconds_since(began_shortest));
  std::printf("\n%llu events, %llu decisions, %llu submissions refused\n",
              static_cast<unsigned long long>(ours.result.totals.events),
              static_cast<unsigned long long>(ours.result.totals.decisions),
              static_cast<unsigned long long>(ours.result.refused));
  return {};
}

Result<void> run(const std::string& which, const std::string& folder) {
  if (which != "kth") TRY(print_muri(folder + "/muri-sigcomm22"));
  if (which != "muri") TRY(print_kth(folder + "/kth-sp2-1996/KTH-SP2.swf.gz"));
  return {};
}

}  // namespace
}  // namespace tranche::bench

int main(int count, char** words) {
  if (count != 2 && count != 3) {
    std::fputs("write: bench-order [muri|kth] TRACES\n", stderr);
    return 2;
  }
  const auto done = tranche::bench::run(count == 3 ? words[1] : "", words[count - 1]);
  if (done) return 0;
  std::fprintf(stderr, "%s\n", done.error().message().c_str());
  return 1;
}
