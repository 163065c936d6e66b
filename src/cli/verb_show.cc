// tranche show: everything about a job.
#include <algorithm>

#include "base/quantity_text.h"
#include "cli/arguments.h"
#include "cli/daemon.h"
#include "cli/dependency_text.h"
#include "cli/explanation_text.h"
#include "cli/job_ids.h"
#include "cli/job_text.h"
#include "cli/session.h"
#include "cli/table.h"
#include "cli/text.h"
#include "cli/verbs.h"

namespace tranche::cli {
namespace {

class Page {
 public:
  void line(std::string_view title, const std::string& text) {
    if (text.empty()) return;
    constexpr size_t kTitleWidth = 13;
    std::string row(title);
    row.resize(std::max(kTitleWidth, row.size() + 1), ' ');
    text_ += row + printable(text) + "\n";
  }
  void raw(std::string_view text) { text_ += text; }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

// Words as a shell would need them, so that a line can be copied.
std::string command_text(const std::vector<std::string>& argv) {
  std::string text;
  for (const std::string& word : argv) {
    const bool plain =
        !word.empty() && word.find_first_of(" \t\n'\"\\$`&|;<>()*?[]{}~#!") == std::string::npos;
    if (!text.empty()) text += ' ';
    if (plain) {
      text += word;
      continue;
    }
    text += '\'';
    for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
    text += '\'';
  }
  return text;
}

void add_heading(Page& page, const Session& session, const api::JobDetail& job) {
  std::string heading = job_label(job);
  if (job.name) heading += " " + in_quotes(*job.name);
  page.raw(styled(session.look(), Style::kBold, heading) + "  " +
           styled(session.look(), state_style(job.state), to_string(job.state)) + "\n");
}

std::string retries_text(const api::JobDetail& job) {
  if (!job.retry) return {};
  std::string text;
  const std::pair<std::string_view, uint32_t> kinds[] = {{"error", job.retry->error},
                                                         {"oom", job.retry->out_of_memory},
                                                         {"infrastructure", job.retry->infrastructure}};
  for (const auto& [kind, count] : kinds) {
    if (count > 0) text += (text.empty() ? "" : ",") + std::string(kind) + ":" + std::to_string(count);
  }
  return text + ", first pause " + duration_text(job.retry->delay.value_or(Duration{}));
}

std::string topology_text(const GpuRequest& gpu) {
  if (gpu.topology == GpuTopology::any) return "";
  return gpu.topology == GpuTopology::nvlink ? ", joined by NVLink" : ", on one NUMA node";
}

// Of a job that may have more than one.
std::string task_count_text(const api::JobDetail& job) {
  if (job.tasks_max <= 1) return "";
  const auto here = std::count_if(job.tasks.begin(), job.tasks.end(),
                                  [](const api::TaskDetail& task) { return !is_final(task.state); });
  std::string text = std::to_string(job.tasks_min);
  if (job.tasks_max > job.tasks_min) text += " to " + std::to_string(job.tasks_max);
  if (here > 0) text = std::to_string(here) + " of " + text;
  return job.elastic ? text + ", elastic" : text;
}

void add_request(Page& page, const api::JobDetail& job) {
  page.line("User", job.user);
  page.line("Queue", job.queue);
  page.line("Class", std::string(to_string(job.job_class)) + ", priority " + std::to_string(job.priority));
  page.line("GPU", gpu_text(job) + topology_text(job.gpu));
  page.line("Tasks", task_count_text(job));
  if (!job.gpus.empty()) page.line("GPUs held", indices_text(job.gpus));
  if (job.started && !is_final(job.state)) {
    page.line("Share", job.over_quota ? "over what its queue is entitled to: others may reclaim it"
                                      : "within what its queue is entitled to: not reclaimed by others");
  }
  if (job.array) {
    page.line("Array",
              std::to_string(job.array->first.value()) + ", element " + std::to_string(job.array->index));
  }
  if (job.parameters) {
    std::string values;
    for (const auto& [name, value] : *job.parameters)
      values += (values.empty() ? "" : " ") + name + "=" + value;
    page.line("Parameters", values);
  }
  page.line("Depends on", dependencies_text(job.dependencies));
  if (job.begin) page.line("Not before", local_time_text(*job.begin));
  page.line("Retries", retries_text(job));
  if (job.limit_signal) {
    page.line("Signal", std::to_string(job.limit_signal->number) + ", " +
                            duration_text(job.limit_signal->before) + " before its time limit");
  }
}

void add_times(Page& page, const Session& session, const api::JobDetail& job) {
  page.line("Submitted", local_time_text(job.submitted));
  if (job.started) page.line("Started", local_time_text(*job.started));
  if (job.ended) page.line("Ended", local_time_text(*job.ended));
  page.line("Ran", elapsed_text(job, session.setup().now) + " of " + duration_text(job.time_limit));
  if (job.attempt > 1) page.line("Attempt", std::to_string(job.attempt));
  if (is_final(job.state)) {
    std::string exit = exit_text(job);
    if (job.cause) exit += " (" + std::string(to_string(*job.cause)) + ")";
    page.line("Exit", exit);
  }
  page.line("Reason", with_local_times(job.reason.value_or("")));
}

void add_private(Page& page, const api::JobDetail& job) {
  if (job.argv) page.line("Command", command_text(*job.argv));
  page.line("Directory", job.snapshot_of.value_or(job.directory.value_or("")));
  if (job.snapshot_of) page.line("Snapshot", job.directory.value_or(""));
  page.line("Output", job.stdout_path.value_or(""));
  if (job.stderr_path != job.stdout_path) page.line("Error", job.stderr_path.value_or(""));
}

// What it uses of its parts, while it runs.
void add_shares(Page& page, const api::JobDetail& job) {
  const bool is_counted = job.state == JobState::running && job.gpu.kind == SliceKind::fraction && job.tier &&
                          *job.tier <= api::Tier::guarded;
  if (is_counted && job.shares.empty())
    page.line("GPU memory", "not known now: the arbiter of memory has not told it (see `tranche doctor`)");
  for (const api::ShareRow& share : job.shares) {
    std::string text = "GPU " + std::to_string(share.gpu) + ": " + format_memory(share.charged) + " of " +
                       format_memory(share.limit);
    if (share.limit > share.guarantee) text += ", " + format_memory(share.guarantee) + " guaranteed";
    if (share.owed.count() > 0) text += ", " + format_memory(share.owed) + " to be given back";
    text += ", " + std::string(to_string(share.tier));
    if (share.denied > 0)
      text += ", " + std::to_string(share.denied) +
              (share.denied == 1 ? " request refused" : " requests refused");
    page.line(job.tasks.size() > 1 ? "GPU memory " + std::to_string(share.rank) : "GPU memory", text);
  }
}

std::string tasks_text(const Session& session, const api::JobDetail& job) {
  Table table({{.title = "  TASK", .right = true},
               {.title = "STATE"},
               {.title = "NODE"},
               {.title = "PID", .right = true},
               {.title = "EXIT"},
               {.title = "GPU UUIDS", .width_min = 12}});
  for (const api::TaskDetail& task : job.tasks) {
    std::string uuids;
    for (const std::string& uuid : task.gpus) uuids += (uuids.empty() ? "" : ",") + uuid;
    api::JobSummary ended;  // a task's end reads like a job's
    ended.exit_code = task.exit_code;
    ended.signal = task.signal;
    table.add({{std::to_string(task.rank)},
               {std::string(to_string(task.state)), state_style(task.state)},
               {task.node},
               {task.pid ? std::to_string(*task.pid) : "-"},
               {exit_text(ended)},
               {uuids}});
  }
  return table.empty() ? "" : "Tasks\n" + table.render(session.look());
}

std::string history_text(const Session& session, const api::JobDetail& job) {
  Table table({{.title = ""}, {.title = ""}, {.title = "", .width_min = 10}});
  for (const api::HistoryEntry& entry : job.history) {
    table.add({{"  " + local_time_text(entry.time)},
               {std::string(to_string(entry.state))},
               {with_local_times(entry.reason)}});
  }
  return table.empty() ? "" : "History\n" + table.render(session.look(), false);
}

std::string job_page(const Session& session, const api::JobDetail& job) {
  Page page;
  add_heading(page, session, job);
  add_request(page, job);
  add_shares(page, job);
  add_times(page, session, job);
  add_private(page, job);
  page.raw(tasks_text(session, job));
  page.raw(history_text(session, job));
  if (job.explanation && !is_final(job.state) && !job.started)
    page.raw(explanation_text(*job.explanation, session.setup().now));
  return page.text();
}

}  // namespace

Result<int> run_show(Session& session, const Arguments& arguments) {
  Daemon daemon(session);
  TRY_ASSIGN(const std::vector<api::JobDetail> jobs,
             find_jobs(daemon, session, arguments.words, BareArray::kFirst));
  for (size_t i = 0; i < jobs.size(); ++i) {
    if (arguments.has("json")) {  // one document a line
      TRY_ASSIGN(const std::string json, daemon.get("/v1/jobs/" + std::to_string(jobs[i].job.value())));
      session.print_json(json);
    } else {
      if (i > 0) session.print("\n");
      session.print(job_page(session, jobs[i]));
    }
  }
  return 0;
}

}  // namespace tranche::cli
