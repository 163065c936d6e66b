#include "machine/task_runner.h"

#include <algorithm>

#include "codec/api.h"
#include "linux/log.h"
#include "machine/gang_ports.h"
#include "machine/members.h"
#include "machine/task_facts.h"

namespace tranche::machine {

TaskRunner::Live* TaskRunner::find(const TaskKey& task) {
  const auto live = live_.find(task);
  return live == live_.end() ? nullptr : &live->second;
}

// --- decisions ------------------------------------------------------------------------------------------

void TaskRunner::on_step(const JournalRow& row) {
  for (const Decision& decision : row.decisions) {
    if (const auto* start = std::get_if<Start>(&decision)) {
      live_[start->task].slices = start->slices;
      if (reconciled_) send_start(start->task);
    } else if (const auto* stop = std::get_if<Stop>(&decision)) {
      if (Live* live = find(stop->task)) live->stopping = true;
    }
  }
  if (const auto* released = std::get_if<SliceReleased>(&row.event.payload)) {
    Live* live = find(released->task);
    if (live == nullptr) return;
    std::erase_if(live->slices, [&](const Slice& slice) { return slice.gpu == released->gpu; });
    if (live->ended && live->slices.empty()) live_.erase(released->task);
  }
}

void TaskRunner::on_durable(const JournalRow& row) {
  for (const Decision& decision : row.decisions) {
    if (const auto* start = std::get_if<Start>(&decision)) {
      if (Live* live = find(start->task)) {
        live->durable = true;
        try_go(start->task, *live);
      }
    } else if (const auto* stop = std::get_if<Stop>(&decision)) {
      this->stop(stop->task);
    }
  }
  if (const auto* updated = std::get_if<JobUpdated>(&row.event.payload)) {
    if (updated->time_limit) set_time_limits(updated->job);
    if (updated->gpu_memory != MiB()) set_gpu_memory(updated->job);
  }
  if (const auto* exited = std::get_if<TaskExited>(&row.event.payload)) forget_when_durable(exited->task);
  if (const auto* failed = std::get_if<TaskStartFailed>(&row.event.payload))
    forget_when_durable(failed->task);
}

// A task that is only being prepared has its limit already; it is told the new one all the same.
void TaskRunner::set_time_limits(JobId id) {
  const JobRecord* job = parts_.engine.jobs().find(id);
  for (const auto& [task, live] : live_) {
    if (job != nullptr && task.job == id && live.sent && !live.ended)
      parts_.host.set_time_limit(task, time_limit_of(task, *job));
  }
}

// The root side counts from the task's own start, and the limit is the job's: who joins later has less.
Duration TaskRunner::time_limit_of(const TaskKey& task, const JobRecord& job) const {
  const Duration limit = job.spec->time_limit;
  if (!job.spec->elastic || !job.started.is_set()) return limit;
  const auto entry = std::find_if(job.tasks.begin(), job.tasks.end(),
                                  [&](const TaskEntry& each) { return each.key == task; });
  const bool runs = entry != job.tasks.end() && entry->started.is_set();
  const Duration late = (runs ? entry->started : parts_.engine.now()) - job.started;
  return std::max(limit - std::max(late, Duration{}), kSecond);
}

// Said again when the root side is met anew: there nothing comes of what is so already.
void TaskRunner::set_gpu_memory(JobId id) {
  const JobRecord* job = parts_.engine.jobs().find(id);
  if (job == nullptr || job->spec->task.gpu.kind != SliceKind::fraction) return;
  for (const TaskEntry& task : job->tasks) {
    const Live* live = find(task.key);
    if (live == nullptr || !live->went || live->ended) continue;
    const auto shares = memory_shares(*job->spec, task.slices, parts_.gpus);
    if (!shares.empty()) parts_.host.set_gpu_memory(task.key, shares);
  }
}

void TaskRunner::send_start(const TaskKey& task) {
  const JobRecord* job = parts_.engine.jobs().find(task.job);
  if (job == nullptr) return;
  if (job->request) return send_start_with(task, job->request);
  // After a restart what the job runs is still in the journal only.
  parts_.engine.journal().read_payload(job->spec->payload_hash, [this, task](Result<std::string> content) {
    JobRecord* record = parts_.engine.jobs().find(task.job);
    if (record == nullptr || find(task) == nullptr) return;
    if (!content) return refuse_start(task, content.error().message());
    auto request = api::decode<api::SubmitRequest>(*content);
    if (!request) return refuse_start(task, request.error().message());
    record->request = std::make_shared<const api::SubmitRequest>(std::move(*request));
    send_start_with(task, record->request);
  });
}

void TaskRunner::send_start_with(const TaskKey& task, const RequestPointer& request) {
  Live* live = find(task);
  if (live == nullptr || live->ended || live->sent) return;
  if (!parts_.host.is_connected() || !reconciled_) return;  // reconcile() sends it again
  if (stale_.contains(task)) return;                        // on_all_gone() sends it again
  if (parts_.sessions.is_expected(task.job)) return;        // its client is on its way: on_arrival()
  if (!gang_can_meet(task))
    return refuse_start(task, "a port that its tasks were to meet on is in use", true);
  auto plan = make_plan(task, *live, request);
  if (!plan) return refuse_start(task, plan.error().message());
  live->sent = true;
  UniqueFd client;
  if (plan->interactive) {
    InteractiveSessions::Session session = parts_.sessions.take(task.job);
    client = std::move(session.client);
    plan->terminal = session.terminal.wanted;
    plan->terminal_rows = session.terminal.rows;
    plan->terminal_columns = session.terminal.columns;
    if (!client.is_open()) return refuse_start(task, "the client that waited for it went away");
  }
  parts_.host.start(*plan, std::move(client));
}

Result<LaunchPlan> TaskRunner::make_plan(const TaskKey& task, const Live& live,
                                         const RequestPointer& submitted) {
  const JobRecord* job = parts_.engine.jobs().find(task.job);
  const RequestPointer request = request_of_element(submitted, *job);
  const JobSpec& spec = *job->spec;
  const UserRecord* user = parts_.users.find(spec.owner.uid);
  if (user == nullptr) {
    return fail(ErrorCode::not_found, "the user " + spec.owner.user + " does not exist any more");
  }
  TaskFacts facts = task_facts(task, *job, user, parts_.gpus, live.slices, *request);
  if (spec.elastic) facts.members_file = members_file(parts_.run_dir, task.job);
  LaunchPlan plan;
  plan.task = task;
  plan.owner = spec.owner;
  plan.directory = request->directory;
  plan.stdin_path = stdin_path(*request, facts);
  plan.stdout_path = stdout_path(*request, facts);
  plan.stderr_path = stderr_path(*request, facts);
  plan.arguments =
      request->script ? script_command(*request->script, facts.name, request->script_args) : request->argv;
  plan.environment = task_environment(request->environment, facts);
  plan.umask = request->umask.value_or(022);
  // The weight; who asked for nothing counts as one core.
  plan.cpu = spec.task.cpu > MilliCpu{} ? spec.task.cpu : MilliCpu(1000);
  plan.memory = spec.task.memory;
  plan.processes_max = parts_.task_processes_max;
  plan.time_limit = time_limit_of(task, *job);
  plan.grace = spec.grace;
  plan.signal = spec.signal;
  plan.job_shares = job->tasks.size() > 1 || spec.elastic;
  plan.interactive = spec.interactive;
  for (const Slice& slice : live.slices) {
    const Gpu* gpu = parts_.gpus.find(slice.gpu);
    if (gpu == nullptr) return fail(ErrorCode::unavailable, "its GPU is not in the machine any more");
    plan.gpu_minors.push_back(gpu->minor);
  }
  plan.memory_shares = memory_shares(spec, live.slices, parts_.gpus);
  return plan;
}

// Asked for the first task alone: what it answers holds for the gang.
bool TaskRunner::gang_can_meet(const TaskKey& task) const {
  const JobTable& jobs = parts_.engine.jobs();
  const JobRecord* job = jobs.find(task.job);
  const GangPorts ports = gang_ports_of(*job);
  if (ports.count == 0 || task.rank != 0) return true;
  return !are_taken_by_another_gang(ports, task.job, jobs, parts_.engine.scheduler().live_jobs()) &&
         parts_.host.ports_are_free(ports.first, ports.count);
}

// Nothing was sent to the root side, or nothing came of it: the task provably never executed.
void TaskRunner::refuse_start(const TaskKey& task, const std::string& reason, bool retry) {
  Live* live = find(task);
  if (live == nullptr || live->ended) return;
  live->ended = true;
  parts_.engine.record(TaskStartFailed{task, retry, 0, reason});
  live_.erase(task);
}

void TaskRunner::try_go(const TaskKey& task, Live& live) {
  if (!live.prepared || !live.durable || live.went || live.stopping) return;
  if (!live.may_go) live.may_go = parts_.shares == nullptr || parts_.shares->may_go(task);
  if (!live.may_go) return;
  live.went = true;
  parts_.host.go(task);
}

void TaskRunner::go_again(const TaskKey& task) {
  Live* live = find(task);
  if (live == nullptr || live->ended) return;
  live->may_go = true;
  try_go(task, *live);
}

void TaskRunner::stop(const TaskKey& task) {
  Live* live = find(task);
  if (live == nullptr || live->ended) return;
  const JobRecord* job = parts_.engine.jobs().find(task.job);
  if (!live->sent) return refuse_start(task, "cancelled before it started", true);
  parts_.host.kill(task, job == nullptr ? Duration{} : job->spec->grace);
}

// --- what became of them
// -------------------------------------------------------------------------------------

void TaskRunner::on_prepared(const TaskKey& task) {
  if (Live* live = find(task); live != nullptr && !stale_.contains(task)) {
    live->prepared = true;
    try_go(task, *live);
  }
}

void TaskRunner::on_started(const TaskKey& task, int32_t pid) {
  if (stale_.contains(task)) return;
  Live* live = find(task);
  if (live == nullptr || live->started || live->ended) return;
  live->started = true;
  live->went = true;
  parts_.engine.jobs().set_pid(task, pid);
  parts_.engine.record(TaskStarted{task});
}

void TaskRunner::on_start_failed(const TaskKey& task, const StartFailure& failure) {
  if (stale_.contains(task)) return;
  Live* live = find(task);
  if (live == nullptr) return forget_if_settled(task);
  if (live->ended) return;
  live->ended = true;
  parts_.sessions.end(task.job, failure.text);
  // One that was ended before it went has no fault of its own: the other tasks of its gang may be tried
  // again.
  const bool retry = !failure.of_the_job;
  if (!failure.cancelled) {
    log(LogLevel::notice, "task_start_failed",
        {{"job", task.job.value()}, {"rank", task.rank}, {"stage", failure.stage}});
  }
  to_forget_.insert(task);
  parts_.engine.record(TaskStartFailed{task, retry, failure.code,
                                       failure.cancelled ? "cancelled before it started" : failure.stage});
  live_.erase(task);
  // The sentence with paths is the owner's: the log has the stage only.
  if (JobRecord* job = parts_.engine.jobs().find(task.job); job != nullptr && !failure.cancelled) {
    job->private_reason = "could not start: " + failure.text;
  }
}

void TaskRunner::on_exited(const TaskKey& task, const TaskEnd& end) {
  if (stale_.contains(task)) return;
  Live* live = find(task);
  if (live == nullptr || live->ended) return;
  live->has_end = true;
  live->end = end;
}

void TaskRunner::on_all_gone(const TaskKey& task) {
  Live* live = find(task);
  if (stale_.erase(task) != 0) {
    parts_.host.forget(task);
    if (live != nullptr && !live->ended) send_start(task);
    return;
  }
  if (live == nullptr) return forget_if_settled(task);
  if (!live->ended) record_end(task, *live);
}

void TaskRunner::record_end(const TaskKey& task, Live& live) {
  if (!live.started) {
    // Started and ended while nobody was listening.
    live.started = true;
    parts_.engine.record(TaskStarted{task});
  }
  live.ended = true;
  const std::vector<Slice> slices = live.slices;
  const TaskEnd end = live.has_end ? live.end : TaskEnd{};
  to_forget_.insert(task);
  if (slices.empty()) live_.erase(task);
  parts_.engine.record(TaskExited{task, end.cause, end.code, end.signal});
  for (const Slice& slice : slices) parts_.releases.watch(task, slice);
}

// Told once more of a task that has ended, by a launcher that has come back. While its end is not durable the
// launcher's record is all that says that it ran: a daemon that dies then would run it again.
void TaskRunner::forget_if_settled(const TaskKey& task) {
  if (!to_forget_.contains(task)) parts_.host.forget(task);
}

void TaskRunner::forget_when_durable(const TaskKey& task) {
  if (to_forget_.erase(task) != 0) parts_.host.forget(task);
}

// --- restart
// ---------------------------------------------------------------------------------------------------

void TaskRunner::resume(bool rebooted) {
  rebooted_ = rebooted;
  parts_.sessions.on_arrival([this](JobId job) {
    for (auto& [task, live] : live_) {
      if (task.job == job && !live.sent && reconciled_) return send_start(task);
    }
  });
  restore_holders();
  restore_live_tasks();
  if (parts_.host.is_connected()) on_connected();
}

// Whatever holds a GPU. What is not a task of its job's present attempt has ended, and only its slices are
// left.
void TaskRunner::restore_holders() {
  for (const auto& view : parts_.engine.scheduler().gpus()) {
    for (const TaskKey& task : view.tasks) {
      const JobRecord* job = parts_.engine.jobs().find(task.job);
      Live& live = live_[task];
      live.durable = live.started = live.ended = true;
      Slice slice;
      slice.gpu = view.gpu->id;
      if (job != nullptr) slice.kind = job->spec->task.gpu.kind;
      live.slices.push_back(slice);
    }
  }
}

void TaskRunner::restore_live_tasks() {
  for (const JobId id : parts_.engine.scheduler().live_jobs()) {
    const auto view = parts_.engine.scheduler().job(id);
    const JobRecord* job = parts_.engine.jobs().find(id);
    if (!view || job == nullptr) continue;
    // The daemon that held its client is gone; the client may come back through attach.
    if (view->spec->interactive && view->tasks.empty()) parts_.sessions.expect(id);
    for (const Start& start : view->tasks) {
      const auto entry = std::find_if(job->tasks.begin(), job->tasks.end(),
                                      [&](const TaskEntry& task) { return task.key == start.task; });
      if (entry == job->tasks.end() || entry->ended.is_set()) continue;
      Live& live = live_[start.task];
      live.slices = start.slices;
      live.durable = true;  // it was read from the journal
      live.started = entry->started.is_set();
      live.stopping = entry->state == JobState::stopping;
      live.ended = false;
    }
  }
}

void TaskRunner::on_connected() {
  // What is decided from here until the list is here would be missing in it: it is started by reconcile().
  reconciled_ = false;
  parts_.host.list([this](Result<std::vector<TaskRecord>> records) {
    if (!records) {
      log(LogLevel::error, "task_list_failed", {{"error", records.error()}});
      return;
    }
    reconcile(*records);
  });
}

void TaskRunner::reconcile(const std::vector<TaskRecord>& records) {
  std::map<TaskKey, const TaskRecord*> by_task;
  for (const TaskRecord& record : records) {
    by_task[record.task] = &record;
    parts_.engine.jobs().skip_ids_through(record.task.job);
  }
  reconciled_ = has_reconciled_ = true;

  stale_.clear();
  for (const TaskRecord& record : records) end_if_stale(record);

  std::vector<TaskKey> tasks;
  for (const auto& [task, live] : live_) tasks.push_back(task);
  for (const TaskKey& task : tasks) {
    if (stale_.contains(task)) continue;
    const auto record = by_task.find(task);
    const bool known = record != by_task.end() && !is_stale(*record->second);
    if (Live* live = find(task)) reconcile_task(task, *live, known ? record->second : nullptr);
  }
  rebooted_ = false;  // what the last boot left is settled
  if (on_reconciled_) std::exchange(on_reconciled_, {})();
}

// A task that was prepared for a Start which never became durable: it did not run and must not. Its key may
// be in use again, for another Start of the same attempt on other GPUs.
bool TaskRunner::is_stale(const TaskRecord& record) const {
  const auto live = live_.find(record.task);
  if (live == live_.end()) return !to_forget_.contains(record.task);
  if (live->second.ended) return false;
  std::vector<uint32_t> minors;
  for (const Slice& slice : live->second.slices) {
    if (const Gpu* gpu = parts_.gpus.find(slice.gpu)) minors.push_back(gpu->minor);
  }
  std::sort(minors.begin(), minors.end());
  return minors != record.gpu_minors;
}

void TaskRunner::end_if_stale(const TaskRecord& record) {
  if (!is_stale(record)) return;
  if (record.all_gone) return parts_.host.forget(record.task);
  stale_.insert(record.task);
  parts_.host.kill(record.task, Duration{});
}

void TaskRunner::reconcile_task(const TaskKey& task, Live& live, const TaskRecord* record) {
  if (live.ended) {
    if (record != nullptr && record->all_gone) forget_if_settled(task);
    const std::vector<Slice> slices = live.slices;
    for (const Slice& slice : slices) {
      // The log knows which slices are released already.
      const auto gpus = parts_.engine.scheduler().gpus();
      const bool held = std::any_of(gpus.begin(), gpus.end(), [&](const auto& view) {
        return view.gpu->id == slice.gpu &&
               std::find(view.tasks.begin(), view.tasks.end(), task) != view.tasks.end();
      });
      if (held) parts_.releases.watch(task, slice);
    }
    return;
  }
  if (record == nullptr) return settle_lost(task, live);
  live.sent = true;
  switch (record->state) {
    case TaskRecord::State::preparing:
      break;
    case TaskRecord::State::prepared:
      if (live.stopping) return parts_.host.kill(task, Duration{});
      // A go that was sent has been lost with the launcher, or is a second one now: a shepherd obeys one.
      live.went = false;
      return on_prepared(task);
    case TaskRecord::State::running:
      live.prepared = live.went = true;
      parts_.engine.jobs().set_pid(task, record->pid);  // the log has no pids
      on_started(task, record->pid);
      // It may have been changed while nobody could tell the root side.
      if (const JobRecord* job = parts_.engine.jobs().find(task.job);
          job != nullptr && record->time_limit != time_limit_of(task, *job)) {
        parts_.host.set_time_limit(task, time_limit_of(task, *job));
      }
      set_gpu_memory(task.job);
      if (Live* still = find(task); still != nullptr && still->stopping) stop(task);
      break;
    case TaskRecord::State::start_failed:
      return on_start_failed(task, record->failure);
    case TaskRecord::State::exited:
      on_exited(task, record->end);
      if (record->all_gone) on_all_gone(task);
      break;
  }
}

// The root side has no record of it. A record is written before a task executes and outlives everything but
// a reboot; so without a reboot it never executed, and may be started (design section 13, attempts).
void TaskRunner::settle_lost(const TaskKey& task, Live& live) {
  if (rebooted_ || live.started) {
    live.has_end = true;
    live.end = TaskEnd{};
    live.end.cause = rebooted_ ? ExitCause::node_failed : ExitCause::lost;
    return record_end(task, live);
  }
  if (live.stopping) return refuse_start(task, "cancelled before it started", true);
  live.sent = live.prepared = live.went = false;
  send_start(task);
}

}  // namespace tranche::machine
