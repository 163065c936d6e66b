#include "packing/packing_cluster.h"

#include <algorithm>

#include "base/assert.h"

namespace tranche::bench {

PackedCluster::PackedCluster(const PackingWorkload& workload, const PackingOrder& order) {
  for (const replay::OpenbNode& node : workload.nodes) {
    if (std::find(models_.begin(), models_.end(), node.model) == models_.end()) models_.push_back(node.model);
  }
  TRANCHE_ASSERT(models_.size() < 32);
  for (const size_t index : order.nodes) {
    const replay::OpenbNode& listed = workload.nodes[index];
    PackedNode node;
    node.cpu_free = listed.cpu_milli;
    node.memory_free = listed.memory_mib;
    node.gpu_free.assign(static_cast<size_t>(listed.gpus), 1000);
    node.model =
        static_cast<int32_t>(std::find(models_.begin(), models_.end(), listed.model) - models_.begin());
    nodes.push_back(std::move(node));
  }
}

PackedClass PackedCluster::packed(const PodClass& pod) const {
  PackedClass result{pod, ~uint32_t{0}};
  if (pod.models.empty()) return result;
  result.models = 0;
  for (const std::string& model : pod.models) {
    const auto found = std::find(models_.begin(), models_.end(), model);
    if (found != models_.end()) result.models |= uint32_t{1} << (found - models_.begin());
  }
  return result;
}

bool PackedCluster::fits(const PackedNode& node, const PackedClass& wanted) {
  const PodClass& pod = wanted.pod;
  if (node.pods_left == 0 || node.cpu_free < pod.cpu_milli || node.memory_free < pod.memory_mib) return false;
  if (pod.gpus == 0) return true;
  if (!wanted.accepts(node)) return false;
  int64_t fitting = 0;
  for (const int64_t free : node.gpu_free) fitting += free >= pod.gpu_milli ? 1 : 0;
  return fitting >= pod.gpus;
}

void PackedCluster::place(PackedNode& node, const PackedClass& wanted, size_t gpu) {
  const PodClass& pod = wanted.pod;
  node.cpu_free -= pod.cpu_milli;
  node.memory_free -= pod.memory_mib;
  --node.pods_left;
  ++node.version;
  allocated_milli += pod.total_milli();
  if (pod.gpus == 0) return;
  ++node.holds[pod.is_shared() ? 0 : pod.gpus];
  if (pod.is_shared()) {
    node.gpu_free[gpu] -= pod.gpu_milli;
    return;
  }
  int64_t left = pod.gpus;
  for (int64_t& free : node.gpu_free) {
    if (left == 0 || free < pod.gpu_milli) continue;
    free -= pod.gpu_milli;
    --left;
  }
}

size_t best_fitting_gpu(const PackedNode& node, int64_t milli) {
  size_t best = node.gpu_free.size();
  for (size_t g = 0; g < node.gpu_free.size(); ++g) {
    if (node.gpu_free[g] < milli) continue;
    if (best == node.gpu_free.size() || node.gpu_free[g] < node.gpu_free[best]) best = g;
  }
  return best;
}

double fragmentation(const PackedNode& node, const std::vector<PackedClass>& typical,
                     const std::vector<double>& probabilities) {
  // How many GPUs have at least each amount, and how much lies below it, for the few amounts that there are.
  double result = 0;
  const int64_t sum = node.gpu_free_sum();
  for (size_t i = 0; i < typical.size(); ++i) {
    const PodClass& pod = typical[i].pod;
    if (pod.gpus == 0 || !typical[i].accepts(node) || node.cpu_free < pod.cpu_milli) {
      result += probabilities[i] * static_cast<double>(sum);
      continue;
    }
    int64_t fitting = 0;
    int64_t below = 0;
    for (const int64_t free : node.gpu_free) {
      if (free >= pod.gpu_milli)
        ++fitting;
      else
        below += free;
    }
    result += probabilities[i] * static_cast<double>(fitting >= pod.gpus ? below : sum);
  }
  return result;
}

}  // namespace tranche::bench
