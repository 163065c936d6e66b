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

namespace {

std::string of_bounds(const std::string& used, const std::string& quota, const std::string& limit) {
  if (quota.empty() && limit.empty()) return "-";
  if (quota.empty()) return used + " of " + limit;
  return used + " of " + quota + (limit.empty() ? "" : ", limit " + limit);
}

}  // namespace

std::string cpu_of_bounds(const QueueShare& queue) {
  const auto text = [](const std::optional<MilliCpu>& amount) {
    return amount ? format_thousandths(amount->count()) : std::string();
  };
  return of_bounds(text(queue.used_cpu), text(queue.quota_cpu), text(queue.limit_cpu));
}

std::string memory_of_bounds(const QueueShare& queue) {
  const auto text = [](const std::optional<MiB>& amount) {
    return amount ? format_memory(*amount) : std::string();
  };
  return of_bounds(text(queue.used_memory), text(queue.quota_memory), text(queue.limit_memory));
}

}  // namespace tranche::cli
