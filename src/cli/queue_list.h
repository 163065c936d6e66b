// The queues as the daemon tells them, for `queue` and `share`.
#pragma once

#include <string>

#include "base/result.h"
#include "codec/api.h"

namespace tranche::cli {

// "physics/vision" as its last component, indented by its depth, so that the tree can be seen.
std::string queue_tree_text(const std::string& path);
// Thousandths of a GPU as GPUs; "-" if there is none.
std::string gpus_or_dash(bool has, MilliGpu amount);

// "12 of 32", "12 of 16, limit 32", of processors and of memory; "-" if the queue has no bound of it.
std::string cpu_of_bounds(const QueueShare& queue);
std::string memory_of_bounds(const QueueShare& queue);

}  // namespace tranche::cli
