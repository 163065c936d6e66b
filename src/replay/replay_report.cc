#include "replay/replay_report.h"

#include <algorithm>

#include "base/json_writer.h"

namespace tranche::replay {
namespace {

constexpr int64_t kMicrosecondsPerHour = 3'600'000'000;

struct Gathered {
  WaitSummary summary;
  std::vector<int64_t> waits;
  int64_t held_milli_us = 0;

  void take(const JobStory& story) {
    ++summary.jobs;
    summary.preemptions += story.preemptions;
    if (story.ended.is_set()) ++summary.ended;
    held_milli_us += story.held_milli_us;
    if (!story.started.is_set()) return;
    ++summary.started;
    waits.push_back((story.started - story.submitted).count() / 1000);
  }

  WaitSummary finish() {
    std::sort(waits.begin(), waits.end());
    summary.gpu_milli_hours = held_milli_us / kMicrosecondsPerHour;
    if (waits.empty()) return summary;
    int64_t sum = 0;
    for (const int64_t wait : waits) sum += wait;
    summary.wait_mean_us = sum / static_cast<int64_t>(waits.size());
    summary.wait_median_us = percentile(50);
    summary.wait_p90_us = percentile(90);
    summary.wait_p99_us = percentile(99);
    summary.wait_max_us = waits.back();
    return summary;
  }

  // The smallest wait that at least so many percent do not exceed.
  int64_t percentile(size_t percent) const { return waits[(waits.size() * percent + 99) / 100 - 1]; }
};

void write_summary(JsonWriter& json, const WaitSummary& summary) {
  json.field("jobs", summary.jobs)
      .field("started", summary.started)
      .field("ended", summary.ended)
      .field("preemptions", summary.preemptions)
      .field("wait_mean_us", summary.wait_mean_us)
      .field("wait_median_us", summary.wait_median_us)
      .field("wait_p90_us", summary.wait_p90_us)
      .field("wait_p99_us", summary.wait_p99_us)
      .field("wait_max_us", summary.wait_max_us)
      .field("gpu_milli_hours", summary.gpu_milli_hours);
}

}  // namespace

ReplayReport report_of(std::string name, const std::vector<JobStory>& stories,
                       const ChronicleTotals& totals) {
  ReplayReport report;
  report.name = std::move(name);
  Gathered all;
  std::map<std::string, Gathered> by_user;
  for (const JobStory& story : stories) {
    all.take(story);
    by_user[story.user].take(story);
  }
  report.all = all.finish();
  for (auto& [user, gathered] : by_user) report.by_user[user] = gathered.finish();
  if (totals.capacity_milli_us > 0)
    report.held_permille = totals.held_milli_us / std::max<int64_t>(totals.capacity_milli_us / 1000, 1);
  if (totals.begin.is_set()) report.span_us = (totals.end - totals.begin).count() / 1000;
  return report;
}

std::string encode_reports(const std::vector<ReplayReport>& reports) {
  std::string text;
  JsonWriter json(text);
  json.begin_object().key("reports").begin_array();
  for (const ReplayReport& report : reports) {
    json.begin_object().field("name", report.name);
    write_summary(json, report.all);
    json.field("held_permille", report.held_permille)
        .field("span_us", report.span_us)
        .field("refused", report.refused);
    json.key("users").begin_array();
    for (const auto& [user, summary] : report.by_user) {
      json.begin_object().field("user", user);
      write_summary(json, summary);
      json.end_object();
    }
    json.end_array().end_object();
  }
  json.end_array().end_object();
  return text;
}

}  // namespace tranche::replay
