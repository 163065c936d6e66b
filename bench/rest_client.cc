#include "rest_client.h"

#include "base/json_writer.h"
#include "measure.h"

namespace tranche::bench {
namespace {

// The number behind the first `"name":`.
Result<int64_t> number_field(std::string_view json, const std::string& name) {
  const size_t at = json.find("\"" + name + "\":");
  if (at == std::string_view::npos) return fail(ErrorCode::corrupt, "the answer has no " + name);
  std::string_view rest = json.substr(at + name.size() + 3);
  return to_number(rest.substr(0, rest.find_first_of(",}")), name);
}

}  // namespace

std::string submission(const JobText& job) {
  std::string body;
  JsonWriter json(body);
  json.begin_object().key("argv").begin_array();
  for (const std::string& word : job.command) json.value(word);
  json.end_array().key("environment").begin_object().field("PATH", "/usr/bin:/bin").end_object();
  json.field("directory", job.folder).field("stdout", job.log);
  json.key("gpu").begin_object().field("count", 1).end_object();
  json.field("cpu_milli", job.cpu_milli).field("time_limit", "10m").field("held", job.held).end_object();
  return body;
}

Result<std::string> RestClient::ask(std::string_view method, const std::string& target,
                                    std::string_view body) {
  HttpHeaders headers;
  if (!body.empty()) headers.push_back({"Content-Type", "application/json"});
  TRY_ASSIGN(HttpReply reply, client_.request(method, target, headers, body));
  if (reply.status < 200 || reply.status > 299) {
    return fail(ErrorCode::internal, std::string(method) + " " + target + ": " + reply.body.substr(0, 1000));
  }
  return std::move(reply.body);
}

Result<int64_t> RestClient::submit(std::string_view body) {
  TRY_ASSIGN(const std::string answer, ask("POST", "/v1/jobs", body));
  return number_field(answer, "job");
}

Result<void> RestClient::wait(int64_t job) {
  TRY(ask("GET", "/v1/jobs/" + std::to_string(job) + "/wait"));
  return {};
}

Result<int64_t> RestClient::live_jobs() {
  TRY_ASSIGN(const std::string answer, ask("GET", "/v1/status"));
  TRY_ASSIGN(const int64_t running, number_field(answer, "jobs_running"));
  TRY_ASSIGN(const int64_t waiting, number_field(answer, "jobs_waiting"));
  return running + waiting;
}

}  // namespace tranche::bench
