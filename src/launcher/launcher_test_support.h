// A real launcher for tests: in the laboratory (tests/lab/enter), with its own run folder and cgroup subtree,
// spoken to over the wire protocol as the daemon would.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "isolation/file.h"
#include "wire/attach.h"
#include "wire/launch_block.h"
#include "wire/launcher.h"

namespace tranche::launcher {

inline constexpr uint32_t kAlice = 2001;
inline constexpr uint32_t kBob = 2002;
inline constexpr uint32_t kCarol = 2003;

// Bytes of a launch block.
struct BlockSpec {
  std::string directory = "/";
  std::string input;
  std::string output;
  std::string error;
  std::vector<std::string> arguments;
  std::vector<std::string> variables = {"PATH=/usr/bin:/bin"};
  uint32_t umask = 0022;
};
std::string encode_block(const BlockSpec& spec);
isolation::FileDescriptor make_sealed(const std::string& bytes, bool sealed = true);
// A shell command as a block.
BlockSpec shell(const std::string& script);

struct Received {
  wire::MessageHeader header{};
  std::string bytes;
  isolation::FileDescriptor file;
  wire::LauncherKind kind() const { return static_cast<wire::LauncherKind>(header.kind); }
  template <class Message>
  Message as() const {
    Message message{};
    memcpy(&message, bytes.data(), std::min(bytes.size(), sizeof message));
    return message;
  }
};

wire::StartRequest start_request(uint64_t job, uint32_t uid, uint32_t rank = 0, uint32_t attempt = 1);

// The daemon's end.
class DaemonClient {
 public:
  explicit DaemonClient(const std::string& run_folder);
  bool is_connected() const { return static_cast<bool>(socket_); }
  bool send_raw(const void* bytes, size_t size, const std::vector<int>& files = {});
  template <class Message>
  void send(Message message, const std::vector<int>& files = {}) {
    ASSERT_TRUE(send_raw(&message, sizeof message, files));
  }
  // The next packet that `wanted` accepts; others are kept for later calls. Fails after 20 s.
  Received wait_for(const std::function<bool(const Received&)>& wanted, const char* what);
  Received wait_for(wire::LauncherKind kind, const wire::TaskKey& key);
  wire::Reply wait_reply(uint64_t id, isolation::FileDescriptor* file = nullptr);
  // Nothing more comes: the other side has closed.
  bool is_closed();

  wire::Reply start(wire::StartRequest request, const BlockSpec& block,
                    const std::vector<int>& more_files = {});
  wire::Reply ask(wire::LauncherKind kind, const wire::TaskKey& key);
  wire::Reply kill(const wire::TaskKey& key, uint64_t grace_ns);
  std::vector<wire::TaskRecord> list();
  uint64_t next_id() { return ++last_id_; }

 private:
  bool receive(int timeout_ms);

  isolation::FileDescriptor socket_;
  std::vector<Received> kept_;
  uint64_t last_id_ = 0;
};

class LauncherTest : public ::testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;

  void start_launcher(const std::vector<std::string>& more = {});
  // kill -9, as a crash; tasks go on.
  void crash_launcher();
  DaemonClient& daemon() { return *daemon_; }
  void connect_daemon();
  void drop_daemon() { daemon_.reset(); }

  // Start, Prepared, Go, Started, Exited, TasksGone; returns how it ended.
  wire::TaskEnd run(const wire::StartRequest& request, const BlockSpec& block);
  // Up to Started.
  wire::StartedEvent begin(const wire::StartRequest& request, const BlockSpec& block);
  wire::TaskEnd end_of(const wire::TaskKey& key);
  // Start, expecting StartFailed.
  wire::StartFailedEvent fail(const wire::StartRequest& request, const BlockSpec& block);
  // A folder that every user may write, and a file's content.
  const std::string& folder() const { return folder_; }
  std::string content(const std::string& path) const;
  std::string home(const std::string& user) const { return "/run/lab/home/" + user; }
  // Waits until `path` exists with content; fails after 20 s.
  std::string wait_content(const std::string& path) const;
  const std::string& run_folder() const { return run_folder_; }
  const std::string& cgroup_root() const { return cgroup_root_; }
  int launcher_pid() const { return launcher_pid_; }

 private:
  void end_all_tasks();

  std::string run_folder_;
  std::string cgroup_root_;
  std::string folder_;
  std::vector<std::string> more_options_;
  int launcher_pid_ = 0;
  std::unique_ptr<DaemonClient> daemon_;
};

// Waits until `condition`, looking every millisecond; false after 20 s.
bool eventually(const std::function<bool()>& condition);
bool process_exists(int pid);

}  // namespace tranche::launcher
