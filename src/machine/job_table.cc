#include "machine/job_table.h"

#include <set>
#include <utility>

#include "codec/sweep.h"

namespace tranche::machine {
namespace {

constexpr size_t kHistoryMax = 64;  // an endless requeue must not grow a record for ever

std::string stop_reason(const Stop& stop) {
  const std::string beneficiary =
      stop.beneficiary.is_set() ? " to make room for job " + std::to_string(stop.beneficiary.value()) : "";
  switch (stop.reason) {
    case StopReason::cancelled:
      return "cancelled";
    case StopReason::preempted:
      return "preempted by higher priority in its queue" + beneficiary;
    case StopReason::reclaimed:
      return "reclaimed by a queue that is owed its share" + beneficiary;
    case StopReason::gang:
      return "another task of the job ended";
    case StopReason::node_failed:
      return "its GPU or machine failed";
    case StopReason::requeued:
      return "another attempt was asked for";
    case StopReason::retried:
      return "it failed";
    case StopReason::consolidated:
      return "it starts again elsewhere" + beneficiary;
    case StopReason::stale:
      return "it ran with fewer tasks than it needs";
  }
  return "";
}

// Why a job waits again: what ended the attempt that failed, or who stopped it.
std::string requeue_reason(const JobRecord& job, const Requeue& requeue) {
  const TaskEntry* task = job.telling_task();
  // It was told when it was stopped, and by whom.
  const bool was_asked = requeue.reason == StopReason::requeued && job.state == JobState::stopping;
  if (was_asked && !job.reason.empty()) return job.reason;
  if (requeue.reason != StopReason::retried || task == nullptr) return stop_reason({{}, requeue.reason, {}});
  const std::string attempt = "attempt " + std::to_string(requeue.attempt - 1);
  switch (task->cause) {
    case ExitCause::out_of_memory:
      return attempt + " ran out of memory";
    case ExitCause::signalled:
      return attempt + " was ended by signal " + std::to_string(task->signal);
    case ExitCause::exited:
      return attempt + " failed with exit code " + std::to_string(task->code);
    case ExitCause::time_limit:
    case ExitCause::killed:
    case ExitCause::node_failed:
    case ExitCause::lost:
      break;
  }
  return attempt + " lost its GPU or machine";
}

bool is_still_waiting(const JobRecord& job) {
  return job.state == JobState::pending || job.state == JobState::held;
}

// "task 2", "tasks 1, 2 and 3".
std::string tasks_text(std::vector<uint32_t> ranks) {
  std::sort(ranks.begin(), ranks.end());
  std::string text = ranks.size() == 1 ? "task " : "tasks ";
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (i > 0) text += i + 1 == ranks.size() ? " and " : ", ";
    text += std::to_string(ranks[i]);
  }
  return text;
}

std::string range_text(uint64_t got, uint32_t least, uint32_t most, const char* what) {
  return std::to_string(got) + " of " + std::to_string(least) + " to " + std::to_string(most) + what;
}

// Why a job that takes what is free got no more; "" for one that takes a fixed amount, or got all.
std::string extent_reason(const JobTable& jobs, const JobRecord& job, const scheduler::Scheduler& live) {
  const JobSpec& spec = *job.spec;
  const GpuRequest& gpu = spec.task.gpu;
  const bool takes_gpus = gpu.is_moldable() && !job.tasks.empty();
  if (!takes_gpus && spec.tasks_max <= spec.tasks_min) return "";
  const uint64_t got = takes_gpus ? job.tasks.front().slices.size() : job.tasks.size();
  const std::string text = takes_gpus ? range_text(got, gpu.count, gpu.count_max, " GPUs")
                                      : range_text(got, spec.tasks_min, spec.tasks_max, " tasks");
  if (got >= (takes_gpus ? gpu.count_max : spec.tasks_max)) return text;
  if (spec.elastic) return text + ", and more when there is room";
  std::set<JobId> holders;
  for (const scheduler::GpuView& view : live.gpus()) {
    if (!accepts_type(gpu.type, view.gpu->type)) continue;
    for (const TaskKey& task : view.tasks) holders.insert(task.job);
  }
  holders.erase(job.id);
  if (holders.empty()) return text + ": its queue may use no more, or the rest was kept for others";
  std::string names;
  for (const JobId id : holders) names += (names.empty() ? "" : ", ") + jobs.display(id);
  return text + ": others were held by " + (holders.size() == 1 ? "job " : "jobs ") + names;
}

}  // namespace

