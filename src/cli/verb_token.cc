// tranche token: tokens for the API on TCP.
#include "base/quantity_text.h"
#include "cli/arguments.h"
#include "cli/daemon.h"
#include "cli/job_text.h"
#include "cli/option_error.h"
#include "cli/session.h"
#include "cli/table.h"
#include "cli/text.h"
#include "cli/verbs.h"

namespace tranche::cli {
namespace {

Result<api::TokenRequest> token_request(const Arguments& arguments) {
  api::TokenRequest request;
  if (const std::string* value = arguments.find("scope")) {
    const auto scope = from_string<api::TokenScope>(*value);
    if (!scope) return invalid("--scope: there are read, jobs and operate, not " + in_quotes(*value));
    request.scope = *scope;
  }
  if (const std::string* value = arguments.find("lifetime")) {
    TRY_OPTION(request.lifetime, "--lifetime", parse_duration(*value));
  }
  if (const std::string* value = arguments.find("user")) request.user = *value;
  request.label = arguments.value_or("label", "");
  return request;
}

Result<int> create(Session& session, const Arguments& arguments) {
  if (arguments.words.size() != 1)
    return invalid("write: tranche token create [--scope SCOPE] [--label TEXT]");
  TRY_ASSIGN(const api::TokenRequest request, token_request(arguments));
  Daemon daemon(session);
  TRY_ASSIGN(const std::string json, daemon.post("/v1/tokens", api::encode(request)));
  if (arguments.has("json")) {
    session.print_json(json);
    return 0;
  }
  TRY_ASSIGN(const api::TokenCreated created, Daemon::decoded<api::TokenCreated>(json));
  session.print(created.token + "\n");
  session.note("token " + std::to_string(created.row.id) + " of " + printable(created.row.user) + ", scope " +
               std::string(to_string(created.row.scope)) + ", until " + local_time_text(created.row.expires) +
               "; it is not told again: keep it in a file that only you can read\n");
  return 0;
}

Result<int> list(Session& session, const Arguments& arguments) {
  Daemon daemon(session);
  TRY_ASSIGN(const std::string json, daemon.get("/v1/tokens"));
  if (arguments.has("json")) {
    session.print_json(json);
    return 0;
  }
  TRY_ASSIGN(const api::TokenList tokens, Daemon::decoded<api::TokenList>(json));
  Table table({{.title = "ID", .right = true},
               {.title = "USER"},
               {.title = "SCOPE"},
               {.title = "EXPIRES"},
               {.title = "LABEL", .width_min = 6}});
  for (const api::TokenRow& row : tokens.tokens) {
    const bool is_over = row.expires <= session.setup().now;
    table.add({{std::to_string(row.id)},
               {row.user},
               {std::string(to_string(row.scope))},
               {is_over ? "expired" : local_time_text(row.expires)},
               {row.label}});
  }
  session.print(table.render(session.look(), !arguments.has("no-header")));
  if (table.empty()) session.note("there are no tokens; 'tranche token create' makes one\n");
  return 0;
}

Result<int> revoke(Session& session, const Arguments& arguments) {
  if (arguments.words.size() != 2) return invalid("name the token by its number: tranche token revoke 3");
  TRY_ASSIGN(const int64_t id, parse_integer(arguments.words[1], 1, INT64_MAX, "a token's number"));
  Daemon daemon(session);
  TRY_ASSIGN(const std::string json, daemon.post("/v1/tokens/" + std::to_string(id) + "/revoke"));
  if (arguments.has("json")) {
    session.print_json(json);
  } else {
    session.print("token " + std::to_string(id) + " revoked\n");
  }
  return 0;
}

}  // namespace

Result<int> run_token(Session& session, const Arguments& arguments) {
  const std::string& what = arguments.words.front();
  for (const char* option : {"scope", "lifetime", "label", "user"}) {
    if (what != "create" && arguments.has(option))
      return invalid("--" + std::string(option) + " belongs to: tranche token create");
  }
  if (what == "create") return create(session, arguments);
  if (what == "ls") return list(session, arguments);
  if (what == "revoke") return revoke(session, arguments);
  return invalid(in_quotes(what) + " is not known here; write: tranche token create|ls|revoke");
}

}  // namespace tranche::cli
