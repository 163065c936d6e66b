// The packing baselines against their published means, on a sample of workloads and seeds; and that the
// measure itself can tell a wrong policy.
#include <gtest/gtest.h>

#include "packing/packing_cluster.h"
#include "packing/packing_scheduler.h"
#include "packing/packing_table.h"
#include "replay/test_files.h"

namespace tranche::bench {
namespace {

constexpr size_t kSampleSeeds = 3;

PackingRun baseline(PackingPolicy policy) {
  return [policy](const PackingWorkload& workload, const PackingOrder& order, uint64_t seed) {
    return run_packing_policy(workload, order, policy, seed);
  };
}

std::optional<std::string> trace_folder() {
  const auto table = replay::test::shared_file("traces/openb-2023/openb_node_list_gpu_node.csv");
  if (!table) return std::nullopt;
  return table->substr(0, table->rfind('/'));
}

TEST(Packing, PublishedPoliciesGivePublishedMeansOnASample) {
  const auto folder = trace_folder();
  if (!folder) GTEST_SKIP() << "the traces (shared/traces) are not here";
  const auto workload = read_packing_workload(*folder, "default");
  ASSERT_TRUE(workload) << workload.error().message();
  for (const PackingPolicy policy :
       {PackingPolicy::dot_product, PackingPolicy::best_fit, PackingPolicy::fgd}) {
    const auto cell = run_packing_cell(*folder, *workload, "default", std::string(published_name(policy)),
                                       kSampleSeeds, baseline(policy));
    ASSERT_TRUE(cell) << cell.error().message();
    std::printf("default %s: published %.2f, own %.2f (3 of 10 seeds, 1 of 17 workloads)\n",
                cell->policy.c_str(), cell->published_100.mean, spread_of(cell->at_100).mean);
    EXPECT_TRUE(cell->is_as_published()) << cell->policy;
  }
  // Another policy under FGD's name is told apart.
  const auto wrong =
      run_packing_cell(*folder, *workload, "default", "FGD", kSampleSeeds, baseline(PackingPolicy::best_fit));
  ASSERT_TRUE(wrong);
  EXPECT_FALSE(wrong->is_as_published());
}

// The scheduler itself, by the same arrivals as the baseline.
TEST(Packing, TheSchedulerIsBesideFgdOnASample) {
  const auto folder = trace_folder();
  if (!folder) GTEST_SKIP() << "the traces (shared/traces) are not here";
  const auto workload = read_packing_workload(*folder, "gpuspec33");
  ASSERT_TRUE(workload) << workload.error().message();
  const auto fgd =
      run_packing_cell(*folder, *workload, "gpuspec33", "FGD", kSampleSeeds, baseline(PackingPolicy::fgd));
  const auto ours = run_packing_cell(*folder, *workload, "gpuspec33", "Tranche", kSampleSeeds,
                                     [](const PackingWorkload& pods, const PackingOrder& order, uint64_t) {
                                       return run_packing_scheduler(pods, order);
                                     });
  ASSERT_TRUE(fgd) << fgd.error().message();
  ASSERT_TRUE(ours) << ours.error().message();
  const double more_at_100 = spread_of(ours->at_100).mean - spread_of(fgd->at_100).mean;
  const double more_at_130 = spread_of(ours->at_130).mean - spread_of(fgd->at_130).mean;
  std::printf(
      "gpuspec33 Tranche - FGD: %+.2f at 100 %%, %+.2f at 130 %% (3 of 10 seeds, 1 of 17 workloads)\n",
      more_at_100, more_at_130);
  EXPECT_GE(more_at_100, 4.0);
  EXPECT_GE(more_at_130, -0.25);
}

TEST(Packing, FragmentationIsWhatTypicalPodsCannotUse) {
  PackedNode node;
  node.cpu_free = 4000;
  node.gpu_free = {1000, 300};
  const std::vector<PackedClass> typical = {
      {{1000, 0, 1, 500, {}}, ~0U}, {{8000, 0, 1, 1000, {}}, ~0U}, {{1000, 0, 0, 0, {}}, ~0U}};
  // Half a GPU: the 300 are of no use. 8 cores: nothing is. No GPU: nothing is.
  EXPECT_DOUBLE_EQ(fragmentation(node, typical, {0.5, 0.25, 0.25}), 0.5 * 300 + 0.25 * 1300 + 0.25 * 1300);
}

}  // namespace
}  // namespace tranche::bench
