// tranche help.
#include "cli/arguments.h"
#include "cli/option_error.h"
#include "cli/reference.h"
#include "cli/session.h"
#include "cli/text.h"
#include "cli/verbs.h"

namespace tranche::cli {

Result<int> run_help(Session& session, const Arguments& arguments) {
  if (arguments.has("markdown")) {
    session.print(markdown_reference());
    return 0;
  }
  if (arguments.words.empty()) {
    session.print(overview_page(session.look()));
    return 0;
  }
  const Verb* verb = find_verb(arguments.words.front());
  if (verb == nullptr)
    return invalid(in_quotes(arguments.words.front()) +
                   " is not a verb of tranche; 'tranche help' lists them");
  session.print(verb_page(session.look(), *verb));
  return 0;
}

}  // namespace tranche::cli
