// cancel, hold and release: one request a job, each answered or refused for itself; and one for an array as a
// whole, so that none of its elements starts meanwhile. requeue: one a job.
#pragma once

#include <string_view>

#include "base/result.h"

namespace tranche::cli {

class Arguments;
class Session;

// POSTs /v1/jobs/{id}/<action> for every job that the words (or --me) name, and says `done` of each. A
// refusal is printed and the others go on; the exit code is the worst.
Result<int> act_on_jobs(Session& session, const Arguments& arguments, std::string_view action,
                        std::string_view done);

}  // namespace tranche::cli
