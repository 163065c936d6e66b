#include "machine/api_server.h"

#include <iterator>

#include "base/quantity_text.h"
#include "linux/log.h"
#include "machine/fences.h"

namespace tranche::machine {
namespace {

constexpr size_t kPageDefault = 1000;
constexpr size_t kPageMax = 10'000;

}  // namespace

std::span<const HttpRoute<ApiServer::Handler>> ApiServer::routes() {
  static constexpr HttpRoute<Handler> kRoutes[] = {
      {"POST", "/v1/jobs", &ApiServer::submit},
      {"GET", "/v1/jobs", &ApiServer::list_jobs},
      {"POST", "/v1/run", &ApiServer::run},
      {"GET", "/v1/jobs/{id}", &ApiServer::show_job},
      {"GET", "/v1/jobs/{id}/why", &ApiServer::why},
      {"GET", "/v1/jobs/{id}/wait", &ApiServer::wait},
      {"POST", "/v1/jobs/{id}/attach", &ApiServer::attach},
      {"POST", "/v1/jobs/{id}/exec", &ApiServer::exec},
      {"POST", "/v1/jobs/{id}/cancel", &ApiServer::cancel},
      {"POST", "/v1/jobs/{id}/hold", &ApiServer::hold},
      {"POST", "/v1/jobs/{id}/release", &ApiServer::release},
      {"POST", "/v1/jobs/{id}/update", &ApiServer::update},
      {"POST", "/v1/jobs/{id}/requeue", &ApiServer::requeue},
      {"POST", "/v1/arrays/{id}/cancel", &ApiServer::cancel_array},
      {"POST", "/v1/arrays/{id}/hold", &ApiServer::hold_array},
      {"POST", "/v1/arrays/{id}/release", &ApiServer::release_array},
      {"GET", "/v1/history", &ApiServer::history},
      {"GET", "/v1/gpus", &ApiServer::gpus},
      {"POST", "/v1/gpus/{index}/drain", &ApiServer::drain},
      {"POST", "/v1/gpus/{index}/undrain", &ApiServer::undrain},
      {"GET", "/v1/who", &ApiServer::who},
      {"GET", "/v1/queues", &ApiServer::queues},
      {"GET", "/v1/share", &ApiServer::share},
      {"GET", "/v1/events", &ApiServer::events},
      {"POST", "/v1/tokens", &ApiServer::create_token},
      {"GET", "/v1/tokens", &ApiServer::list_tokens},
      {"POST", "/v1/tokens/{id}/revoke", &ApiServer::revoke_token},
      {"GET", "/v1/status", &ApiServer::status},
      {"GET", "/v1/doctor", &ApiServer::doctor},
      {"POST", "/v1/config/check", &ApiServer::check_config},
      {"POST", "/v1/reload", &ApiServer::reload},
  };
  return kRoutes;
}

ApiServer::ApiServer(Parts parts) : parts_(std::move(parts)), started_(parts_.reactor.clock().wall()) {}

void ApiServer::handle(HttpRequest request, Responder responder) {
  // Before anything else: who has no token is told nothing, not even which routes there are.
  std::optional<Caller> caller;
  if (!request.peer.credentials) {
    caller = authenticate(request, responder);
    if (!caller) return;
  }
  const auto match = match_route(routes(), request.method, request.path);
  if (match.route == nullptr) {
    if (match.allowed_methods.empty()) {
      return responder.respond(
          Error(ErrorCode::not_found, "there is no " + request.path + ": see api/openapi.yaml"));
    }
    return responder.respond(problem_response(405, "method_not_allowed", "use " + match.allowed_methods));
  }
  Call call{std::move(request), std::move(responder), {}, {}};
  for (size_t i = 0; i < match.parameters.count; ++i) call.parameters.emplace_back(match.parameters[i]);
  call.caller = caller ? std::move(*caller)
                       : identify_caller(*call.request.peer.credentials, parts_.config, parts_.users);
  (this->*match.route->action)(call);
}

namespace {

constexpr const char* kDeniedVerbs[] = {"attach", "cancel", "hold",    "release", "drain", "undrain",
                                        "reload", "update", "requeue", "exec",    "token"};
constexpr int64_t kDeniedVerbCount = std::size(kDeniedVerbs);

}  // namespace

void ApiServer::deny(Call& call, Denied verb, const char* kind, const std::string& thing,
                     std::string sentence) {
  const auto number = static_cast<int64_t>(verb);
  const int64_t owner = int64_t{call.caller.uid} * kDeniedVerbCount + number;
  if (const uint64_t times = denials_.happened(owner, parts_.reactor.clock().since_boot()); times > 0) {
    log(LogLevel::notice, "denied",
        {{"verb", kDeniedVerbs[number]},
         {"uid", call.caller.uid},
         {"user", call.caller.user},
         {kind, thing},
         {"times", times}});
  }
  if (!denial_sweep_) arm_denial_sweep();
  call.responder.respond(Error(ErrorCode::denied, std::move(sentence)));
}

void ApiServer::arm_denial_sweep() {
  const Duration now = parts_.reactor.clock().since_boot();
  denial_sweep_ = parts_.reactor.at(now + LogThrottle::kInterval, [this] {
    denials_.tell_overdue(parts_.reactor.clock().since_boot(), [this](int64_t owner, uint64_t times) {
      const auto uid = static_cast<uint32_t>(owner / kDeniedVerbCount);
      log(LogLevel::notice, "denied",
          {{"verb", kDeniedVerbs[owner % kDeniedVerbCount]},
           {"uid", uid},
           {"user", parts_.users.name(uid)},
           {"times", times}});
    });
    const Reactor::Handle self = std::move(denial_sweep_);
    if (!denials_.is_empty()) arm_denial_sweep();
  });
}

ViewSource ApiServer::view_source() const {
  return {parts_.engine,
          parts_.gpus,
          parts_.users,
          parts_.reactor.clock(),
          fraction_fence(parts_.config, parts_.gpus.driver_version()),
          parts_.shares};
}

HttpResponse json_response(int status, std::string body) {
  HttpResponse response;
  response.status = status;
  response.body = std::move(body);
  return response;
}

Result<size_t> page_limit(const HttpRequest& request) {
  const std::string* text = request.query_value("limit");
  if (text == nullptr) return kPageDefault;
  TRY_ASSIGN(const int64_t limit, parse_integer(*text, 1, kPageMax, "limit"));
  return static_cast<size_t>(limit);
}

}  // namespace tranche::machine