std::string JobRecord::element_name() const { return api::element_name(name, array_index); }

std::string JobRecord::display() const {
  if (!array.is_set()) return std::to_string(id.value());
  return std::to_string(array.value()) + "_" + std::to_string(array_index);
}

std::string JobTable::display(JobId id) const {
  const JobRecord* const job = find(id);
  return job == nullptr ? std::to_string(id.value()) : job->display();
}

const TaskEntry* JobRecord::telling_task() const {
  const TaskEntry* telling = nullptr;
  for (const TaskEntry& task : tasks) {
    if (!task.has_end) continue;
    const bool failed = task.cause != ExitCause::exited || task.code != 0;
    // Tasks that were killed because another one failed do not tell why the job ended.
    const bool better =
        telling == nullptr || (failed && task.cause != ExitCause::killed &&
                               (telling->cause == ExitCause::killed || task.ended < telling->ended ||
                                (telling->cause == ExitCause::exited && telling->code == 0)));
    if (better) telling = &task;
  }
  return telling;
}

void JobTable::apply(const Event& event, std::span<const Decision> decisions,
                     const scheduler::Scheduler& live) {
  std::set<JobId> touched;
  std::map<JobId, std::string> reasons;
  const auto touch = [&](JobId job) {
    if (job.is_set()) touched.insert(job);
  };
  const auto touch_all = [&](const auto& change, const char* verb) {
    for (uint64_t i = 0; i <= change.more; ++i) {
      const JobId job(change.job.value() + i);
      touch(job);
      reasons[job] = verb + change.by;
    }
  };

  if (const auto* submitted = std::get_if<JobSubmitted>(&event.payload)) {
    submit(event, *submitted);
    const size_t count = std::max<size_t>(1, submitted->array.indices.size());
    for (size_t i = 0; i < count; ++i) touch(JobId(submitted->job.value() + i));
  } else if (const auto* cancelled = std::get_if<JobCancelled>(&event.payload)) {
    touch_all(*cancelled, "cancelled by ");
    if (!cancelled->reason.empty()) reasons[cancelled->job] = cancelled->reason;
  } else if (const auto* fault = std::get_if<GpuFaulted>(&event.payload)) {
    for (const JobId id : fault->jobs) {
      if (JobRecord* job = find(id)) job->fault = JobFault{event.time, fault->gpu, fault->xid};
    }
  } else if (const auto* held = std::get_if<JobHeld>(&event.payload)) {
    touch_all(*held, "held by ");
  } else if (const auto* released = std::get_if<JobReleased>(&event.payload)) {
    touch_all(*released, "released by ");
  } else if (const auto* updated = std::get_if<JobUpdated>(&event.payload)) {
    JobRecord* job = find(updated->job);
    const auto view = live.job(updated->job);
    if (job != nullptr && !updated->payload_hash.empty()) job->name.clear();  // it comes with the payload
    if (job != nullptr && view) {
      job->spec = std::make_shared<const JobSpec>(*view->spec);
      for (const Start& start : view->tasks) {
        if (TaskEntry* task = find_task(start.task)) task->slices = start.slices;
      }
    }
    touch(updated->job);
  } else if (const auto* requeued = std::get_if<JobRequeued>(&event.payload)) {
    touch(requeued->job);
    reasons[requeued->job] =
        requeued->reason.empty() ? "another attempt was asked for by " + requeued->by : requeued->reason;
  } else if (const auto* started = std::get_if<TaskStarted>(&event.payload)) {
    touch(started->task.job);
    if (TaskEntry* task = find_task(started->task)) {
      // One that was told to stop before it could start is on its way out.
      if (task->state != JobState::stopping) task->state = JobState::running;
      task->started = event.time;
      JobRecord* job = find(started->task.job);
      if (!job->started.is_set()) job->started = event.time;
    }
  } else if (const auto* failed = std::get_if<TaskStartFailed>(&event.payload)) {
    touch(failed->task.job);
    // A job that was told to stop has its reason.
    const JobRecord* job = find(failed->task.job);
    if (job != nullptr && job->state == JobState::stopping) {
      reasons[failed->task.job] = job->reason;
    } else {
      reasons[failed->task.job] = "could not start: " + failed->reason;
    }
    if (TaskEntry* task = find_task(failed->task)) {
      task->state = JobState::failed;
      task->ended = event.time;
      task->code = failed->code;
      task->has_end = failed->code != 0;  // else nothing is known but that it never ran
    }
  } else if (const auto* exited = std::get_if<TaskExited>(&event.payload)) {
    touch(exited->task.job);
    end_task(event, exited->task, exited->cause, exited->code, exited->signal);
    const JobRecord* job = find(exited->task.job);
    if (exited->cause == ExitCause::killed && job != nullptr && job->state == JobState::running) {
      reasons[exited->task.job] = "ended because its client went away";  // nobody had decided to stop it
    }
  }

  std::map<JobId, Resized> resized;
  std::set<JobId> fresh;
  for (const Decision& decision : decisions) {
    if (const auto* starting = std::get_if<Start>(&decision)) {
      touch(starting->task.job);
      if (const JobRecord* job = find(starting->task.job)) {
        if (is_still_waiting(*job)) fresh.insert(job->id);
        if (job->spec->elastic && !is_still_waiting(*job))
          resized[job->id].joined.push_back(starting->task.rank);
      }
      start(*starting);
    } else if (const auto* stop = std::get_if<Stop>(&decision)) {
      touch(stop->task.job);
      if (const JobRecord* job = find(stop->task.job); job != nullptr && job->spec->elastic) {
        resized[job->id].taken.push_back(stop->task.rank);
        resized[job->id].why = stop_reason(*stop);
      }
      reasons.emplace(stop->task.job, stop_reason(*stop));
      if (TaskEntry* task = find_task(stop->task)) task->state = JobState::stopping;
    } else if (const auto* requeue = std::get_if<Requeue>(&decision)) {
      touch(requeue->job);
      if (JobRecord* job = find(requeue->job)) {
        job->attempt = requeue->attempt;
        job->started = Time();
        const auto told = reasons.extract(requeue->job);
        change(*job, event.time, JobState::pending,
               told ? told.mapped() : "waits again: " + requeue_reason(*job, *requeue));
      }
    } else if (const auto* end = std::get_if<End>(&decision)) {
      touch(end->job);
      if (JobRecord* job = find(end->job)) {
        // Who had it stopped, and why, holds for its end.
        const bool was_stopped = end->state == JobState::cancelled && job->state == JobState::stopping;
        if (!reasons.contains(end->job))
          reasons[end->job] = was_stopped ? job->reason : reason_of_doom(*job, end->state);
        change(*job, event.time, end->state, reasons[end->job]);
        job->ended = event.time;
        job->request = nullptr;
      }
    }
  }

  for (const JobId id : fresh) {
    if (std::string extent = extent_reason(*this, *find(id), live); !extent.empty())
      reasons[id] = std::move(extent);
  }
  for (const JobId id : touched) {
    JobRecord* job = find(id);
    if (job == nullptr || is_final(job->state)) continue;
    const auto view = live.job(id);
    if (!view) continue;
    job->attempt = view->attempt;
    const auto reason = reasons.find(id);
    change(*job, event.time, view->state, reason == reasons.end() ? "" : reason->second);
    if (const auto found = resized.find(id); found != resized.end())
      note_size(*job, event.time, found->second);
  }
  if (const auto* fault = std::get_if<GpuFaulted>(&event.payload))
    touched.insert(fault->jobs.begin(), fault->jobs.end());
  for (const JobId id : touched) {
    if (jobs_.contains(id) && !live_.contains(id)) ended_.push_back(id);
  }
}

