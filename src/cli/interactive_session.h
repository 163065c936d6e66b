// A conversation with a job through this program's own input and output, for `run` and `attach`.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace tranche::cli {

class Session;

// Whether a job's terminal could be shown here: standard input and output are one.
bool can_show_terminal(const Session& session);

// POSTs `body` to `target`, which upgrades to wire/attach.h, and stays until the job has ended. Returns the
// job's exit code; errors are the daemon's refusals.
Result<int> run_interactive(Session& session, std::string_view target, std::string_view body, bool terminal);

}  // namespace tranche::cli
