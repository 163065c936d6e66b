// tranche history: jobs that ended, newest first.
#include "base/quantity_text.h"
#include "cli/arguments.h"
#include "cli/daemon.h"
#include "cli/job_list.h"
#include "cli/job_text.h"
#include "cli/option_error.h"
#include "cli/session.h"
#include "cli/table.h"
#include "cli/verbs.h"

namespace tranche::cli {
namespace {

constexpr int64_t kRowsDefault = 50;
constexpr int64_t kRowsMax = 1'000'000;

// "2d" ago, or a time.
Result<Time> parse_since(const std::string& text, Time now) {
  if (const Result<Time> time = parse_time(text)) return *time;
  const Result<Duration> ago = parse_duration(text);
  if (ago) return now - *ago;
  return invalid("--since: write how long ago, such as 2d, or a time such as 2026-12-01T08:30:00Z");
}

Table history_table(const Session& session, const std::vector<api::JobSummary>& jobs) {
  Table table({{.title = "ID", .right = true},
               {.title = "NAME", .width_min = 6},
               {.title = "USER", .width_min = 6},
               {.title = "QUEUE", .width_min = 8},
               {.title = "STATE", .width_min = 9},
               {.title = "EXIT"},
               {.title = "GPU", .width_min = 4},
               {.title = "GPUS", .width_min = 4},
               {.title = "ENDED"},
               {.title = "TIME", .right = true},
               {.title = "REASON", .width_min = 10}});
  for (const api::JobSummary& job : jobs) {
    table.add({{job.display},
               {job.name.value_or("-")},
               {job.user},
               {job.queue},
               {std::string(to_string(job.state)), state_style(job.state)},
               {exit_text(job)},
               {gpu_text(job)},
               {indices_text(job.gpus)},
               {job.ended ? local_time_text(*job.ended) : "-"},
               {elapsed_text(job, session.setup().now)},
               {job.reason.value_or("")}},
              job.uid == session.setup().uid ? Style::kBold : Style::kPlain);
  }
  return table;
}

}  // namespace

Result<int> run_history(Session& session, const Arguments& arguments) {
  std::string target = "/v1/history";
  if (arguments.has("me") && arguments.has("user"))
    return invalid("--me and --user contradict each other; give one");
  if (arguments.has("me")) add_query(target, "user", session.user());
  if (const std::string* user = arguments.find("user")) add_query(target, "user", *user);
  if (const std::string* since = arguments.find("since")) {
    TRY_ASSIGN(const Time time, parse_since(*since, session.setup().now));
    add_query(target, "since", format_time(time));
  }
  int64_t rows = kRowsDefault;
  if (const std::string* count = arguments.find("number")) {
    TRY_OPTION(rows, "--number", parse_integer(*count, 1, kRowsMax, "the number of jobs"));
  }
  // A page larger than what the daemon gives at once would be refused; the cursor brings the rest.
  constexpr int64_t kPageMax = 1'000;
  add_query(target, "limit", std::to_string(std::min(rows, kPageMax)));

  Daemon daemon(session);
  TRY_ASSIGN(const FetchedJobs fetched, fetch_jobs(daemon, target, static_cast<size_t>(rows)));
  if (arguments.has("json")) {
    session.print_json(fetched.json);
    return 0;
  }
  session.print(
      history_table(session, fetched.list.jobs).render(session.look(), !arguments.has("no-header")));
  if (fetched.list.jobs.empty()) session.note("no job has ended yet\n");
  return 0;
}

}  // namespace tranche::cli