// An elastic job that goes on with more tasks or fewer: its state stays, and what happened is told.
void JobTable::note_size(JobRecord& job, Time time, const Resized& resized) {
  if (job.state != JobState::running && job.state != JobState::starting) return;
  const auto left = std::count_if(job.tasks.begin(), job.tasks.end(), [](const TaskEntry& task) {
    return !task.ended.is_set() && task.state != JobState::stopping;
  });
  std::string text =
      range_text(static_cast<uint64_t>(left), job.spec->tasks_min, job.spec->tasks_max, " tasks");
  if (!resized.taken.empty()) {
    text += ": " + tasks_text(resized.taken) + (resized.taken.size() == 1 ? " was " : " were ") + resized.why;
  }
  if (!resized.joined.empty())
    text += ": " + tasks_text(resized.joined) + (resized.joined.size() == 1 ? " joins" : " join");
  job.reason = std::move(text);
  remember(job, time);
}

void JobTable::remember(JobRecord& job, Time time) {
  if (job.history.size() == kHistoryMax) job.history.erase(job.history.begin() + 1);
  job.history.push_back({time, job.state, job.reason});
}

// A waiting job that ends without anybody asking: a job that it depends on ended otherwise than it needed.
std::string JobTable::reason_of_doom(const JobRecord& job, JobState state) const {
  if (state != JobState::cancelled || !job.tasks.empty()) return "";
  for (const Dependency& dependency : job.spec->dependencies) {
    const JobRecord* other = find(dependency.job);
    if (other == nullptr || !is_final(other->state)) continue;
    const bool completed = other->state == JobState::completed;
    const bool doomed = (dependency.kind == DependencyKind::after_ok && !completed) ||
                        (dependency.kind == DependencyKind::after_not_ok && completed) ||
                        (dependency.kind == DependencyKind::after_start && !other->started.is_set());
    if (!doomed) continue;
    return "its dependency can never be met: " + std::string(to_string(dependency.kind)) + " job " +
           other->display() + ", which ended as " + std::string(to_string(other->state));
  }
  return "";
}

