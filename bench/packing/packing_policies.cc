#include "packing/packing_policies.h"

#include <algorithm>
#include <cmath>

#include "base/random.h"
#include "packing/packing_cluster.h"

namespace tranche::bench {
namespace {

constexpr double kCpuMax = 128'000;
constexpr double kGpuMax = 8'000;

struct NodeScore {
  int32_t score = -1;  // below zero: does not fit
  uint32_t gpu = 0;
};

class PolicyRun {
 public:
  PolicyRun(const PackingWorkload& workload, const PackingOrder& order, PackingPolicy policy, uint64_t seed)
      : workload_(workload),
        order_(order),
        policy_(policy),
        random_(seed * 7919 + 1),
        cluster_(workload, order) {
    for (const PodClass& pod : workload.classes) classes_.push_back(cluster_.packed(pod));
    for (const TypicalClass& each : workload.typical) {
      typical_.push_back(cluster_.packed(each.pod));
      probabilities_.push_back(each.probability);
    }
    // One score for each class and node, worked out again when the node has changed.
    scores_.resize(classes_.size() * cluster_.nodes.size());
    stamps_.resize(scores_.size());
    before_.resize(cluster_.nodes.size());
    before_stamps_.resize(cluster_.nodes.size());
  }

  AllocationCurve run() {
    AllocationCurve curve(workload_.capacity_milli);
    int64_t arrived = 0;
    for (const size_t pod : order_.pods) {
      const size_t index = workload_.class_of[pod];
      const PackedClass& wanted = classes_[index];
      arrived += wanted.pod.total_milli();
      const size_t node = policy_ == PackingPolicy::random ? choose_randomly(wanted) : choose(index);
      if (node < cluster_.nodes.size()) place(node, index);
      curve.arrived(arrived, cluster_.allocated_milli);
    }
    return curve;
  }

 private:
  size_t choose(size_t index) {
    const size_t count = cluster_.nodes.size();
    NodeScore* scores = &scores_[index * count];
    uint32_t* stamps = &stamps_[index * count];
    size_t best = count;
    int32_t best_score = -1;
    for (size_t n = 0; n < count; ++n) {
      if (stamps[n] != cluster_.nodes[n].version) {
        stamps[n] = cluster_.nodes[n].version;
        scores[n] = score(n, classes_[index]);
      }
      if (scores[n].score > best_score) {
        best_score = scores[n].score;
        best = n;
      }
    }
    return best;
  }

  size_t choose_randomly(const PackedClass& wanted) {
    std::vector<size_t> fitting;
    for (size_t n = 0; n < cluster_.nodes.size(); ++n) {
      if (PackedCluster::fits(cluster_.nodes[n], wanted)) fitting.push_back(n);
    }
    return fitting.empty() ? cluster_.nodes.size() : fitting[random_.below(fitting.size())];
  }

  void place(size_t n, size_t index) {
    PackedNode& node = cluster_.nodes[n];
    const PackedClass& wanted = classes_[index];
    size_t gpu = 0;
    if (wanted.pod.is_shared()) {
      if (policy_ == PackingPolicy::random) {
        std::vector<size_t> fitting;
        for (size_t g = 0; g < node.gpu_free.size(); ++g) {
          if (node.gpu_free[g] >= wanted.pod.gpu_milli) fitting.push_back(g);
        }
        gpu = fitting[random_.below(fitting.size())];
      } else if (policy_ == PackingPolicy::fgd) {
        gpu = scores_[index * cluster_.nodes.size() + n].gpu;
      } else {
        gpu = best_fitting_gpu(node, wanted.pod.gpu_milli);
      }
    }
    cluster_.place(node, wanted, gpu);
  }

  NodeScore score(size_t n, const PackedClass& wanted) {
    const PackedNode& node = cluster_.nodes[n];
    if (!PackedCluster::fits(node, wanted)) return {};
    switch (policy_) {
      case PackingPolicy::random:
        return {0, 0};
      case PackingPolicy::dot_product:
        return {static_cast<int32_t>(dot_product(node, wanted.pod)), 0};
      case PackingPolicy::clustering:
        return {static_cast<int32_t>(clustering(node, wanted.pod)), 0};
      case PackingPolicy::packing:
        return {static_cast<int32_t>(packing(node, wanted.pod)), 0};
      case PackingPolicy::best_fit:
        return {static_cast<int32_t>(best_fit(node, wanted.pod)), 0};
      case PackingPolicy::fgd:
        return fgd(n, wanted);
    }
    return {};
  }

