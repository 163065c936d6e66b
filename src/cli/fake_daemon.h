// Test-only: a daemon of canned answers on a Unix socket, in this process. Records what it was asked.
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "cli/session.h"
#include "linux/unique_fd.h"

namespace tranche::cli::testing {

struct FakeRequest {
  std::string method;
  std::string target;
  std::string head;  // all header lines
  std::string body;
};

struct FakeReply {
  int status = 200;
  std::string body = {};
  std::string extra_headers = {};                 // with their line ends
  std::function<void(int socket)> upgraded = {};  // with status 101: owns the conversation from here on
};

class FakeDaemon {
 public:
  using Handler = std::function<FakeReply(const FakeRequest& request)>;

  explicit FakeDaemon(Handler handler);
  ~FakeDaemon();
  FakeDaemon(const FakeDaemon&) = delete;
  FakeDaemon& operator=(const FakeDaemon&) = delete;

  const std::string& socket_path() const { return path_; }
  // "GET /v1/jobs" and so on, in order.
  std::vector<std::string> asked() const;
  std::vector<FakeRequest> requests() const;

 private:
  void serve();
  void serve_connection(UniqueFd connection);

  Handler handler_;
  std::string directory_;
  std::string path_;
  UniqueFd listening_;
  UniqueFd stop_;
  mutable std::mutex mutex_;
  std::vector<FakeRequest> requests_;
  std::vector<std::thread> connections_;
  std::thread acceptor_;
};

// An answer that carries a problem.
FakeReply problem(int status, std::string_view type, std::string_view detail);

// Runs the program against a daemon; what it printed and returned.
struct Outcome {
  int code = -1;
  std::string output;
  std::string error;
};
Outcome run_words(const std::string& socket_path, std::vector<std::string> words, Session::Setup setup = {});

// A folder that is removed at the end.
class TemporaryDirectory {
 public:
  TemporaryDirectory();
  ~TemporaryDirectory();
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

void write_text(const std::string& path, std::string_view text);

}  // namespace tranche::cli::testing
