// Changes of whole arrays: one event each, so that no element starts while the others are being cancelled.
#include "machine/api_server.h"

namespace tranche::machine {

void ApiServer::change_array(Call& call, Denied verb, ArrayEffect (*effect)(JobState),
                             const std::function<EventPayload(JobId first, uint32_t more)>& make,
                             const char* nothing) {
  const JobRecord* job = find_job_to_change(call, verb);
  if (job == nullptr) return;
  if (!job->array.is_set()) {
    return call.responder.respond(
        Error(ErrorCode::conflict, "job " + job->display() + " is not of an array: name it as a job"));
  }
  const JobId first(job->array.value());
  api::ArrayChange answer;
  answer.array = first;
  answer.elements = job->array_count;
  for (uint32_t i = 0; i < answer.elements; ++i) {
    const JobRecord* element = parts_.engine.jobs().find(JobId(first.value() + i));
    const ArrayEffect what = element == nullptr ? ArrayEffect::unchanged : effect(element->state);
    ++(what == ArrayEffect::changed    ? answer.changed
       : what == ArrayEffect::stopping ? answer.stopping
                                       : answer.unchanged);
  }
  if (answer.unchanged == answer.elements) {
    return call.responder.respond(
        Error(ErrorCode::conflict, "array " + std::to_string(first.value()) + ": " + nothing));
  }
  auto responder = std::make_shared<Responder>(std::move(call.responder));
  Engine::Attachment attachment;
  attachment.durable = [responder, answer] { responder->respond(json_response(200, api::encode(answer))); };
  parts_.engine.record(make(first, answer.elements - 1), std::move(attachment));
}

void ApiServer::cancel_array(Call& call) {
  const auto effect = [](JobState state) {
    if (is_final(state)) return ArrayEffect::unchanged;
    const bool waits = state == JobState::pending || state == JobState::held;
    return waits ? ArrayEffect::changed : ArrayEffect::stopping;
  };
  const auto make = [by = call.caller.user](JobId first, uint32_t more) {
    return EventPayload(JobCancelled{first, by, more});
  };
  change_array(call, Denied::cancel, effect, make, "all its elements have ended already");
}

void ApiServer::hold_array(Call& call) {
  const auto effect = [](JobState state) {
    return state == JobState::pending ? ArrayEffect::changed : ArrayEffect::unchanged;
  };
  const auto make = [by = call.caller.user](JobId first, uint32_t more) {
    return EventPayload(JobHeld{first, by, more});
  };
  change_array(call, Denied::hold, effect, make, "none of its elements waits, so none can be held");
}

void ApiServer::release_array(Call& call) {
  const auto effect = [](JobState state) {
    return state == JobState::held ? ArrayEffect::changed : ArrayEffect::unchanged;
  };
  const auto make = [by = call.caller.user](JobId first, uint32_t more) {
    return EventPayload(JobReleased{first, by, more});
  };
  change_array(call, Denied::release, effect, make, "none of its elements is held");
}

}  // namespace tranche::machine
