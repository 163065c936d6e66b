#include "base/quantity_text.h"
#include "machine/api_server.h"

namespace tranche::machine {
namespace {

Result<GpuId> gpu_of(const ApiServer::Call& call, const GpuManager& gpus) {
  TRY_ASSIGN(const int64_t index, parse_integer(call.parameters.at(0), 0, 1023, "GPU index"));
  const auto id = gpus.by_index(static_cast<uint32_t>(index));
  if (!id) {
    return fail(ErrorCode::not_found,
                "there is no GPU " + call.parameters[0] + ": `tranche gpus` lists them");
  }
  return *id;
}

}  // namespace

void ApiServer::gpus(Call& call) {
  call.responder.respond(json_response(200, api::encode(gpu_list(view_source()))));
}

void ApiServer::who(Call& call) {
  call.responder.respond(json_response(200, api::encode(process_list(view_source(), call.caller))));
}

void ApiServer::drain(Call& call) {
  const auto gpu = gpu_of(call, parts_.gpus);
  if (!gpu) return call.responder.respond(gpu.error());
  if (!call.caller.is_operator) {
    return deny(call, Denied::drain, "gpu", call.parameters[0],
                "only operators may drain a GPU: ask one, or join a group of daemon.operator_groups");
  }
  const auto request = api::decode<api::DrainRequest>(call.request.body.empty() ? "{}" : call.request.body);
  if (!request) return call.responder.respond(request.error());
  auto responder = std::make_shared<Responder>(std::move(call.responder));
  Engine::Attachment attachment;
  attachment.durable = [this, responder] {
    responder->respond(json_response(200, api::encode(gpu_list(view_source()))));
  };
  const std::string reason = request->reason.empty() ? "drained by " + call.caller.user : request->reason;
  parts_.engine.record(GpuDrained{*gpu, call.caller.user, reason}, std::move(attachment));
}

void ApiServer::undrain(Call& call) {
  const auto gpu = gpu_of(call, parts_.gpus);
  if (!gpu) return call.responder.respond(gpu.error());
  if (!call.caller.is_operator) {
    return deny(call, Denied::undrain, "gpu", call.parameters[0],
                "only operators may put a GPU back: ask one");
  }
  auto responder = std::make_shared<Responder>(std::move(call.responder));
  parts_.gpus.open(*gpu, [this, responder, id = *gpu, by = call.caller.user](const Result<void>& opened) {
    if (!opened) return responder->respond(opened.error());
    Engine::Attachment attachment;
    attachment.durable = [this, responder] {
      responder->respond(json_response(200, api::encode(gpu_list(view_source()))));
    };
    parts_.engine.record(GpuUndrained{id, by}, std::move(attachment));
    parts_.gpus.absolve(id);
  });
}

}  // namespace tranche::machine
