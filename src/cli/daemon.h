// The daemon as the verbs see it: one call, one typed answer. A problem that it reports comes back as the
// Error that it stands for, so exit codes are the same as those of mistakes found here.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "codec/api.h"
#include "linux/http_client.h"

namespace tranche::cli {

class Session;

class Daemon {
 public:
  explicit Daemon(const Session& session);
  // `timeout`: without any byte moving.
  Daemon(const std::string& socket_path, Duration timeout);

  // The body of a successful answer.
  Result<std::string> get(std::string_view target);
  // The whole of a successful answer, for those who look at its headers.
  Result<HttpReply> get_reply(std::string_view target, const HttpHeaders& headers);
  Result<std::string> post(std::string_view target, std::string_view body = {}, HttpHeaders headers = {});

  template <class Answer>
  Result<Answer> get_as(std::string_view target) {
    TRY_ASSIGN(const std::string body, get(target));
    return decoded<Answer>(body);
  }
  template <class Answer>
  Result<Answer> post_as(std::string_view target, std::string_view body = {}, HttpHeaders headers = {}) {
    TRY_ASSIGN(const std::string answer, post(target, body, std::move(headers)));
    return decoded<Answer>(answer);
  }

  template <class Answer>
  static Result<Answer> decoded(std::string_view body) {
    Result<Answer> answer = api::decode<Answer>(body);
    if (!answer)
      return fail(ErrorCode::corrupt, "cannot read the daemon's answer: " + answer.error().message());
    return answer;
  }

  HttpClient& http() { return client_; }
  // The error that an answer of another status than 2xx stands for.
  static Error error_of(const HttpReply& reply);

 private:
  Result<std::string> body_of(Result<HttpReply> reply) const;

  HttpClient client_;
};

// Percent-encoding for one component of a target.
std::string url_encoded(std::string_view text);

// Appends ?name=value or &name=value.
void add_query(std::string& target, std::string_view name, std::string_view value);

}  // namespace tranche::cli
