// What the bench asks of the daemon: few requests, and from the answers single numbers, so that a JSON
// library is not among what is measured.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "linux/http_client.h"

namespace tranche::bench {

struct JobText {
  std::vector<std::string> command;
  std::string folder;    // working directory and place of the log
  std::string log;       // name of the log; may hold %j
  int cpu_milli = 1000;  // 1000 is the default of a submission that does not say
  bool held = false;
};

// The body of POST /v1/jobs: one whole GPU.
std::string submission(const JobText& job);

// One connection, kept. Errors: any answer but a 2xx, with its body.
class RestClient {
 public:
  explicit RestClient(const std::string& socket_path) : client_(socket_path) {}

  Result<int64_t> submit(std::string_view body);  // the job's id
  Result<void> wait(int64_t job);                 // until it has ended
  Result<int64_t> live_jobs();                    // waiting or running

 private:
  Result<std::string> ask(std::string_view method, const std::string& target, std::string_view body = {});

  HttpClient client_;
};

}  // namespace tranche::bench
