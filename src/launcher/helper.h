// Work that the launcher's thread must not wait for, each in a short-lived forked process: opening a file as
// a user (a home on a dead file server hangs), and looking through every process's open files. The helper
// sends its packets through a socket; the launcher passes them on to the daemon.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "launcher/launcher_host.h"
#include "launcher/packet.h"

namespace tranche::launcher {

class HelperSet {
 public:
  // `pass_on` gets each packet of a helper, the file descriptor it may carry included.
  using PassOn = std::function<void(Packet&)>;

  HelperSet(EventLoop& loop, const LauncherHost& host, PassOn pass_on);

  // Both answer with a Reply of the request's id; EAGAIN when too many are at work.
  isolation::Outcome<void> open_as_user(const wire::OpenAsUserRequest& request,
                                        const isolation::Identity& identity);
  isolation::Outcome<void> scan(const wire::ScanRequest& request);

 private:
  static constexpr size_t kMaxHelpers = 64;
  static constexpr unsigned kLongestSeconds = 30;

  struct Helper {
    std::unique_ptr<PacketConnection> connection;
    uint64_t id = 0;
    bool replied = false;
  };

  isolation::Outcome<void> run(uint64_t id, const std::function<void(int socket)>& work);
  void on_closed(uint64_t serial);

  EventLoop& loop_;
  const LauncherHost& host_;
  PassOn pass_on_;
  uint64_t next_serial_ = 1;
  std::unordered_map<uint64_t, Helper> helpers_;
};

// Sends a ScanEntry for every process and GPU node of `request`, then the Reply. Runs in the helper.
void scan_processes(const LauncherHost& host, const wire::ScanRequest& request, int socket);

}  // namespace tranche::launcher
