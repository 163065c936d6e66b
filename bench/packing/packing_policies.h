// The six published placement policies that ours is measured against, from the formulas of their simulator
// (reference: FGD, ATC'23): a whole number from 0 to 100 for each node, the highest wins, ties go to the
// first node of the seed's order. Baselines only: nothing of the product uses them.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "packing/packing_workload.h"

namespace tranche::bench {

enum class PackingPolicy { random, dot_product, clustering, packing, best_fit, fgd };
inline constexpr PackingPolicy kPackingPolicies[] = {PackingPolicy::random,     PackingPolicy::dot_product,
                                                     PackingPolicy::clustering, PackingPolicy::packing,
                                                     PackingPolicy::best_fit,   PackingPolicy::fgd};
// As the published tables spell it.
std::string_view published_name(PackingPolicy policy);

AllocationCurve run_packing_policy(const PackingWorkload& workload, const PackingOrder& order,
                                   PackingPolicy policy, uint64_t seed);

}  // namespace tranche::bench
