// The facts of one task for its environment and file names, and those file names.
#pragma once

#include <string>
#include <vector>

#include "codec/api.h"
#include "machine/gpu_manager.h"
#include "machine/job_table.h"
#include "machine/launch_environment.h"
#include "machine/user_directory.h"

namespace tranche::machine {

// `user` may be null (gone from the system): home and shell are then empty.
TaskFacts task_facts(const TaskKey& task, const JobRecord& job, const UserRecord* user,
                     const GpuManager& gpus, const std::vector<Slice>& slices,
                     const api::SubmitRequest& request);

// What this job runs: of a sweep's element with its own values filled in.
RequestPointer request_of_element(const RequestPointer& request, const JobRecord& job);

// Absolute; the default pattern is "tranche-%j.out" in the directory of submission, for arrays
// "tranche-%A_%a.out". Tasks of a gang share the file; "%t" in the pattern gives each its own.
std::string stdout_path(const api::SubmitRequest& request, const TaskFacts& facts);
// "" : where stdout goes.
std::string stderr_path(const api::SubmitRequest& request, const TaskFacts& facts);
// "" : /dev/null.
std::string stdin_path(const api::SubmitRequest& request, const TaskFacts& facts);

}  // namespace tranche::machine
