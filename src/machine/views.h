// What the API shows: values of codec/api.h made from the job table, the scheduler and the GPUs' readings.
// What a caller may not see of another user's job (name, command, directory, pids) is left out here.
#pragma once

#include <string>
#include <vector>

#include "codec/api.h"
#include "machine/caller.h"
#include "machine/fences.h"
#include "machine/gpu_manager.h"
#include "machine/job_table.h"
#include "machine/user_directory.h"

namespace tranche::machine {

class Shares;

// Borrowed for the time of one answer.
struct ViewSource {
  const Engine& engine;
  GpuManager& gpus;
  UserDirectory& users;
  const Clock& clock;
  FractionFence fence{};
  const Shares* shares = nullptr;  // null: what is used of parts is not known
};

api::JobSummary job_summary(const ViewSource& source, const JobRecord& job, const Caller& caller,
                            bool with_reason);
// `request`: what it runs, if the caller may see it and it could be read; else null.
api::JobDetail job_detail(const ViewSource& source, const JobRecord& job, const Caller& caller,
                          const api::SubmitRequest* request);
// Why a live job does not run, or what there is to say of one that does.
std::optional<Explanation> explain(const ViewSource& source, const JobRecord& job);
// The path of a task's output as it was opened, for `logs`.
// Whether a GPU has what one task asks for, beside parts of other users, because of which it may not go
// there.
bool has_room_beside_others(const ViewSource& source, const JobSpec& spec);
inline constexpr std::string_view kUsersDoNotMeet =
    "parts of different users do not meet on a GPU here (users_share_gpu in the configuration), and only "
    "there "
    "is room now";

std::string resolved_stdout(const ViewSource& source, const JobRecord& job,
                            const api::SubmitRequest& request);
std::string resolved_stderr(const ViewSource& source, const JobRecord& job,
                            const api::SubmitRequest& request);

api::GpuList gpu_list(const ViewSource& source);
// What one task's slice is held by: what holds it in fact, once it runs.
api::Tier slice_tier(const ViewSource& source, const TaskKey& task, const Slice& slice);
// A reading is up to a second old; a process that has ended since is nobody's.
bool process_exists(const GpuProcess& process);
// What processes hold of a GPU that are in no job on it.
MiB held_outside_of_jobs(GpuManager& gpus, const scheduler::GpuView& view);
api::ProcessList process_list(const ViewSource& source, const Caller& caller);
api::QueueList queue_list(const ViewSource& source, bool with_arithmetic);

}  // namespace tranche::machine
