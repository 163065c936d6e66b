// A Reactor on virtual time: tests and the simulated daemon move it by hand.
#pragma once

#include <deque>
#include <map>
#include <utility>

#include "base/reactor.h"

namespace tranche {

class ManualReactor final : public Reactor {
 public:
  explicit ManualReactor(Time wall) : clock_(wall) {}

  const Clock& clock() const override { return clock_; }
  ManualClock& manual_clock() { return clock_; }
  Handle at(Duration deadline, Callback ready) override;
  // File descriptors do not exist in simulated time: registrations are kept and never fire.
  Handle on_readable(int file_descriptor, Callback ready) override;
  Handle on_writable(int file_descriptor, Callback ready) override;
  void post(Callback work) override { posted_.push_back(std::move(work)); }

  // Runs posted work and due timers until nothing is left to do at this instant.
  void settle();
  // Moves time to `until` (since boot), firing every timer on the way at its own instant.
  void run_until(Duration until);
  // Whether a timer is armed; if so, its deadline in `deadline`.
  bool next_deadline(Duration* deadline) const;

 private:
  class Timer;
  using Key = std::pair<Duration, uint64_t>;  // deadline, order of registration

  ManualClock clock_;
  std::map<Key, Callback> timers_;
  std::deque<Callback> posted_;
  uint64_t registrations_ = 0;
};

}  // namespace tranche
