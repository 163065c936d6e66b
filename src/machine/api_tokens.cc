// Tokens for the API on TCP, and who a caller with one is. Tokens are made on the Unix socket only, where the
// kernel says who asks: whoever has stolen one cannot make another that outlives it.
#include "base/quantity_text.h"
#include "linux/log.h"
#include "machine/api_server.h"

namespace tranche::machine {
namespace {

HttpResponse unauthorised(std::string_view detail) {
  HttpResponse response = problem_response(401, to_string(ErrorCode::denied), detail);
  response.headers.push_back({"WWW-Authenticate", "Bearer"});
  return response;
}

constexpr std::string_view kBearer = "Bearer ";

}  // namespace

// One sentence for every kind of wrong token, so that a guesser learns nothing.
std::optional<Caller> ApiServer::authenticate(const HttpRequest& request, Responder& responder) {
  const Duration now = parts_.reactor.clock().since_boot();
  const int64_t address = request.peer.address_key;
  if (tokens_ == nullptr || request.peer.address.empty()) {
    responder.respond(Error(ErrorCode::denied, "who you are is known on the Unix socket only"));
    return std::nullopt;
  }
  const std::string* header = request.header("Authorization");
  const bool is_bearer = header != nullptr && header->starts_with(kBearer);
  const api::TokenRow* token = is_bearer ? tokens_->find(std::string_view(*header).substr(kBearer.size()),
                                                         parts_.reactor.clock().wall())
                                         : nullptr;
  const UserRecord* user = token == nullptr ? nullptr : parts_.users.find(token->uid);
  if (user == nullptr || user->name != token->user) {
    // Who holds a good token is let in, whatever others of the same address try.
    if (!failed_logins_.take(address, now)) {
      responder.respond(
          Error(ErrorCode::over_limit, "too many wrong tokens came from your address: wait a minute"));
      return std::nullopt;
    }
    log(LogLevel::notice, "token_refused", {{"address", request.peer.address}});
    responder.respond(
        unauthorised("a valid token is needed: make one with `tranche token create` on the server, and "
                     "send it as Authorization: Bearer"));
    return std::nullopt;
  }
  if (!token_requests_.take(static_cast<int64_t>(token->id), now)) {
    responder.respond(Error(ErrorCode::over_limit, "this token asks too often: wait a second"));
    return std::nullopt;
  }
  const bool only_looks = request.method == "GET" || request.method == "HEAD";
  if (token->scope == api::TokenScope::read && !only_looks) {
    responder.respond(Error(ErrorCode::denied, "this token may only look: make one with --scope jobs"));
    return std::nullopt;
  }
  PeerCredentials credentials{};
  credentials.uid = token->uid;
  credentials.gid = user->gid;
  credentials.groups = parts_.users.groups(token->uid);
  Caller caller = identify_caller(credentials, parts_.config, parts_.users);
  // An operator's token acts as one only if it was made for that, and while its user is one.
  caller.is_operator = caller.is_operator && token->scope == api::TokenScope::operate;
  caller.token = token->id;
  return caller;
}

// Whoever follows for long is told nothing more once the token has ended.
bool ApiServer::still_holds(uint64_t token) const {
  if (token == 0) return true;
  const api::TokenRow* row = tokens_ == nullptr ? nullptr : tokens_->row(token);
  return row != nullptr && row->expires > parts_.reactor.clock().wall();
}

void ApiServer::create_token(Call& call) {
  if (!may_change_tokens(call)) return;
  const auto request = api::decode<api::TokenRequest>(call.request.body);
  if (!request) return call.responder.respond(request.error());
  uint32_t uid = call.caller.uid;
  std::string user = call.caller.user;
  const bool is_for_another = request->user && *request->user != user;
  if (is_for_another || request->scope == api::TokenScope::operate) {
    if (!call.caller.is_operator) {
      return deny(call, Denied::token, "user", request->user.value_or(user),
                  "only operators may make tokens for others, or with the scope operate");
    }
  }
  if (is_for_another) {
    const auto found = parts_.users.uid_of(*request->user);
    if (!found)
      return call.responder.respond(Error(ErrorCode::not_found, "there is no user " + *request->user));
    uid = *found;
    user = *request->user;
  }
  if (uid == 0) {
    return call.responder.respond(
        Error(ErrorCode::invalid_argument, "root has no tokens: make one for a person, with --user"));
  }
  const auto created = tokens_->create(uid, user, *request, parts_.reactor.clock().wall());
  if (!created) return call.responder.respond(created.error());
  log(LogLevel::notice, "token_created",
      {{"token", created->row.id},
       {"user", user},
       {"scope", to_string(created->row.scope)},
       {"by", call.caller.user}});
  HttpResponse response = json_response(201, api::encode(*created));
  response.headers.push_back({"Cache-Control", "no-store"});
  call.responder.respond(std::move(response));
}

void ApiServer::list_tokens(Call& call) {
  api::TokenList list;
  if (tokens_ != nullptr) list.tokens = tokens_->rows();
  std::erase_if(list.tokens, [&](const api::TokenRow& row) { return !call.caller.may_control(row.uid); });
  call.responder.respond(json_response(200, api::encode(list)));
}

void ApiServer::revoke_token(Call& call) {
  if (!may_change_tokens(call)) return;
  const auto id = parse_integer(call.parameters.at(0), 1, INT64_MAX, "token id");
  if (!id) return call.responder.respond(id.error());
  const api::TokenRow* row = tokens_->row(static_cast<uint64_t>(*id));
  // Whose tokens there are is nobody else's business.
  if (row == nullptr || !call.caller.may_control(row->uid)) {
    return call.responder.respond(Error(
        ErrorCode::not_found, "you have no token " + call.parameters[0] + ": `tranche token ls` lists them"));
  }
  const api::TokenRow revoked = *row;
  if (const auto done = tokens_->revoke(revoked.id); !done) return call.responder.respond(done.error());
  log(LogLevel::notice, "token_revoked",
      {{"token", revoked.id}, {"user", revoked.user}, {"by", call.caller.user}});
  call.responder.respond(json_response(200, api::encode(api::TokenList{{revoked}})));
}

bool ApiServer::may_change_tokens(Call& call) {
  if (!call.request.peer.credentials) {
    call.responder.respond(Error(
        ErrorCode::denied, "tokens are made and revoked on the server itself, through its Unix socket"));
    return false;
  }
  if (tokens_ == nullptr) {
    call.responder.respond(Error(ErrorCode::not_available_yet, "this daemon has no tokens"));
    return false;
  }
  // Each change waits for the disk.
  if (!token_changes_.take(call.caller.uid, parts_.reactor.clock().since_boot())) {
    call.responder.respond(Error(ErrorCode::over_limit, "too many changes of tokens: wait a minute"));
    return false;
  }
  return true;
}

}  // namespace tranche::machine
