#include "cli/queue_list.h"

#include <algorithm>

#include "base/quantity_text.h"

namespace tranche::cli {

std::string queue_tree_text(const std::string& path) {
  const auto depth = static_cast<size_t>(std::count(path.begin(), path.end(), '/'));
  const size_t slash = path.rfind('/');
  return std::string(2 * depth, ' ') + (slash == std::string::npos ? path : path.substr(slash + 1));
}

std::string gpus_or_dash(bool has, MilliGpu amount) { return has ? format_thousandths(amount.count()) : "-"; }

}  // namespace tranche::cli