  static double dot_product(const PackedNode& node, const PodClass& pod) {
    const double cpu =
        static_cast<double>(node.cpu_free) / kCpuMax * static_cast<double>(pod.cpu_milli) / kCpuMax;
    const double gpu =
        static_cast<double>(node.gpu_free_sum()) / kGpuMax * static_cast<double>(pod.total_milli()) / kGpuMax;
    return 100 * (1 - (cpu + gpu) / 2);
  }

  static double clustering(const PackedNode& node, const PodClass& pod) {
    if (pod.gpus == 0) return 0;
    const double used = 25 * (kGpuMax - static_cast<double>(node.gpu_free_sum())) / kGpuMax;
    if (node.holds.empty()) return used + 25;
    if (!node.holds.contains(pod.is_shared() ? 0 : pod.gpus)) return used;
    return used + (node.holds.size() == 1 ? 75 : 50);
  }

  static double packing(const PackedNode& node, const PodClass& pod) {
    if (pod.gpus == 0) return 0;
    const auto gpus = static_cast<int64_t>(node.gpu_free.size());
    const int64_t idle = node.idle_gpus();
    if (idle == gpus) return static_cast<double>(std::max<int64_t>(33 - gpus, gpus));
    int64_t opened = pod.gpus;
    if (pod.is_shared()) {
      const size_t gpu = best_fitting_gpu(node, pod.gpu_milli);
      opened = node.gpu_free[gpu] == 1000 ? 1 : 0;
    }
    if (opened > 0) return static_cast<double>(std::max<int64_t>(50 - opened, 33));
    double free_percent = 0;
    for (const int64_t free : node.gpu_free) free_percent += static_cast<double>(free) / 10;
    return std::max(100 - free_percent / 10, 50.0);
  }

  static double best_fit(const PackedNode& node, const PodClass& pod) {
    const double cpu = static_cast<double>(node.cpu_free - pod.cpu_milli) / kCpuMax;
    const double gpu = static_cast<double>(node.gpu_free_sum() - pod.total_milli()) / kGpuMax;
    return 100 * (1 - (cpu + gpu) / 2);
  }

  NodeScore fgd(size_t n, const PackedClass& wanted) {
    const PackedNode& node = cluster_.nodes[n];
    if (before_stamps_[n] != node.version) {
      before_stamps_[n] = node.version;
      before_[n] = fragmentation(node, typical_, probabilities_);
    }
    NodeScore best;
    PackedNode after = node;
    after.cpu_free -= wanted.pod.cpu_milli;
    const auto judge = [&](size_t gpu) {
      const double gain = (before_[n] - fragmentation(after, typical_, probabilities_)) / 1000;
      const auto value = static_cast<int32_t>(100 / (1 + std::exp(-gain)));
      if (value > best.score) best = {value, static_cast<uint32_t>(gpu)};
    };
    if (!wanted.pod.is_shared()) {
      int64_t left = wanted.pod.gpus;
      for (int64_t& free : after.gpu_free) {
        if (left == 0 || free < wanted.pod.gpu_milli) continue;
        free -= wanted.pod.gpu_milli;
        --left;
      }
      judge(0);
      return best;
    }
    std::vector<int64_t> tried;
    for (size_t g = 0; g < after.gpu_free.size(); ++g) {
      const int64_t free = after.gpu_free[g];
      if (free < wanted.pod.gpu_milli || std::find(tried.begin(), tried.end(), free) != tried.end()) continue;
      tried.push_back(free);
      after.gpu_free[g] -= wanted.pod.gpu_milli;
      judge(g);
      after.gpu_free[g] = free;
    }
    return best;
  }

  const PackingWorkload& workload_;
  const PackingOrder& order_;
  PackingPolicy policy_;
  Random random_;
  PackedCluster cluster_;
  std::vector<PackedClass> classes_;
  std::vector<PackedClass> typical_;
  std::vector<double> probabilities_;
  std::vector<NodeScore> scores_;
  std::vector<uint32_t> stamps_;
  std::vector<double> before_;
  std::vector<uint32_t> before_stamps_;
};

}  // namespace

std::string_view published_name(PackingPolicy policy) {
  switch (policy) {
    case PackingPolicy::random:
      return "Random";
    case PackingPolicy::dot_product:
      return "DotProd";
    case PackingPolicy::clustering:
      return "GpuClustering";
    case PackingPolicy::packing:
      return "GpuPacking";
    case PackingPolicy::best_fit:
      return "BestFit";
    case PackingPolicy::fgd:
      return "FGD";
  }
  return "?";
}

AllocationCurve run_packing_policy(const PackingWorkload& workload, const PackingOrder& order,
                                   PackingPolicy policy, uint64_t seed) {
  return PolicyRun(workload, order, policy, seed).run();
}

}  // namespace tranche::bench