void JobTable::submit(const Event& event, const JobSubmitted& submitted) {
  const auto spec = std::make_shared<const JobSpec>(submitted.spec);
  const size_t count = std::max<size_t>(1, submitted.array.indices.size());
  for (size_t i = 0; i < count; ++i) {
    JobRecord job;
    job.id = JobId(submitted.job.value() + i);
    if (!submitted.array.indices.empty()) {
      job.array = ArrayId(submitted.job.value());
      job.array_index = submitted.array.indices[i];
      job.array_count = static_cast<uint32_t>(count);
    }
    job.spec = spec;
    job.submitted = event.time;
    const auto [place, is_new] = jobs_.try_emplace(job.id);
    if (!is_new) --count_of(place->second.state);
    ++count_of(job.state);
    place->second = std::move(job);
    live_.insert(place->first);
  }
  skip_ids_through(JobId(submitted.job.value() + count - 1));
}

void JobTable::change(JobRecord& job, Time time, JobState state, std::string reason) {
  if (job.state == state && !job.history.empty()) return;
  --count_of(job.state);
  ++count_of(state);
  job.state = state;
  if (is_final(state)) live_.erase(job.id);
  job.reason = std::move(reason);
  remember(job, time);
}

void JobTable::start(const Start& start) {
  JobRecord* job = find(start.task.job);
  if (job == nullptr) return;
  // What joins an elastic job that runs leaves the others, whatever their attempts.
  const bool joins = job->spec->elastic && !is_still_waiting(*job);
  if (!joins && !job->tasks.empty() && job->tasks.front().key.attempt != start.task.attempt)
    job->tasks.clear();
  if (!joins) job->first_attempt = start.task.attempt;
  TaskEntry task;
  task.key = start.task;
  task.node = start.node;
  task.slices = start.slices;
  if (!joins) {
    job->tasks.push_back(std::move(task));
    return;
  }
  std::erase_if(job->tasks, [&](const TaskEntry& each) { return each.key.rank == start.task.rank; });
  const auto place = std::find_if(job->tasks.begin(), job->tasks.end(),
                                  [&](const TaskEntry& each) { return each.key.rank > start.task.rank; });
  job->tasks.insert(place, std::move(task));
}

