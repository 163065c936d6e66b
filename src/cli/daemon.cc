#include "cli/daemon.h"

#include <algorithm>
#include <cctype>

#include "cli/session.h"
#include "cli/text.h"

namespace tranche::cli {

Daemon::Daemon(const Session& session) : client_(session.socket_path) {}

Daemon::Daemon(const std::string& socket_path, Duration timeout)
    : client_(socket_path, HttpClient::Options{.timeout = timeout}) {}

Result<std::string> Daemon::get(std::string_view target) { return body_of(client_.request("GET", target)); }

Result<HttpReply> Daemon::get_reply(std::string_view target, const HttpHeaders& headers) {
  TRY_ASSIGN(HttpReply reply, client_.request("GET", target, headers));
  if (reply.status < 200 || reply.status > 299) return fail(error_of(reply));
  return reply;
}

Result<std::string> Daemon::post(std::string_view target, std::string_view body, HttpHeaders headers) {
  if (!body.empty() && find_header(headers, "Content-Type") == nullptr) {
    headers.push_back({"Content-Type", "application/json"});
  }
  return body_of(client_.request("POST", target, headers, body));
}

Result<std::string> Daemon::body_of(Result<HttpReply> reply) const {
  if (!reply) return fail(std::move(reply).error());
  if (reply->status < 200 || reply->status > 299) return fail(error_of(*reply));
  return std::move(reply->body);
}

Error Daemon::error_of(const HttpReply& reply) {
  const Result<api::Problem> problem = api::decode<api::Problem>(reply.body);
  if (problem && !problem->detail.empty()) return api::to_error(*problem);
  return Error(ErrorCode::internal, "the daemon answered with status " + std::to_string(reply.status) +
                                        " and no explanation; see its log");
}

std::string url_encoded(std::string_view text) {
  constexpr char kHex[] = "0123456789ABCDEF";
  std::string encoded;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool plain =
        byte < 0x80 && (std::isalnum(byte) != 0 || c == '-' || c == '_' || c == '.' || c == '~');
    if (plain) {
      encoded += c;
    } else {
      encoded += '%';
      encoded += kHex[byte >> 4];
      encoded += kHex[byte & 15];
    }
  }
  return encoded;
}

void add_query(std::string& target, std::string_view name, std::string_view value) {
  target += target.find('?') == std::string::npos ? '?' : '&';
  target += name;
  target += '=';
  target += url_encoded(value);
}

}  // namespace tranche::cli
