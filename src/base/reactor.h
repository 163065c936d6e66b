// The event loop as a seam: what a process's one thread waits for. Real: linux/sd_event_reactor.h.
// Simulated: ManualReactor below, driven by a test.
//
// Threading: all calls from the loop's own thread, except post(), which any thread may call.
// Ownership: a Watch ends its registration when it is destroyed; callbacks may destroy their own Watch.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "base/clock.h"

namespace tranche {

class Reactor {
 public:
  class Watch {
   public:
    virtual ~Watch() = default;
  };
  using Handle = std::unique_ptr<Watch>;
  using Callback = std::function<void()>;

  virtual ~Reactor() = default;

  virtual const Clock& clock() const = 0;
  // Calls `ready` once, when since_boot() reaches `deadline`.
  [[nodiscard]] virtual Handle at(Duration deadline, Callback ready) = 0;
  // Calls `ready` whenever `file_descriptor` (borrowed) is readable, hung up or in error.
  [[nodiscard]] virtual Handle on_readable(int file_descriptor, Callback ready) = 0;
  // Calls `ready` whenever `file_descriptor` (borrowed) is writable.
  [[nodiscard]] virtual Handle on_writable(int file_descriptor, Callback ready) = 0;
  // Runs `work` on the loop's thread after the current callback. From any thread.
  virtual void post(Callback work) = 0;
};

}  // namespace tranche
