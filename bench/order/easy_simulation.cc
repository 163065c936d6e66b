#include "order/easy_simulation.h"

#include <algorithm>
#include <deque>
#include <map>
#include <set>

namespace tranche::bench {
namespace {

class Easy {
 public:
  Easy(const std::vector<replay::SwfJob>& jobs, int64_t processors, EasySettings settings)
      : jobs_(jobs), free_(processors), settings_(settings), starts_(jobs.size()), estimates_(jobs.size()) {}

  WaitFigures run() {
    size_t next = 0;
    while (next < jobs_.size() || !waiting_.empty()) {
      int64_t now = next < jobs_.size() ? jobs_[next].submit_s : INT64_MAX;
      if (!ends_.empty()) now = std::min(now, ends_.begin()->first);
      while (!ends_.empty() && ends_.begin()->first <= now) end_first();
      for (; next < jobs_.size() && jobs_[next].submit_s <= now; ++next) {
        estimates_[next] = estimate_of(jobs_[next]);
        waiting_.push_back(next);
      }
      start_what_may(now);
    }
    return wait_figures(jobs_, starts_);
  }

 private:
  int64_t estimate_of(const replay::SwfJob& job) const {
    if (settings_.estimate == RunEstimate::exact) return job.run_s;
    if (settings_.estimate == RunEstimate::requested) return job.requested_s;
    const auto last = last_runs_.find(job.user);
    if (last == last_runs_.end() || last->second.size() < 2) return job.requested_s;
    return std::min((last->second[0] + last->second[1]) / 2, job.requested_s);
  }

  void end_first() {
    const size_t job = ends_.begin()->second;
    ends_.erase(ends_.begin());
    running_.erase(job);
    free_ += jobs_[job].processors;
    auto& last = last_runs_[jobs_[job].user];
    last.push_back(jobs_[job].run_s);
    if (last.size() > 2) last.pop_front();
  }

  void start(size_t job, int64_t now) {
    starts_[job] = now;
    free_ -= jobs_[job].processors;
    running_.insert(job);
    ends_.emplace(now + jobs_[job].run_s, job);
  }

  // When a running job is thought to end: one that has outlived its estimate gets twice as long.
  int64_t expected_end(size_t job, int64_t now) const {
    int64_t estimate = std::max<int64_t>(estimates_[job], 1);
    while (starts_[job] + estimate <= now && settings_.estimate == RunEstimate::last_two) estimate *= 2;
    return std::max(starts_[job] + estimate, now + 1);
  }

  void start_what_may(int64_t now) {
    while (!waiting_.empty() && jobs_[waiting_.front()].processors <= free_) {
      start(waiting_.front(), now);
      waiting_.pop_front();
    }
    if (waiting_.empty() || !settings_.backfill) return;
    // The head's reservation.
    std::vector<std::pair<int64_t, int64_t>> releases;
    for (const size_t job : running_) releases.emplace_back(expected_end(job, now), jobs_[job].processors);
    std::sort(releases.begin(), releases.end());
    const int64_t needed = jobs_[waiting_.front()].processors;
    int64_t at_shadow = free_;
    int64_t shadow = now;
    for (const auto& [end, processors] : releases) {
      if (at_shadow >= needed && end > shadow) break;
      at_shadow += processors;
      shadow = end;
    }
    int64_t extra = at_shadow - needed;
    std::vector<size_t> candidates(waiting_.begin() + 1, waiting_.end());
    if (settings_.order == BackfillOrder::shortest_first) {
      std::stable_sort(candidates.begin(), candidates.end(),
                       [&](size_t a, size_t b) { return estimates_[a] < estimates_[b]; });
    }
    std::set<size_t> started;
    for (const size_t job : candidates) {
      if (free_ == 0) break;
      if (jobs_[job].processors > free_) continue;
      const bool ends_before = now + estimates_[job] <= shadow;
      if (!ends_before && jobs_[job].processors > extra) continue;
      if (!ends_before) extra -= jobs_[job].processors;
      start(job, now);
      started.insert(job);
    }
    std::erase_if(waiting_, [&](size_t job) { return started.contains(job); });
  }

  const std::vector<replay::SwfJob>& jobs_;
  int64_t free_;
  EasySettings settings_;
  std::vector<int64_t> starts_;
  std::vector<int64_t> estimates_;
  std::deque<size_t> waiting_;
  std::set<size_t> running_;
  std::multimap<int64_t, size_t> ends_;
  std::map<int64_t, std::deque<int64_t>> last_runs_;
};

}  // namespace

WaitFigures simulate_easy(const std::vector<replay::SwfJob>& jobs, int64_t processors,
                          EasySettings settings) {
  return Easy(jobs, processors, settings).run();
}

WaitFigures wait_figures(const std::vector<replay::SwfJob>& jobs, const std::vector<int64_t>& starts) {
  constexpr double kBound = 10;
  WaitFigures figures;
  for (size_t i = 0; i < jobs.size(); ++i) {
    const auto wait = static_cast<double>(starts[i] - jobs[i].submit_s);
    const auto run = static_cast<double>(jobs[i].run_s);
    figures.bounded_slowdown += std::max(1.0, (wait + run) / std::max(run, kBound));
    figures.wait_s += wait;
  }
  figures.jobs = jobs.size();
  if (figures.jobs == 0) return figures;
  figures.bounded_slowdown /= static_cast<double>(figures.jobs);
  figures.wait_s /= static_cast<double>(figures.jobs);
  return figures;
}

}  // namespace tranche::bench
