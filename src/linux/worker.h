// Somewhere to do work that may block, as a seam: a thread of its own (worker_thread.h), or, in simulation,
// at once on the loop's thread (InlineWorker).
#pragma once

#include <functional>

#include "base/reactor.h"
#include "base/result.h"

namespace tranche {

class Worker {
 public:
  using Work = std::function<Result<void>()>;
  using Done = std::function<void(const Result<void>&)>;

  virtual ~Worker() = default;
  // Does `work` after what was submitted before, then calls `done` on the loop's thread, never from inside
  // this call. On an error nothing is queued and `done` is not called.
  virtual Result<void> submit(Work work, Done done) = 0;
};

// Does the work inside submit() and answers after the loop's current callback: no thread, so the same calls
// give the same history.
class InlineWorker final : public Worker {
 public:
  // `reactor` outlives this; a `done` that is still posted when this goes is dropped.
  explicit InlineWorker(Reactor& reactor) : reactor_(reactor) {}

  Result<void> submit(Work work, Done done) override {
    auto result = std::make_shared<Result<void>>(work());
    reactor_.post([alive = std::weak_ptr(alive_), result, done = std::move(done)] {
      if (!alive.expired()) done(*result);
    });
    return {};
  }

 private:
  Reactor& reactor_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace tranche
