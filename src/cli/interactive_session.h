// A conversation with a job through this program's own input and output, for `run` and `attach`.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "base/ids.h"
#include "base/result.h"

namespace tranche::cli {

class Session;

// Whether a job's terminal could be shown here: standard input and output are one, and it is ours now. A
// program that a shell started with & would be stopped at its first touch of the terminal.
bool can_show_terminal(const Session& session);

struct InteractiveOptions {
  bool terminal = false;
  bool inside = false;                    // a command inside a job, which goes on without us
  std::function<void(JobId)> accepted{};  // called once the job has its number
};

// POSTs `body` to `target`, which upgrades to wire/attach.h, and stays until the job has ended. Returns the
// job's exit code; errors are the daemon's refusals.
Result<int> run_interactive(Session& session, std::string_view target, std::string_view body,
                            InteractiveOptions options);

}  // namespace tranche::cli
