#include "cli/job_text.h"

#include <time.h>

#include <algorithm>

#include "base/quantity_text.h"
#include "cli/text.h"

namespace tranche::cli {
namespace {

std::string share_text(MilliGpu compute, MiB memory, MiB memory_limit) {
  std::string text;
  if (compute.count() > 0) text = format_thousandths(compute.count());
  if (memory.count() > 0) text += (text.empty() ? "" : "+") + format_memory(memory);
  if (memory_limit > memory) text += ".." + format_memory(memory_limit);
  return text;
}

}  // namespace

std::string gpu_text(const api::JobSummary& job) {
  const GpuRequest& gpu = job.gpu;
  if (gpu.count == 0) return "-";
  std::string text;
  if (gpu.kind == SliceKind::whole) {
    text = std::to_string(gpu.count);
    if (gpu.is_moldable()) text += ".." + std::to_string(gpu.count_max);
  } else {
    text = share_text(gpu.compute, gpu.memory, gpu.memory_limit);
    if (gpu.count > 1) text = std::to_string(gpu.count) + "x" + text;
  }
  if (!gpu.type.empty()) text.insert(0, gpu.type + ":");
  // A fraction that nothing holds must not look like one that is.
  if (gpu.kind != SliceKind::whole)
    text += " " + std::string(to_string(job.tier.value_or(api::Tier::unenforced)));
  return text;
}

std::string slice_text(const api::SliceRow& slice) {
  if (slice.kind == SliceKind::whole) return "whole";
  return share_text(slice.compute, slice.memory, slice.memory_limit.value_or(MiB())) + " " +
         std::string(to_string(slice.tier));
}

std::string indices_text(std::span<const uint32_t> indices) {
  std::vector<uint32_t> sorted(indices.begin(), indices.end());
  std::sort(sorted.begin(), sorted.end());
  std::string text;
  for (size_t i = 0; i < sorted.size();) {
    size_t last = i;
    while (last + 1 < sorted.size() && sorted[last + 1] <= sorted[last] + 1) ++last;
    if (!text.empty()) text += ',';
    text += std::to_string(sorted[i]);
    if (sorted[last] > sorted[i])
      text += (sorted[last] == sorted[i] + 1 ? "," : "-") + std::to_string(sorted[last]);
    i = last + 1;
  }
  return text.empty() ? "-" : text;
}

std::string duration_text(Duration duration) {
  const int64_t seconds = duration.count() / kSecond.count();
  return format_duration(Duration(std::max<int64_t>(seconds, 0) * kSecond.count()));
}

std::string elapsed_text(const api::JobSummary& job, Time now) {
  if (!job.started) return "-";
  return duration_text(job.ended.value_or(now) - *job.started);
}

std::string exit_text(const api::JobSummary& job) {
  if (job.signal.value_or(0) > 0) return "signal " + std::to_string(*job.signal);
  if (job.exit_code) return std::to_string(*job.exit_code);
  return "-";
}

std::string local_time_text(Time time) {
  const time_t seconds = static_cast<time_t>(time.nanoseconds() / kSecond.count());
  tm broken{};
  localtime_r(&seconds, &broken);
  char text[64];
  const size_t size = strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S %Z", &broken);
  return std::string(text, size);
}

std::string with_local_times(std::string_view sentence) {
  constexpr std::string_view kShape = "0000-00-00 00:00:00 UTC";  // as the scheduler writes them
  if (sentence.find(kShape.substr(kShape.size() - 4)) == std::string_view::npos) return std::string(sentence);
  const auto has_shape = [&](std::string_view text) {
    for (size_t i = 0; i < kShape.size(); ++i) {
      const bool fits = kShape[i] == '0' ? text[i] >= '0' && text[i] <= '9' : text[i] == kShape[i];
      if (!fits) return false;
    }
    return true;
  };
  std::string out;
  while (sentence.size() >= kShape.size()) {
    const std::string_view head = sentence.substr(0, kShape.size());
    const auto time =
        has_shape(head)
            ? parse_time(std::string(head.substr(0, 10)) + "T" + std::string(head.substr(11, 8)) + "Z")
            : Result<Time>(fail(ErrorCode::invalid_argument, ""));
    out += time ? local_time_text(*time) : std::string(1, sentence.front());
    sentence.remove_prefix(time ? kShape.size() : 1);
  }
  return out + std::string(sentence);
}

Style state_style(JobState state) {
  switch (state) {
    case JobState::running:
    case JobState::starting:
    case JobState::completed:
      return Style::kGreen;
    case JobState::failed:
    case JobState::timed_out:
    case JobState::out_of_memory:
    case JobState::node_failed:
    case JobState::unknown:
      return Style::kRed;
    case JobState::held:
    case JobState::suspended:
    case JobState::stopping:
      return Style::kYellow;
    case JobState::pending:
    case JobState::cancelled:
      return Style::kPlain;
  }
  return Style::kPlain;
}

int job_exit_code(const api::JobSummary& job) {
  if (job.state == JobState::timed_out) return kExitTimeLimit;
  if (job.state == JobState::out_of_memory) return kExitOutOfMemory;
  if (job.state == JobState::node_failed || job.state == JobState::unknown) return kExitTrancheFailed;
  const int signal = job.signal.value_or(0);
  if (signal > 0 && signal < 128) return kExitSignalBase + signal;
  if (job.state == JobState::failed && !job.exit_code) return kExitTrancheFailed;  // it never executed
  const int code = job.exit_code.value_or(0);
  if (code > 0 && code < 256) return code;
  return job.state == JobState::completed ? 0 : 1;
}

std::string job_label(const api::JobSummary& job) { return "job " + printable(job.display); }

}  // namespace tranche::cli
