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
  if (arguments.has("json")) {
    TRY_ASSIGN(const FetchedJobs fetched, fetch_jobs(daemon, target, SIZE_MAX));
    session.print_json(fetched.json);
    return 0;
  }
  TRY_ASSIGN(const Table table, fetch_job_table(daemon, target, session.setup().uid, session.setup().now));
  session.print(table.render(session.look(), !arguments.has("no-header")));
  if (table.empty()) {
    session.note(arguments.has("all")
                     ? "no job matches\n"
                     : "no job waits or runs; 'tranche ls --all' shows those that ended too\n");
  }
  return 0;
}

}  // namespace tranche::cli
