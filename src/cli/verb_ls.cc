// tranche ls: everybody's jobs, one's own highlighted.
#include "base/quantity_text.h"
#include "cli/arguments.h"
#include "cli/daemon.h"
#include "cli/job_list.h"
#include "cli/job_text.h"
#include "cli/session.h"
#include "cli/table.h"
#include "cli/verbs.h"

namespace tranche::cli {
namespace {

Table job_table(const Session& session, const std::vector<api::JobSummary>& jobs) {
  Table table({{.title = "ID", .right = true},
               {.title = "NAME", .width_min = 6},
               {.title = "USER", .width_min = 6},
               {.title = "QUEUE", .width_min = 8},
               {.title = "CLASS", .width_min = 5},
               {.title = "STATE", .width_min = 7},
               {.title = "GPU", .width_min = 4},
               {.title = "GPUS", .width_min = 4},
               {.title = "TIME", .right = true},
               {.title = "LIMIT", .right = true},
               {.title = "REASON", .width_min = 10}});
  const uint32_t me = session.setup().uid;
  for (const api::JobSummary& job : jobs) {
    table.add({{job.display},
               {job.name.value_or("-")},
               {job.user},
               {job.queue},
               {std::string(to_string(job.job_class))},
               {std::string(to_string(job.state)), state_style(job.state)},
               {gpu_text(job)},
               {indices_text(job.gpus)},
               {elapsed_text(job, session.setup().now)},
               {duration_text(job.time_limit)},
               {job.reason.value_or("")}},
              job.uid == me ? Style::kBold : Style::kPlain);
  }
  return table;
}

}  // namespace

Result<int> run_ls(Session& session, const Arguments& arguments) {
  std::string target = "/v1/jobs";
  if (arguments.has("me") && arguments.has("user")) {
    return fail(ErrorCode::invalid_argument, "--me and --user contradict each other; give one");
  }
  if (arguments.has("me")) add_query(target, "user", session.user());
  for (const std::string_view key : {"user", "state", "queue"}) {
    if (const std::string* value = arguments.find(key)) add_query(target, key, *value);
  }
  if (arguments.has("all")) add_query(target, "all", "true");

  Daemon daemon(session);
  TRY_ASSIGN(const FetchedJobs fetched, fetch_jobs(daemon, target, SIZE_MAX));
  if (arguments.has("json")) {
    session.print_json(fetched.json);
    return 0;
  }
  session.print(job_table(session, fetched.list.jobs).render(session.look(), !arguments.has("no-header")));
  if (fetched.list.jobs.empty()) {
    session.note(arguments.has("all")
                     ? "no job matches\n"
                     : "no job waits or runs; 'tranche ls --all' shows those that ended too\n");
  }
  return 0;
}

}  // namespace tranche::cli
