#include "base/manual_reactor.h"

namespace tranche {

class ManualReactor::Timer final : public Reactor::Watch {
 public:
  Timer(ManualReactor& reactor, Key key) : reactor_(reactor), key_(key) {}
  ~Timer() override { reactor_.timers_.erase(key_); }

 private:
  ManualReactor& reactor_;
  Key key_;
};

Reactor::Handle ManualReactor::at(Duration deadline, Callback ready) {
  const Key key{deadline, ++registrations_};
  timers_.emplace(key, std::move(ready));
  return std::make_unique<Timer>(*this, key);
}

Reactor::Handle ManualReactor::on_readable(int, Callback) { return std::make_unique<Watch>(); }
Reactor::Handle ManualReactor::on_writable(int, Callback) { return std::make_unique<Watch>(); }

void ManualReactor::settle() {
  while (true) {
    if (!posted_.empty()) {
      const Callback work = std::move(posted_.front());
      posted_.pop_front();
      work();
    } else if (!timers_.empty() && timers_.begin()->first.first <= clock_.since_boot()) {
      const Callback ready = std::move(timers_.begin()->second);
      timers_.erase(timers_.begin());
      ready();
    } else {
      return;
    }
  }
}

void ManualReactor::run_until(Duration until) {
  settle();
  Duration deadline;
  while (next_deadline(&deadline) && deadline <= until) {
    clock_.advance(deadline - clock_.since_boot());
    settle();
  }
  if (until > clock_.since_boot()) clock_.advance(until - clock_.since_boot());
  settle();
}

bool ManualReactor::next_deadline(Duration* deadline) const {
  if (timers_.empty()) return false;
  *deadline = timers_.begin()->first.first;
  return true;
}

}  // namespace tranche
