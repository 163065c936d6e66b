// tranche config: check a configuration before it is loaded, explain what it means, have it loaded.
//
// Reading TOML needs a library that would cost every other verb half of its start, so check and explain are a
// program of their own beside this one.
#include "cli/arguments.h"
#include "cli/daemon.h"
#include "cli/helper_program.h"
#include "cli/job_text.h"
#include "cli/option_error.h"
#include "cli/session.h"
#include "cli/text.h"
#include "cli/verbs.h"

namespace tranche::cli {
namespace {

Result<int> reload(Session& session) {
  Daemon daemon(session);
  TRY_ASSIGN(const api::PolicySummary summary, daemon.post_as<api::PolicySummary>("/v1/reload"));
  session.print(summary.changed ? "the new policy is in force\n" : "nothing has changed\n");
  for (const std::string& sentence : summary.sentences) session.print(printable(sentence) + "\n");
  return 0;
}

}  // namespace

Result<int> run_config(Session& session, const Arguments& arguments) {
  const std::string& what = arguments.words.front();
  if (what == "check" || what == "explain")
    return run_helper_program(session, "tranche-config", arguments.words);
  if (what == "reload" && arguments.words.size() == 1) return reload(session);
  if (what == "reload")
    return invalid("the daemon reloads its own file; leave out " + in_quotes(arguments.words[1]));
  return invalid(in_quotes(what) + " is not known here; write: tranche config check|explain|reload [FILE]");
}

}  // namespace tranche::cli
