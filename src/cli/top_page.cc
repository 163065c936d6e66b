#include "cli/top_page.h"

#include <algorithm>

#include "base/quantity_text.h"
#include "cli/job_list.h"
#include "cli/job_text.h"
#include "cli/table.h"
#include "cli/text.h"

namespace tranche::cli {
namespace {

constexpr size_t kBarCells = 10;

// "######----"
std::string bar(int64_t part, int64_t whole) {
  const auto filled = whole <= 0 ? size_t{0}
                                 : static_cast<size_t>(std::clamp<int64_t>(part * int64_t{kBarCells} / whole,
                                                                           0, int64_t{kBarCells}));
  return std::string(filled, '#') + std::string(kBarCells - filled, '-');
}

// Where Tranche only observes, nobody is unmanaged who ought to be managed.
std::string used_by(const api::GpuStatus& gpu, bool observes) {
  std::string text;
  for (const api::SliceRow& slice : gpu.slices) {
    text += (text.empty() ? "" : ", ") + std::to_string(slice.job.value()) + " " + slice.user;
  }
  for (const api::GpuProcess& process : gpu.processes) {
    if (!process.job)
      text += (text.empty() ? "" : ", ") + std::string(observes ? "" : "unmanaged: ") + process.user;
  }
  if (gpu.drained) text += (text.empty() ? "" : "; ") + std::string("drained: ") + gpu.reason;
  return text.empty() ? "free" : text;
}

Style load_style(const api::GpuStatus& gpu) {
  if (gpu.health == Health::failed || gpu.health == Health::lost) return Style::kRed;
  if (gpu.drained || gpu.health == Health::degraded) return Style::kYellow;
  return gpu.slices.empty() ? Style::kDim : Style::kPlain;
}

Table gpu_bars(const std::vector<api::GpuStatus>& gpus, bool observes) {
  Table table({{.title = "GPU", .right = true},
               {.title = "TYPE", .width_min = 4, .leaves = 1},
               {.title = "UTILISATION", .leaves = 3},
               {.title = "UTIL", .right = true},
               {.title = "MEMORY", .leaves = 4},
               {.title = "USED", .right = true},
               {.title = "TEMP", .right = true, .leaves = 2},
               {.title = "HELD BY", .width_min = 10}});
  for (const api::GpuStatus& gpu : gpus) {
    const int64_t used = gpu.memory_used.value_or(MiB(0)).count();
    table.add(
        {{std::to_string(gpu.index)},
         {gpu.type},
         {bar(gpu.utilisation_percent.value_or(0), 100)},
         {gpu.utilisation_percent ? std::to_string(*gpu.utilisation_percent) + "%" : "?"},
         {bar(used, gpu.memory_total.count())},
         {gpu.memory_used ? format_memory(*gpu.memory_used) + "/" + format_memory(gpu.memory_total) : "?"},
         {gpu.temperature_celsius ? std::to_string(*gpu.temperature_celsius) + "C" : "?"},
         {used_by(gpu, observes)}},
        load_style(gpu));
  }
  return table;
}

bool observes(const TopState& state) { return state.status.mode.starts_with("observe"); }

std::string heading(const TopState& state, const Look& look) {
  const auto busy =
      std::count_if(state.gpus.gpus.begin(), state.gpus.gpus.end(),
                    [](const api::GpuStatus& gpu) { return !gpu.slices.empty() || !gpu.processes.empty(); });
  const std::string text =
      local_time_text(state.now) + "  " + std::to_string(busy) + " of " +
      std::to_string(state.gpus.gpus.size()) + (state.gpus.gpus.size() == 1 ? " GPU" : " GPUs") +
      " in use, " + std::to_string(state.status.jobs_running) + " running, " +
      std::to_string(state.status.jobs_waiting) + " waiting" + (observes(state) ? "; observing only" : "");
  return styled(look, Style::kBold, look.width == 0 ? text : fit_width(text, look.width)) + "\n";
}

size_t line_count(std::string_view text) {
  return static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
}

int rank_of(const api::JobSummary& job) {
  return job.state == JobState::pending || job.state == JobState::held ? 1 : 0;
}

}  // namespace

std::string top_page(const TopState& state, const Look& look, uid_t uid, size_t rows) {
  std::string page = heading(state, look) + gpu_bars(state.gpus.gpus, observes(state)).render(look) + "\n";
  std::vector<api::JobSummary> jobs = state.jobs;
  std::stable_sort(jobs.begin(), jobs.end(),
                   [](const auto& a, const auto& b) { return rank_of(a) < rank_of(b); });
  const size_t above = line_count(page) + 1;  // and the jobs' titles
  size_t hidden = 0;
  if (rows > 0 && above + jobs.size() > rows) {
    const size_t room = rows > above + 1 ? rows - above - 1 : 0;  // a line says how many there are besides
    hidden = jobs.size() - std::min(room, jobs.size());
    jobs.resize(jobs.size() - hidden);
  }
  page += job_table(jobs, uid, state.now).render(look);
  if (hidden > 0) page += "and " + std::to_string(hidden) + " more\n";
  if (rows == 0 || line_count(page) <= rows) return page;
  size_t end = 0;
  for (size_t line = 0; line < rows; ++line) end = page.find('\n', end) + 1;
  return page.substr(0, end);
}

}  // namespace tranche::cli