void JobTable::end_task(const Event& event, const TaskKey& key, ExitCause cause, int32_t code,
                        int32_t signal) {
  TaskEntry* task = find_task(key);
  if (task == nullptr) return;
  task->has_end = true;
  task->ended = event.time;
  task->cause = cause;
  task->code = code;
  task->signal = signal;
  task->pid = 0;
  switch (cause) {
    case ExitCause::exited:
      task->state = code == 0 ? JobState::completed : JobState::failed;
      break;
    case ExitCause::signalled:
      task->state = JobState::failed;
      break;
    case ExitCause::time_limit:
      task->state = JobState::timed_out;
      break;
    case ExitCause::killed:
      task->state = JobState::cancelled;
      break;
    case ExitCause::out_of_memory:
      task->state = JobState::out_of_memory;
      break;
    case ExitCause::node_failed:
      task->state = JobState::node_failed;
      break;
    case ExitCause::lost:
      task->state = JobState::unknown;
      break;
  }
}

std::vector<JobId> JobTable::take_ended() {
  std::sort(ended_.begin(), ended_.end());
  ended_.erase(std::unique(ended_.begin(), ended_.end()), ended_.end());
  return std::exchange(ended_, {});
}

void JobTable::put_back_ended(std::vector<JobId> jobs) {
  ended_.insert(ended_.end(), jobs.begin(), jobs.end());
}

std::vector<std::string> JobTable::payloads_without_name() const {
  std::set<std::string> hashes;
  for (const auto& [id, job] : jobs_) {
    if (job.name.empty()) hashes.insert(job.spec->payload_hash);
  }
  return {hashes.begin(), hashes.end()};
}

void JobTable::set_names(const std::unordered_map<std::string, std::string>& name_by_payload) {
  for (auto& [id, job] : jobs_) {
    if (!job.name.empty()) continue;
    const auto name = name_by_payload.find(job.spec->payload_hash);
    if (name != name_by_payload.end()) job.name = name->second;
  }
}

void JobTable::set_request(JobId first, uint32_t count, const std::string& name, RequestPointer request) {
  for (uint32_t i = 0; i < count; ++i) {
    if (JobRecord* job = find(JobId(first.value() + i))) {
      job->name = name;
      job->request = request;
    }
  }
}

void JobTable::set_pid(const TaskKey& task, int32_t pid) {
  if (TaskEntry* entry = find_task(task)) entry->pid = pid;
}

JobRecord* JobTable::find(JobId id) {
  const auto job = jobs_.find(id);
  return job == jobs_.end() ? nullptr : &job->second;
}

const JobRecord* JobTable::find(JobId id) const {
  const auto job = jobs_.find(id);
  return job == jobs_.end() ? nullptr : &job->second;
}

TaskEntry* JobTable::find_task(const TaskKey& key) {
  JobRecord* job = find(key.job);
  if (job == nullptr) return nullptr;
  for (TaskEntry& task : job->tasks) {
    if (task.key == key) return &task;
  }
  return nullptr;
}

}  // namespace tranche::machine
