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

}  // namespace tranche::cli
