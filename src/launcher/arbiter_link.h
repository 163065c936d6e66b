// A shepherd's way to the arbiter: it makes the task's listening socket and lease page (wire/guard.h),
// registers them, and registers them again with the next arbiter, so that neither is lost while the shepherd
// lives.
#pragma once

#include <string>

#include "launcher/event_loop.h"
#include "wire/arbiter.h"

namespace tranche::launcher {

class ArbiterLink {
 public:
  ArbiterLink(EventLoop& loop, std::string run_folder);

  // For a task with shares; without it the rest does nothing.
  // `held_by_driver`: its limits are set in the driver too.
  isolation::Outcome<void> make_files(const wire::StartRequest& request, bool held_by_driver = false);
  bool has_files() const { return static_cast<bool>(listener_); }
  // Other limits from the next registration on.
  void change(const wire::StartRequest& request);
  // The task's socket, unbound until the child gives it its name; -1 without shares.
  int socket() const { return listener_.get(); }
  // The task's limits for processes that the arbiter does not answer, in a new file that only we may write
  // (TRANCHE_GUARD_LIMITS_SUFFIX). `path` is one that no user could have put something into yet.
  isolation::Outcome<void> write_limits(const std::string& path);
  // The socket listens: from now on the arbiter may accept.
  void start();
  // No process of the task is left.
  void forget();

 private:
  static constexpr uint64_t kFirstPauseNs = 20'000'000;
  static constexpr uint64_t kLongestPauseNs = 1'000'000'000;

  bool rewrite_limits();
  void connect();
  void on_events();
  void lose();
  bool send_registration();

  EventLoop& loop_;
  std::string run_folder_;
  wire::RegisterTask registration_{};
  isolation::FileDescriptor listener_;
  isolation::FileDescriptor page_;
  isolation::FileDescriptor limits_;
  isolation::FileDescriptor connection_;
  uint64_t pause_ns_ = kFirstPauseNs;
  BootTimer retry_;
};

}  // namespace tranche::launcher
