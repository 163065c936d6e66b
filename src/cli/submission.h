// What `submit` and `run` share: from words and a script to one request.
#pragma once

#include "base/result.h"
#include "cli/arguments.h"
#include "codec/api.h"

namespace tranche::cli {

class Session;

// A command (after "--", or for `run` always) or a script with its directives; options of the command line go
// before those of the script. Warnings about the script are printed.
Result<api::SubmitRequest> make_submission(Session& session, const Arguments& arguments);
// Only a command; `run` knows no scripts.
Result<api::SubmitRequest> make_command_submission(Session& session, const Arguments& arguments);

// Submits a batch job, prints what became of it, and with --wait waits. The exit code of the verb.
Result<int> submit_batch(Session& session, const Arguments& arguments, const api::SubmitRequest& request);

// Whether the options go with a job in the foreground.
Result<void> check_foreground(const Arguments& arguments);

}  // namespace tranche::cli
