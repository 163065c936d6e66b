// tranche replay: what another policy would have made of a recorded journal. A program of its own does the
// work, with the scheduler in it.
#include "cli/arguments.h"
#include "cli/helper_program.h"
#include "cli/verbs.h"

namespace tranche::cli {

Result<int> run_replay(Session& session, const Arguments& arguments) {
  std::vector<std::string> words;
  if (const std::string* policy = arguments.find("policy")) words.insert(words.end(), {"--policy", *policy});
  if (arguments.has("json")) words.emplace_back("--json");
  words.push_back(arguments.words.front());
  return run_helper_program(session, "tranche-replay", std::move(words));
}

}  // namespace tranche::cli
