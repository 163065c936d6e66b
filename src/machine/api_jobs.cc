#include <algorithm>

#include "base/quantity_text.h"
#include "base/utf8.h"
#include "linux/digest.h"
#include "linux/log.h"
#include "machine/admission.h"
#include "machine/api_server.h"
#include "machine/least_part.h"

namespace tranche::machine {

struct ApiServer::Submission {
  AdmittedJob job;
  RequestPointer request;
  StoredPayload payload;
  std::optional<IdempotencyKey> idempotency;
};

namespace {

constexpr size_t kIdempotencyKeyMax = 128;
constexpr Duration kWaitMax = kHour;
// Whoever submits into a long line is told the place in it; a forecast each would be most of the work of
// taking a job in. GET .../why has it for every place.
constexpr uint32_t kForecastPlaces = 8;

Result<std::optional<IdempotencyKey>> idempotency_key(const HttpRequest& request, uint32_t uid) {
  const std::string* key = request.header("Idempotency-Key");
  if (key == nullptr) return std::optional<IdempotencyKey>();
  if (key->empty() || key->size() > kIdempotencyKeyMax) {
    return fail(ErrorCode::invalid_argument, "an Idempotency-Key has 1 to 128 characters");
  }
  return std::optional<IdempotencyKey>(IdempotencyKey{uid, *key});
}

}  // namespace

InteractiveSessions::Terminal terminal_size(const HttpRequest& request) {
  InteractiveSessions::Terminal terminal;
  const std::string* text = request.header("Tranche-Terminal-Size");
  const size_t cross = text == nullptr ? std::string::npos : text->find('x');
  if (cross == std::string::npos) return terminal;
  const auto rows = parse_integer(std::string_view(*text).substr(0, cross), 1, 10'000, "number of rows");
  const auto columns =
      parse_integer(std::string_view(*text).substr(cross + 1), 1, 10'000, "number of columns");
  if (rows && columns) {
    terminal.rows = static_cast<uint16_t>(*rows);
    terminal.columns = static_cast<uint16_t>(*columns);
  }
  return terminal;
}

// Whether a program could start in the parts of GPUs that the job asks for.
Result<void> ApiServer::check_parts(const JobSpec& spec) const {
  std::vector<const GpuRequest*> parts;
  if (spec.groups.empty() && spec.task.gpu.kind == SliceKind::fraction) parts.push_back(&spec.task.gpu);
  for (const TaskGroup& group : spec.groups) {
    if (group.tasks_max > 0 && group.task.gpu.kind == SliceKind::fraction) parts.push_back(&group.task.gpu);
  }
  if (parts.empty()) return {};
  std::vector<const Gpu*> gpus;
  for (const auto& view : parts_.engine.scheduler().gpus()) gpus.push_back(view.gpu);
  const std::vector<MiB> contexts = context_sizes(parts_.config.run_dir, gpus);
  for (const GpuRequest* part : parts) TRY(check_least_part(*part, gpus, contexts));
  return {};
}

Result<ApiServer::Submission> ApiServer::prepare_submission(Call& call, bool interactive) {
  if (parts_.observation != nullptr) {
    return fail(
        ErrorCode::denied,
        "Tranche only observes on this machine (daemon.mode is \"observe\"), so it takes no job: start the "
        "command by itself; 'tranche share' shows who has used how much");
  }
  if (!parts_.engine.journal().trouble().empty()) {
    return fail(ErrorCode::storage_full,
                "no job can be taken now, since it could not be kept: " + parts_.engine.journal().trouble() +
                    "; free some space in the state directory");
  }
  if (!parts_.may_submit()) {
    return fail(ErrorCode::unavailable,
                "the daemon is waiting for tranche-launcher, which starts the jobs: try again "
                "in a moment; `tranche doctor` tells more");
  }
  TRY_ASSIGN(api::SubmitRequest request, api::decode<api::SubmitRequest>(call.request.body));
  Submission submission;
  const scheduler::Scheduler& scheduler = parts_.engine.scheduler();
  TRY_ASSIGN(submission.job, admit(request, call.caller, scheduler.policy(), interactive));
  TRY(scheduler.check(submission.job.spec, submission.job.array));
  if (!request.notify.empty()) {
    if (hooks_ == nullptr) return fail(ErrorCode::not_available_yet, "this daemon tells nobody of jobs");
    TRY(hooks_->check(request.notify));
  }
  TRY(check_parts(submission.job.spec));
  if (submission.job.spec.task.gpu.kind == SliceKind::fraction && parts_.gpus.whole_only()) {
    return fail(ErrorCode::invalid_argument,
                "this machine's GPUs are virtual ones (vGPU) and can be given whole only: ask for -G 1");
  }
  TRY_ASSIGN(submission.idempotency, idempotency_key(call.request, call.caller.uid));
  submission.payload.content = api::encode(request);
  submission.payload.hash = sha256_hex(submission.payload.content);
  submission.payload.name = submission.job.name;
  submission.job.spec.payload_hash = submission.payload.hash;
  submission.request = std::make_shared<const api::SubmitRequest>(std::move(request));
  return submission;
}

void ApiServer::record_submission(Submission submission, std::function<void(JobId)> durable) {
  const JobId job = parts_.engine.jobs().next_id();
  const bool repeatable = submission.idempotency.has_value();
  if (repeatable) {
    answered_[{submission.idempotency->uid, submission.idempotency->key}] = job;
    undurable_[job];
  }
  Engine::Attachment attachment;
  attachment.payload = std::move(submission.payload);
  attachment.idempotency = std::move(submission.idempotency);
  attachment.request = std::move(submission.request);
  attachment.durable = [this, job, repeatable, durable = std::move(durable)] {
    if (durable) durable(job);
    if (!repeatable) return;
    const auto repeats = undurable_.extract(job);
    for (Responder& repeat : repeats.mapped()) answer_submitted(std::move(repeat), job);
  };
  parts_.engine.record(JobSubmitted{job, std::move(submission.job.spec), std::move(submission.job.array)},
                       std::move(attachment));
}

void ApiServer::submit(Call& call) {
  auto submission = prepare_submission(call, false);
  if (!submission) return call.responder.respond(submission.error());
  if (const std::string* dry = call.request.query_value("dry_run"); dry != nullptr && *dry == "true") {
    return dry_run(call, *submission);
  }
  if (submission->idempotency) {
    const auto answered = answered_.find({submission->idempotency->uid, submission->idempotency->key});
    if (answered != answered_.end()) {
      const JobRecord* job = parts_.engine.jobs().find(answered->second);
      if (job != nullptr && job->spec->payload_hash != submission->payload.hash) {
        return call.responder.respond(
            Error(ErrorCode::conflict, "this Idempotency-Key belongs to job " + job->display() +
                                           ", which is a different one: use another key"));
      }
      const auto undurable = undurable_.find(answered->second);
      if (undurable == undurable_.end()) return answer_submitted(std::move(call.responder), answered->second);
      return undurable->second.push_back(std::move(call.responder));
    }
  }
  auto responder = std::make_shared<Responder>(std::move(call.responder));
  record_submission(std::move(*submission),
                    [this, responder](JobId job) { answer_submitted(std::move(*responder), job); });
}

void ApiServer::dry_run(Call& call, const Submission& submission) {
  api::DryRunResponse answer;
  answer.forecast = parts_.engine.scheduler().forecast(submission.job.spec);
  answer.would_start = answer.forecast.known && answer.forecast.start <= parts_.engine.now();
  answer.reason = answer.would_start                                           ? "it would start at once"
                  : has_room_beside_others(view_source(), submission.job.spec) ? std::string(kUsersDoNotMeet)
                  : answer.forecast.known                                      ? "there is no room for it now"
                                          : "when it starts cannot be told from time limits";
  call.responder.respond(json_response(200, api::encode(answer)));
}

void ApiServer::answer_submitted(Responder responder, JobId id) {
  const JobRecord* job = parts_.engine.jobs().find(id);
  if (job == nullptr) return responder.respond(Error(ErrorCode::internal, "the job was lost: report this"));
  api::SubmitResponse answer;
  answer.job = id;
  if (job->array.is_set()) answer.array = api::ArrayRange{id, job->array_count};
  answer.state = job->state;
  if (job->state == JobState::pending || job->state == JobState::held) {
    if (auto why = parts_.engine.scheduler().why(id, kForecastPlaces)) answer.explanation = std::move(*why);
  }
  responder.respond(json_response(201, api::encode(answer)));
}

void ApiServer::run(Call& call) {
  if (!call.request.wants_upgrade(kAttachProtocol)) {
    return call.responder.respond(Error(
        ErrorCode::invalid_argument, "a foreground job needs `Upgrade: tranche-attach`: use `tranche run`"));
  }
  auto submission = prepare_submission(call, true);
  if (!submission) return call.responder.respond(submission.error());
  InteractiveSessions::Terminal terminal = terminal_size(call.request);
  terminal.wanted = submission->request->pty;
  parts_.sessions.expect(parts_.engine.jobs().next_id());
  auto responder = std::make_shared<Responder>(std::move(call.responder));
  // The client hears of its job once a restart would know it too.
  record_submission(std::move(*submission), [this, responder, terminal](JobId job) {
    (void)responder->upgrade(kAttachProtocol, {{"Tranche-Job", std::to_string(job.value())}},
                             [this, job, terminal](UniqueFd client, const std::string&) {
                               parts_.sessions.add(job, std::move(client), terminal);
                             });
  });
}

void ApiServer::attach(Call& call) {
  JobRecord* job = find_job(call);
  if (job == nullptr) return;
  if (job->spec->owner.uid != call.caller.uid) {
    return deny(
        call, Denied::attach, "job", std::to_string(job->id.value()),
        "job " + job->display() + " belongs to " + job->spec->owner.user + ": only the owner may attach");
  }
  if (is_final(job->state) || !job->spec->interactive) {
    return call.responder.respond(
        Error(ErrorCode::conflict, "job " + job->display() + " has no terminal to attach to"));
  }
  const JobId id = job->id;
  const TaskKey task{id, 0, job->attempt};
  const bool waits = job->tasks.empty();
  (void)call.responder.upgrade(kAttachProtocol, {{"Tranche-Job", std::to_string(id.value())}},
                               [this, id, task, waits](UniqueFd client, const std::string&) {
                                 if (waits) return parts_.sessions.add(id, std::move(client), {});
                                 parts_.tasks.attach(task, std::move(client), [](Result<void>) {});
                               });
}

JobRecord* ApiServer::find_job(Call& call) {
  const auto id = parse_integer(call.parameters.at(0), 1, INT64_MAX / 2, "job id");
  if (!id) {
    call.responder.respond(id.error());
    return nullptr;
  }
  JobRecord* job = parts_.engine.jobs().find(JobId(static_cast<uint64_t>(*id)));
  if (job == nullptr) {
    call.responder.respond(
        Error(ErrorCode::not_found, "there is no job " + call.parameters[0] + ": `tranche ls -a` lists all"));
  }
  return job;
}

void ApiServer::answer_job(Responder responder, JobId id, const Caller& caller) {
  const JobRecord* job = parts_.engine.jobs().find(id);
  responder.respond(json_response(200, api::encode(job_summary(view_source(), *job, caller, true))));
}

void ApiServer::show_job(Call& call) {
  const JobRecord* job = find_job(call);
  if (job == nullptr) return;
  if (!call.caller.may_control(job->spec->owner.uid)) {
    const auto detail = job_detail(view_source(), *job, call.caller, nullptr);
    return call.responder.respond(json_response(200, api::encode(detail)));
  }
  if (job->request) {
    const auto detail = job_detail(view_source(), *job, call.caller, job->request.get());
    return call.responder.respond(json_response(200, api::encode(detail)));
  }
  auto responder = std::make_shared<Responder>(std::move(call.responder));
  parts_.engine.journal().read_payload(
      job->spec->payload_hash,
      [this, responder, id = job->id, caller = call.caller](Result<std::string> content) {
        auto request = content ? api::decode<api::SubmitRequest>(*content)
                               : Result<api::SubmitRequest>(fail(content.error().clone()));
        const JobRecord* record = parts_.engine.jobs().find(id);
        const auto detail = job_detail(view_source(), *record, caller, request ? &*request : nullptr);
        responder->respond(json_response(200, api::encode(detail)));
      });
}

void ApiServer::why(Call& call) {
  const JobRecord* job = find_job(call);
  if (job == nullptr) return;
  if (auto explanation = explain(view_source(), *job)) {
    return call.responder.respond(json_response(200, api::encode(*explanation)));
  }
  Explanation ended;
  ended.job = job->id;
  ended.state = job->state;
  const std::string reason = job_summary(view_source(), *job, call.caller, true).reason.value_or("");
  ended.reason = "It has ended: " + std::string(to_string(job->state)) +
                 (reason.empty() ? "" : " (" + reason + ")") + ".";
  call.responder.respond(json_response(200, api::encode(ended)));
}

JobRecord* ApiServer::find_job_to_change(Call& call, Denied verb) {
  JobRecord* job = find_job(call);
  if (job == nullptr || call.caller.may_control(job->spec->owner.uid)) return job;
  deny(call, verb, "job", std::to_string(job->id.value()),
       "job " + job->display() + " belongs to " + job->spec->owner.user +
           ": only the owner and operators may do that");
  return nullptr;
}

void ApiServer::record_change(Call& call, JobId job, EventPayload payload, Engine::Attachment attachment) {
  auto responder = std::make_shared<Responder>(std::move(call.responder));
  attachment.durable = [this, responder, job, caller = call.caller] {
    answer_job(std::move(*responder), job, caller);
  };
  parts_.engine.record(std::move(payload), std::move(attachment));
}

void ApiServer::change_job(Call& call, Denied verb,
                           const std::function<Result<EventPayload>(const JobRecord&)>& make) {
  const JobRecord* job = find_job_to_change(call, verb);
  if (job == nullptr) return;
  auto payload = make(*job);
  if (!payload) return call.responder.respond(payload.error());
  record_change(call, job->id, std::move(*payload), {});
}

void ApiServer::cancel(Call& call) {
  change_job(call, Denied::cancel, [&](const JobRecord& job) -> Result<EventPayload> {
    if (is_final(job.state)) {
      return fail(ErrorCode::conflict,
                  "job " + job.display() + " has ended already (" + std::string(to_string(job.state)) + ")");
    }
    return EventPayload(JobCancelled{job.id, call.caller.user});
  });
}

void ApiServer::hold(Call& call) {
  change_job(call, Denied::hold, [&](const JobRecord& job) -> Result<EventPayload> {
    if (job.state != JobState::pending) {
      return fail(ErrorCode::conflict, "job " + job.display() + " is " + std::string(to_string(job.state)) +
                                           ": only a waiting job can be held");
    }
    return EventPayload(JobHeld{job.id, call.caller.user});
  });
}

void ApiServer::release(Call& call) {
  change_job(call, Denied::release, [&](const JobRecord& job) -> Result<EventPayload> {
    if (job.state != JobState::held) {
      return fail(ErrorCode::conflict,
                  "job " + job.display() + " is " + std::string(to_string(job.state)) + ", not held");
    }
    return EventPayload(JobReleased{job.id, call.caller.user});
  });
}

void ApiServer::wait(Call& call) {
  const JobRecord* job = find_job(call);
  if (job == nullptr) return;
  Duration timeout = kWaitMax;
  if (const std::string* text = call.request.query_value("timeout")) {
    const auto asked = parse_duration(*text);
    if (!asked) return call.responder.respond(Error(asked.error().clone()).with_context("timeout"));
    timeout = std::min(*asked, kWaitMax);
  }
  if (is_final(job->state)) return answer_job(std::move(call.responder), job->id, call.caller);
  auto waiter = std::make_shared<Waiter>(Waiter{std::move(call.responder), call.caller, nullptr});
  const JobId id = job->id;
  const auto drop = [this, id, weak = std::weak_ptr(waiter)] {
    const auto [begin, end] = waiters_.equal_range(id);
    for (auto entry = begin; entry != end; ++entry) {
      if (entry->second == weak.lock()) return void(waiters_.erase(entry));
    }
  };
  waiter->timeout =
      parts_.reactor.at(parts_.reactor.clock().since_boot() + timeout, [weak = std::weak_ptr(waiter), drop] {
        if (const auto late = weak.lock()) {
          late->responder.respond(Error(ErrorCode::timed_out, "the job has not ended yet: ask again"));
          drop();
        }
      });
  waiter->responder.on_gone(drop);
  waiters_.emplace(id, std::move(waiter));
}

void ApiServer::answer_waiters(JobId job) {
  const auto [begin, end] = waiters_.equal_range(job);
  std::vector<std::shared_ptr<Waiter>> ready;
  for (auto entry = begin; entry != end; ++entry) ready.push_back(entry->second);
  waiters_.erase(begin, end);
  for (const auto& waiter : ready) answer_job(std::move(waiter->responder), job, waiter->caller);
}

}  // namespace tranche::machine
