#include "packing/packing_workload.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/random.h"

namespace tranche::bench {
namespace {

constexpr double kTypicalShare = 0.95;
constexpr int64_t kArrivalsPercent = 130;

PodClass class_of(const replay::OpenbPod& pod) {
  PodClass result{pod.cpu_milli, pod.memory_mib, pod.gpus, pod.gpu_milli, pod.models};
  std::sort(result.models.begin(), result.models.end());
  return result;
}

// Memory does not count for what is typical.
std::vector<TypicalClass> typical_classes(const PackingWorkload& workload) {
  std::map<PodClass, int64_t> counts;
  for (const size_t index : workload.class_of) {
    PodClass key = workload.classes[index];
    key.memory_mib = 0;
    ++counts[key];
  }
  std::vector<std::pair<PodClass, int64_t>> sorted(counts.begin(), counts.end());
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  std::vector<TypicalClass> typical;
  const auto total = static_cast<double>(workload.pods.size());
  double covered = 0;
  for (const auto& [pod, count] : sorted) {
    if (covered >= kTypicalShare * total) break;
    covered += static_cast<double>(count);
    typical.push_back({pod, static_cast<double>(count)});
  }
  for (TypicalClass& each : typical) each.probability /= covered;
  return typical;
}

template <class Type>
void shuffle(std::vector<Type>& items, Random& random) {
  for (size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[random.below(i)]);
}

}  // namespace

Result<PackingWorkload> read_packing_workload(const std::string& folder, const std::string& name) {
  PackingWorkload workload;
  TRY_ASSIGN(workload.nodes, replay::read_openb_nodes(folder + "/openb_node_list_gpu_node.csv"));
  const std::string extension = name == "default" ? ".csv" : ".csv.gz";
  TRY_ASSIGN(workload.pods, replay::read_openb_pods(folder + "/openb_pod_list_" + name + extension));
  std::sort(workload.pods.begin(), workload.pods.end(),
            [](const auto& a, const auto& b) { return a.name < b.name; });
  std::map<PodClass, size_t> indices;
  for (const replay::OpenbPod& pod : workload.pods) {
    const auto [found, is_new] = indices.emplace(class_of(pod), indices.size());
    if (is_new) workload.classes.push_back(found->first);
    workload.class_of.push_back(found->second);
  }
  for (const replay::OpenbNode& node : workload.nodes) workload.capacity_milli += node.gpus * 1000;
  workload.typical = typical_classes(workload);
  return workload;
}

PackingOrder packing_order(const PackingWorkload& workload, uint64_t seed) {
  Random random(seed);
  PackingOrder order;
  for (size_t i = 0; i < workload.nodes.size(); ++i) order.nodes.push_back(i);
  for (size_t i = 0; i < workload.pods.size(); ++i) order.pods.push_back(i);
  shuffle(order.nodes, random);
  shuffle(order.pods, random);
  const int64_t wanted = workload.capacity_milli * kArrivalsPercent / 100;
  int64_t asked = 0;
  for (const replay::OpenbPod& pod : workload.pods) asked += pod.total_milli();
  if (asked <= wanted) {
    // Clones of pods, each equally likely, up to the one that would be too much.
    while (true) {
      const size_t clone = random.below(workload.pods.size());
      if (asked + workload.pods[clone].total_milli() > wanted) break;
      asked += workload.pods[clone].total_milli();
      order.pods.push_back(clone);
    }
    return order;
  }
  while (asked > wanted) {
    const size_t at = random.below(order.pods.size());
    asked -= workload.pods[order.pods[at]].total_milli();
    order.pods.erase(order.pods.begin() + static_cast<ptrdiff_t>(at));
  }
  return order;
}

void AllocationCurve::arrived(int64_t arrived_milli, int64_t allocated_milli) {
  const double percent = 100.0 * static_cast<double>(arrived_milli) / static_cast<double>(capacity_);
  const auto bin = static_cast<size_t>(std::clamp<long>(std::lround(percent), 0, kPercentMax));
  sum_[bin] += 100.0 * static_cast<double>(allocated_milli) / static_cast<double>(capacity_);
  ++count_[bin];
}

double AllocationCurve::at(int percent) const {
  for (auto bin = static_cast<size_t>(percent); bin > 0; --bin) {
    if (count_[bin] > 0) return sum_[bin] / static_cast<double>(count_[bin]);
  }
  return 0;
}

}  // namespace tranche::bench
