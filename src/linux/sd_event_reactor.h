// The Reactor of real processes, on sd-event: descriptors, timers, signals, children.
//
// Time: since_boot() is CLOCK_BOOTTIME, wall() is CLOCK_REALTIME; timers fire on CLOCK_BOOTTIME with the
// kernel's own accuracy (no coalescing), and those of one instant in the order of their making. Threading:
// the thread that makes it owns it; only post() and stop() may be called from others. Callbacks must not
// throw. A loop that cannot go on (epoll fails) ends run() with the error.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>

#include "base/reactor.h"
#include "base/result.h"

namespace tranche {

// CLOCK_BOOTTIME and CLOCK_REALTIME.
class SystemClock final : public Clock {
 public:
  Duration since_boot() const override;
  Time wall() const override;
};

// Blocks SIGTERM, SIGINT and SIGHUP in the calling thread and ignores SIGPIPE. Call first in main(), before
// any thread starts: threads inherit the mask, and a signal must find no thread that would die of it.
void block_service_signals();

class SdEventReactor final : public Reactor {
 public:
  static Result<std::unique_ptr<SdEventReactor>> create();
  ~SdEventReactor() override;

  const Clock& clock() const override { return clock_; }
  [[nodiscard]] Handle at(Duration deadline, Callback ready) override;
  // `file_descriptor` must be pollable; a regular file is a programmer's error. Close it after the Watch.
  [[nodiscard]] Handle on_readable(int file_descriptor, Callback ready) override;
  [[nodiscard]] Handle on_writable(int file_descriptor, Callback ready) override;
  void post(Callback work) override;

  // Delivers `signal` (blocked here for this thread) as a callback. One Watch a signal.
  [[nodiscard]] Handle on_signal(int signal, Callback received);
  // Calls `exited` once, when the process of `pidfd` (borrowed) has exited; it is not reaped here.
  [[nodiscard]] Handle on_child_exit(int pidfd, Callback exited);

  // Dispatches until stop(). May be run again afterwards.
  Result<void> run();
  // Ends run() after the current callback and the work posted before this call. From any thread.
  void stop();

  // Answers the service manager's watchdog (WATCHDOG_USEC) for as long as the loop turns. False if none
  // asked.
  bool enable_watchdog();

 private:
  struct State;
  explicit SdEventReactor(std::unique_ptr<State> state);

  SystemClock clock_;
  std::unique_ptr<State> state_;
};

}  // namespace tranche
