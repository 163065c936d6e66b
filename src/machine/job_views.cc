#include <algorithm>

#include "base/quantity_text.h"
#include "codec/sweep.h"
#include "machine/fences.h"
#include "machine/launch_environment.h"
#include "machine/shares.h"
#include "machine/task_facts.h"
#include "machine/views.h"

namespace tranche::machine {
namespace {

std::vector<uint32_t> held_gpus(const ViewSource& source, const JobRecord& job) {
  std::vector<uint32_t> indices;
  for (const TaskEntry& task : job.tasks) {
    // One that ended without having run holds nothing, and never did.
    if (is_final(job.state) && !task.started.is_set()) continue;
    for (const Slice& slice : task.slices) {
      if (const Gpu* gpu = source.gpus.find(slice.gpu)) indices.push_back(gpu->index);
    }
  }
  std::sort(indices.begin(), indices.end());
  indices.erase(std::unique(indices.begin(), indices.end()), indices.end());
  return indices;
}

// How an end is told: a code if it exited, a signal if one ended it.
template <class Value>
void tell_end(const TaskEntry& task, Value& value) {
  if (!task.has_end) return;
  value.cause = task.cause;
  if (task.cause == ExitCause::lost || task.cause == ExitCause::node_failed) return;
  if (task.signal != 0) {
    value.signal = task.signal;
  } else {
    value.exit_code = task.code;
  }
}

// The weakest of its slices'; of one that holds none, what it would get.
api::Tier job_tier(const ViewSource& source, const JobRecord& job) {
  const SliceKind kind = job.spec->task.gpu.kind;
  if (kind != SliceKind::fraction || is_final(job.state) || job.tasks.empty())
    return tier_of(kind, source.fence);
  api::Tier tier = api::Tier::enforced;
  for (const TaskEntry& task : job.tasks) {
    for (const Slice& slice : task.slices) tier = std::max(tier, slice_tier(source, task.key, slice));
  }
  return tier;
}

std::vector<api::ShareRow> share_rows(const ViewSource& source, const JobRecord& job) {
  std::vector<api::ShareRow> rows;
  for (const TaskEntry& task : job.tasks) {
    for (const Slice& slice : task.slices) {
      const Gpu* gpu = source.gpus.find(slice.gpu);
      const ShareUsage* usage =
          source.shares == nullptr || gpu == nullptr ? nullptr : source.shares->find(task.key, *gpu);
      if (usage == nullptr) continue;
      // The job's part is what it was granted: the arbiter may hear of a change a moment later.
      const std::vector<MemoryShare> part = memory_shares(*job.spec, {slice}, source.gpus);
      if (part.empty()) continue;
      rows.push_back({task.key.rank, gpu->index, part[0].guarantee, part[0].limit, to_mib(usage->charged),
                      to_mib(usage->owed), usage->denied, usage->processes,
                      slice_tier(source, task.key, slice)});
    }
  }
  return rows;
}

// What the driver reported of its GPU just before a job failed; "" if it reported nothing. That it was the
// cause is likely and not known, so the time is told.
std::string fault_before_end(const ViewSource& source, const JobRecord& job) {
  constexpr Duration kJustBefore = kMinute;
  const bool failed = job.state == JobState::failed || job.state == JobState::node_failed;
  if (!failed || !job.fault || job.ended - job.fault->time > kJustBefore) return "";
  const Gpu* const gpu = source.gpus.find(job.fault->gpu);
  const int64_t seconds = std::max(Duration{}, job.ended - job.fault->time).count() / kSecond.count();
  return fault_text(job.fault->xid, gpu == nullptr ? 0 : gpu->index) + ", " + std::to_string(seconds) + "s" +
         " before the end";
}

std::string reason_of(const ViewSource& source, const JobRecord& job, const Caller& caller) {
  if (job.state == JobState::pending || job.state == JobState::held) {
    auto reason = source.engine.scheduler().reason(job.id);
    if (reason) return std::move(*reason);
  }
  if (source.shares != nullptr && !is_final(job.state)) {
    if (std::string note = source.shares->note(job.id); !note.empty()) return note;
  }
  if (!job.private_reason.empty() && is_final(job.state) && caller.may_control(job.spec->owner.uid)) {
    return job.private_reason;
  }
  const std::string fault = fault_before_end(source, job);
  if (fault.empty()) return job.reason;
  return job.reason.empty() ? fault : job.reason + "; " + fault;
}

// A task that comes back to an elastic job is another attempt of that task, and the job goes on.
uint32_t attempt_of(const JobRecord& job) {
  uint32_t attempt = job.attempt;
  if (!job.spec->elastic || job.state == JobState::pending || job.state == JobState::held) return attempt;
  for (const TaskEntry& task : job.tasks) attempt = std::min(attempt, task.key.attempt);
  return attempt;
}

void fill_summary(const ViewSource& source, const JobRecord& job, const Caller& caller, bool with_reason,
                  api::JobSummary& summary) {
  const JobSpec& spec = *job.spec;
  summary.job = job.id;
  if (job.array.is_set()) summary.array = api::ArrayElement{JobId(job.array.value()), job.array_index};
  summary.display = job.display();
  if (caller.may_control(spec.owner.uid)) summary.name = job.element_name();
  summary.user = spec.owner.user;
  summary.uid = spec.owner.uid;
  summary.queue = spec.queue;
  summary.job_class = spec.job_class;
  summary.state = job.state;
  summary.priority = spec.priority;
  summary.gpu = spec.task.gpu;
  const bool holds = !is_final(job.state) && job.state != JobState::pending && job.state != JobState::held;
  if (holds || is_final(job.state)) summary.gpus = held_gpus(source, job);
  if (spec.task.gpu.count > 0) summary.tier = job_tier(source, job);
  summary.submitted = job.submitted;
  if (job.started.is_set()) summary.started = job.started;
  if (job.ended.is_set()) summary.ended = job.ended;
  summary.time_limit = spec.time_limit;
  summary.attempt = attempt_of(job);
  if (is_final(job.state)) {
    if (const TaskEntry* task = job.telling_task()) tell_end(*task, summary);
  }
  if (holds) {
    const auto view = source.engine.scheduler().job(job.id);
    summary.over_quota = view && view->over_quota;
  }
  if (with_reason) {
    std::string reason = reason_of(source, job, caller);
    if (!reason.empty()) summary.reason = std::move(reason);
  }
}

api::TaskDetail task_detail(const ViewSource& source, const TaskEntry& task, bool may_control) {
  api::TaskDetail detail;
  detail.rank = task.key.rank;
  detail.attempt = task.key.attempt;
  detail.state = task.state;
  const std::vector<Node> nodes = source.engine.scheduler().nodes();
  const auto node =
      std::find_if(nodes.begin(), nodes.end(), [&](const Node& n) { return n.id == task.node; });
  if (node != nodes.end()) detail.node = node->name;
  for (const Slice& slice : task.slices) {
    if (const Gpu* gpu = source.gpus.find(slice.gpu)) detail.gpus.push_back(gpu->uuid);
  }
  if (may_control && task.pid > 0) detail.pid = task.pid;
  if (task.started.is_set()) detail.started = task.started;
  if (task.ended.is_set()) detail.ended = task.ended;
  tell_end(task, detail);
  return detail;
}

// What the job runs, for its owner and operators.
void tell_request(const ViewSource& source, const JobRecord& job, const api::SubmitRequest& submitted,
                  api::JobDetail& detail) {
  const api::SubmitRequest request = api::element_request(submitted, job.array_index);
  detail.argv =
      request.script ? script_command("<script>", job.element_name(), request.script_args) : request.argv;
  detail.directory = request.directory;
  detail.snapshot_of = request.snapshot_of;
  if (!submitted.sweep.empty()) detail.parameters = api::sweep_values(submitted.sweep, job.array_index);
  if (!job.spec->interactive) {
    detail.stdout_path = resolved_stdout(source, job, request);
    const std::string error_path = resolved_stderr(source, job, request);
    if (!error_path.empty()) detail.stderr_path = error_path;
  }
  std::vector<std::string> names;
  for (const auto& variable : request.environment) names.push_back(variable.first);
  detail.environment_names = std::move(names);
}

// What was last said of the number of tasks or GPUs of a job that runs and may have more or fewer.
std::string reason_of_size(const JobRecord& job) {
  const bool runs = job.state == JobState::running || job.state == JobState::starting;
  if (!runs || (job.spec->tasks_max == job.spec->tasks_min && !job.spec->task.gpu.is_moldable())) return "";
  for (auto entry = job.history.rbegin(); entry != job.history.rend(); ++entry) {
    if (entry->state != JobState::running && entry->state != JobState::starting) return "";
    if (!entry->reason.empty()) return entry->reason;
  }
  return "";
}

}  // namespace

api::JobSummary job_summary(const ViewSource& source, const JobRecord& job, const Caller& caller,
                            bool with_reason) {
  api::JobSummary summary;
  fill_summary(source, job, caller, with_reason, summary);
  return summary;
}

api::JobDetail job_detail(const ViewSource& source, const JobRecord& job, const Caller& caller,
                          const api::SubmitRequest* request) {
  const bool may_control = caller.may_control(job.spec->owner.uid);
  api::JobDetail detail;
  fill_summary(source, job, caller, true, detail);
  if (request != nullptr && may_control) tell_request(source, job, *request, detail);
  for (const TaskEntry& task : job.tasks) detail.tasks.push_back(task_detail(source, task, may_control));
  detail.shares = share_rows(source, job);
  for (const StateChange& change : job.history) {
    detail.history.push_back({change.time, change.state, change.reason});
  }
  const JobSpec& spec = *job.spec;
  detail.tasks_min = spec.tasks_min;
  detail.tasks_max = spec.tasks_max;
  detail.elastic = spec.elastic;
  detail.dependencies = spec.dependencies;
  if (spec.begin.is_set()) detail.begin = spec.begin;
  detail.grace = spec.grace;
  if (spec.retry != RetryPolicy()) {
    detail.retry = api::RetryRequest{spec.retry.error, spec.retry.out_of_memory, spec.retry.infrastructure,
                                     spec.retry.delay};
  }
  if (spec.signal.number != 0)
    detail.limit_signal = api::SignalRequest{spec.signal.number, spec.signal.before};
  if (!is_final(job.state)) {
    if (auto why = explain(source, job)) detail.explanation = std::move(*why);
  }
  return detail;
}

// The scheduler's answer, with what is known of parts of GPUs beside it.
std::optional<Explanation> explain(const ViewSource& source, const JobRecord& job) {
  auto why = source.engine.scheduler().why(job.id);
  if (!why) return std::nullopt;
  // The history's words say more than the scheduler's: what was taken or joined, and why.
  const std::string size = reason_of_size(job);
  if (!size.empty() && job.state == JobState::running) why->reason = "Runs with " + size + ".";
  if (source.shares != nullptr) {
    if (std::string note = source.shares->note(job.id); !note.empty()) why->reason = std::move(note);
  }
  if (job.state == JobState::pending && why->proof.kind == ProofKind::busy &&
      has_room_beside_others(source, *job.spec)) {
    why->helps.push_back(
        "A GPU of its own would do, or one with parts of its user: " + std::string(kUsersDoNotMeet) + ".");
  }
  return std::move(*why);
}

// A GPU that has what one task asks for, and parts of other users' only because of which it may not go there.
bool has_room_beside_others(const ViewSource& source, const JobSpec& spec) {
  const Policy& policy = source.engine.scheduler().policy();
  const GpuRequest& wanted = spec.task.gpu;
  if (wanted.kind != SliceKind::fraction || policy.users_share_gpu) return false;
  for (const auto& view : source.engine.scheduler().gpus()) {
    const auto& shared = policy.users_share_gpus;
    if (view.health == Health::failed || view.health == Health::lost || view.drained || view.tasks.empty() ||
        std::find(shared.begin(), shared.end(), view.gpu->id) != shared.end() ||
        !accepts_type(wanted.type, view.gpu->type))
      continue;
    if (view.compute_free >= wanted.compute && view.memory_free >= wanted.memory &&
        (view.compute_free.count() > 0 || view.memory_free.count() > 0))
      return true;
  }
  return false;
}

std::string resolved_stdout(const ViewSource& source, const JobRecord& job,
                            const api::SubmitRequest& request) {
  const UserRecord* user = source.users.find(job.spec->owner.uid);
  return stdout_path(request,
                     task_facts(TaskKey{job.id, 0, job.attempt}, job, user, source.gpus, {}, request));
}

std::string resolved_stderr(const ViewSource& source, const JobRecord& job,
                            const api::SubmitRequest& request) {
  const UserRecord* user = source.users.find(job.spec->owner.uid);
  return stderr_path(request,
                     task_facts(TaskKey{job.id, 0, job.attempt}, job, user, source.gpus, {}, request));
}

}  // namespace tranche::machine
