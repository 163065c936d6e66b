#include "order/muri_simulation.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <string>

namespace tranche::bench {
namespace {

constexpr double kSlowdown = 1.015;

// Seconds that a model needs to start on 1, 2, 4, 8, 16 and 32 GPUs, as the authors measured them.
const std::map<std::string, std::array<double, 6>>& start_seconds() {
  static const std::map<std::string, std::array<double, 6>> kSeconds = {
      {"vgg16", {7, 7, 8, 9, 9, 10}},     {"vgg19", {7, 7, 8, 9, 10, 10}},
      {"resnet18", {4, 5, 5, 7, 7, 7}},   {"shufflenet_v2_x1_0", {4, 4, 5, 5, 7, 8}},
      {"shufflenet", {4, 4, 5, 5, 7, 8}}, {"a2c", {38, 39, 39, 46, 46, 46}},
      {"dqn", {5, 5, 6, 6, 8, 8}},
  };
  return kSeconds;
}

double start_time(const replay::MuriJob& job) {
  const auto found = start_seconds().find(job.model);
  if (found == start_seconds().end()) return 10;
  size_t power = 0;
  while ((int64_t{1} << power) < job.gpus && power < 5) ++power;
  return found->second[power];
}

// Remaining work is kept in iterations, as the authors do: in seconds the ties of a few jobs round otherwise.
struct Running {
  double submitted = 0;
  double iterations = 0;
  double seconds_each = 0;
  double start_time = 0;
  int64_t gpus = 0;
  bool runs = false;

  double remaining_time() const { return iterations * seconds_each; }
  double remaining_service() const { return remaining_time() * static_cast<double>(gpus); }
};

class MuriCluster {
 public:
  MuriCluster(int64_t nodes, int64_t per_node) : free_(static_cast<size_t>(nodes)), per_node_(per_node) {}
  void clear() { std::fill(free_.begin(), free_.end(), per_node_); }
  bool take(int64_t gpus) {
    if (gpus <= per_node_) {
      const auto node = std::find_if(free_.begin(), free_.end(), [&](int64_t room) { return room >= gpus; });
      if (node == free_.end()) return false;
      *node -= gpus;
      return true;
    }
    const int64_t wanted = (gpus + per_node_ - 1) / per_node_;
    const auto idle = std::count(free_.begin(), free_.end(), per_node_);
    if (idle < wanted) return false;
    int64_t left = wanted;
    for (int64_t& room : free_) {
      if (room != per_node_ || left == 0) continue;
      room = 0;
      --left;
    }
    return true;
  }

 private:
  std::vector<int64_t> free_;
  int64_t per_node_;
};

}  // namespace

MuriFigures simulate_muri(const std::vector<replay::MuriJob>& jobs, MuriOrder order, int64_t nodes,
                          int64_t gpus_per_node) {
  constexpr double kNever = std::numeric_limits<double>::infinity();
  std::vector<Running> arrivals;
  for (const replay::MuriJob& job : jobs) {
    const double seconds = static_cast<double>(job.iteration_micro_ms) / 1e6 * kSlowdown / 1000;
    arrivals.push_back({static_cast<double>(job.submit_ms) / 1000, static_cast<double>(job.iterations),
                        seconds, start_time(job), job.gpus, false});
  }
  std::stable_sort(arrivals.begin(), arrivals.end(),
                   [](const Running& a, const Running& b) { return a.submitted < b.submitted; });
  MuriCluster cluster(nodes, gpus_per_node);
  std::vector<Running> active;
  std::vector<double> times;
  double now = 0;
  double last_end = 0;
  size_t next = 0;
  while (next < arrivals.size() || !active.empty()) {
    // The next event.
    double event = next < arrivals.size() ? arrivals[next].submitted : kNever;
    for (const Running& job : active) {
      if (job.runs) event = std::min(event, now + job.remaining_time());
    }
    // Progress up to it, ends and arrivals.
    std::vector<Running> left;
    for (Running& job : active) {
      const bool ends = job.runs && now + job.remaining_time() <= event;
      if (ends) {
        times.push_back(event - job.submitted);
        last_end = event;
        continue;
      }
      if (job.runs) job.iterations -= std::max(event - now - job.start_time, 0.0) / job.seconds_each;
      left.push_back(job);
    }
    active = std::move(left);
    now = event;
    for (; next < arrivals.size() && arrivals[next].submitted <= now; ++next)
      active.push_back(arrivals[next]);
    // All again.
    std::stable_sort(active.begin(), active.end(), [&](const Running& a, const Running& b) {
      if (order == MuriOrder::remaining_time) return a.remaining_time() < b.remaining_time();
      return a.remaining_service() < b.remaining_service();
    });
    cluster.clear();
    for (Running& job : active) job.runs = cluster.take(job.gpus);
  }
  MuriFigures figures;
  for (const double time : times) figures.mean_s += time;
  figures.mean_s /= static_cast<double>(times.size());
  figures.makespan_s = last_end - arrivals.front().submitted;
  std::sort(times.begin(), times.end());
  figures.p99_s = times[static_cast<size_t>(0.99 * static_cast<double>(times.size()))];
  return figures;
}

}  // namespace tranche::bench
