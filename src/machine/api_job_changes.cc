// Changes to jobs that were submitted: update and requeue.
#include "codec/sweep.h"
#include "linux/digest.h"
#include "machine/api_server.h"
#include "machine/job_update.h"
#include "machine/shares.h"

namespace tranche::machine {

// Like every change, the caller hears of it once it is durable.
void ApiServer::update(Call& call) {
  const auto request = api::decode<api::UpdateRequest>(call.request.body);
  if (!request) return call.responder.respond(request.error());
  JobRecord* job = find_job_to_change(call, Denied::update);
  if (job == nullptr) return;
  if (request->gpu_memory) {
    JobSpec wanted = *job->spec;
    wanted.task.gpu.memory = *request->gpu_memory;
    wanted.task.gpu.memory_limit = request->gpu_memory_limit.value_or(MiB());
    if (const auto may = check_parts(wanted); !may) return call.responder.respond(may.error());
  }
  const MemoryHeld held = parts_.shares == nullptr ? MemoryHeld() : parts_.shares->held_by(job->id);
  auto updated = checked_update(*job, *request, call.caller, held, parts_.engine.scheduler(),
                                parts_.engine.jobs(), parts_.engine.now());
  if (!updated) return call.responder.respond(updated.error());
  if (!request->name) return record_change(call, job->id, std::move(*updated), {});
  rename(call, *job, std::move(*updated), *request->name);
}

// The name stands in what was submitted, which is kept under its own digest: with another name it is another
// one.
void ApiServer::rename(Call& call, const JobRecord& job, JobUpdated updated, const std::string& name) {
  auto shared = std::make_shared<Call>(std::move(call));
  auto finish = [this, shared, id = job.id, given = name,
                 updated](const api::SubmitRequest& submitted) mutable {
    const std::string stored = api::stored_name(given, submitted.sweep);
    auto renamed = std::make_shared<api::SubmitRequest>(submitted);
    renamed->name = given;
    Engine::Attachment attachment;
    StoredPayload& payload = attachment.payload.emplace();
    payload.content = api::encode(*renamed);
    payload.hash = sha256_hex(payload.content);
    payload.name = stored;
    updated.payload_hash = payload.hash;
    updated.name_hash = sha256_hex(stored);
    record_change(*shared, id, std::move(updated), std::move(attachment));
    parts_.engine.jobs().set_request(id, 1, stored, std::move(renamed));
  };
  if (job.request) return finish(*job.request);
  parts_.engine.journal().read_payload(job.spec->payload_hash, [this, shared, id = job.id,
                                                                finish](Result<std::string> content) mutable {
    auto request = content ? api::decode<api::SubmitRequest>(*content)
                           : Result<api::SubmitRequest>(fail(content.error().clone()));
    if (!request) return shared->responder.respond(request.error());
    const JobRecord* now = parts_.engine.jobs().find(id);
    if (is_final(now->state)) {
      return shared->responder.respond(Error(ErrorCode::conflict, "job " + now->display() + " has ended"));
    }
    finish(*request);
  });
}

void ApiServer::requeue(Call& call) {
  change_job(call, Denied::requeue, [&](const JobRecord& job) -> Result<EventPayload> {
    if (is_final(job.state)) {
      return fail(ErrorCode::conflict, "job " + job.display() + " has ended already (" +
                                           std::string(to_string(job.state)) + "): submit it again");
    }
    if (job.state == JobState::pending || job.state == JobState::held) {
      return fail(ErrorCode::conflict, "job " + job.display() + " waits already");
    }
    if (job.state == JobState::stopping) {
      return fail(ErrorCode::conflict, "job " + job.display() + " is being ended already");
    }
    if (job.spec->interactive) {
      return fail(
          ErrorCode::conflict,
          "job " + job.display() + " runs in the foreground, so nobody would be there for its next attempt");
    }
    return EventPayload(JobRequeued{job.id, call.caller.user});
  });
}

}  // namespace tranche::machine
