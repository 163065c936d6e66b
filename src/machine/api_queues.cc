#include "machine/api_server.h"

namespace tranche::machine {

void ApiServer::queues(Call& call) {
  call.responder.respond(json_response(200, api::encode(queue_list(view_source(), false))));
}

void ApiServer::share(Call& call) {
  if (parts_.observation != nullptr)
    return call.responder.respond(json_response(200, api::encode(parts_.observation->report())));
  call.responder.respond(json_response(200, api::encode(queue_list(view_source(), true))));
}

}  // namespace tranche::machine
