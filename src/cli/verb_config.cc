// tranche config: check a configuration before it is loaded, explain what it means, have it loaded.
#include "cli/arguments.h"
#include "cli/daemon.h"
#include "cli/option_error.h"
#include "cli/session.h"
#include "cli/text.h"
#include "cli/verbs.h"
#include "codec/config.h"

namespace tranche::cli {
namespace {

Result<int> check(Session& session, const std::string& path) {
  TRY_ASSIGN(const DaemonConfig config, load_config(path));
  session.print(printable(path) + " is in order: " + std::to_string(config.policy.queues.size()) +
                " queues; 'tranche config explain' says what it means\n");
  return 0;
}

Result<int> explain(Session& session, const std::string& path) {
  TRY_ASSIGN(const DaemonConfig config, load_config(path));
  for (const std::string& sentence : explain_policy(config.policy)) session.print(printable(sentence) + "\n");
  return 0;
}

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
  const std::string path = arguments.words.size() > 1 ? arguments.words[1] : std::string(kConfigPath);
  if (what == "check") return check(session, path);
  if (what == "explain") return explain(session, path);
  if (what == "reload" && arguments.words.size() == 1) return reload(session);
  if (what == "reload") return invalid("the daemon reloads its own file; leave out " + in_quotes(path));
  return invalid(in_quotes(what) + " is not known here; write: tranche config check|explain|reload [FILE]");
}

}  // namespace tranche::cli
