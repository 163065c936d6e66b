// The regressions of order: our simulations of published experiments give the published digits. A simulator
// that does not is not to be believed about anything else.
#include <gtest/gtest.h>

#include <cstdlib>

#include "order/easy_simulation.h"
#include "order/muri_regression.h"
#include "order/published.h"
#include "replay/test_files.h"

namespace tranche::bench {
namespace {

bool is_long_run() { return std::getenv("TRANCHE_LONG") != nullptr; }

TEST(OrderRegression, MuriShortestFirstToThePrintedDigits) {
  const auto table = replay::test::shared_file("traces/muri-sigcomm22/published_simulation.csv");
  if (!table) GTEST_SKIP() << "the traces (shared/traces) are not here";
  // All sixteen cells take half a minute without optimisation: a sample of the small traces stands for them.
  const std::vector<std::string> sample = {"trace1", "trace3", "trace3_pr"};
  const auto cells = run_muri_regression(table->substr(0, table->rfind('/')),
                                         is_long_run() ? std::vector<std::string>{} : sample);
  ASSERT_TRUE(cells) << cells.error().message();
  size_t matching = 0;
  for (const MuriCell& cell : *cells) {
    if (cell.matches) ++matching;
    std::printf("%s %s: published %s, own %.6f%s\n", cell.policy.c_str(), cell.trace.c_str(),
                cell.published[0].c_str(), cell.own.mean_s, cell.matches ? "" : " (differs)");
  }
  std::printf("%zu of %zu cells match, of 16 published\n", matching, cells->size());
  EXPECT_GE(matching, is_long_run() ? size_t{14} : cells->size());
}

TEST(OrderRegression, AFigureThatIsOffByItsLastPlaceDoesNotMatch) {
  EXPECT_TRUE(prints_as(193081.796024, "193081.796"));
  EXPECT_FALSE(prints_as(193081.797024, "193081.796"));
}

TEST(OrderRegression, EasyOnKthAsPublished) {
  const auto path = replay::test::shared_file("traces/kth-sp2-1996/KTH-SP2.swf.gz");
  if (!path) GTEST_SKIP() << "the traces (shared/traces) are not here";
  const auto jobs = replay::read_swf_jobs(*path);
  ASSERT_TRUE(jobs) << jobs.error().message();
  EXPECT_EQ(jobs->size(), size_t{kKthJobs});
  const WaitFigures easy = simulate_easy(*jobs, kKthProcessors, {});
  EXPECT_NEAR(easy.bounded_slowdown, kPublishedEasy, 0.05);
  const EasySettings exact{true, BackfillOrder::shortest_first, RunEstimate::exact};
  EXPECT_NEAR(simulate_easy(*jobs, kKthProcessors, exact).bounded_slowdown, 48.7, 0.05);
  EXPECT_NEAR(simulate_easy(*jobs, kKthProcessors, {.backfill = false}).bounded_slowdown, 6818.6, 0.05);
}

}  // namespace
}  // namespace tranche::bench
