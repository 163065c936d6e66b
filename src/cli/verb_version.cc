// tranche version.
#include "cli/arguments.h"
#include "cli/session.h"
#include "cli/verbs.h"

namespace tranche::cli {

Result<int> run_version(Session& session, const Arguments& arguments) {
  session.print(arguments.has("json") ? "{\"version\":\"" TRANCHE_VERSION "\"}\n"
                                      : "tranche " TRANCHE_VERSION "\n");
  return 0;
}

}  // namespace tranche::cli
