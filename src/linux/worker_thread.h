// One thread for work that may block (a disk's sync), fed from the loop's thread and answering there.
//
// Work is done in the order of submission, in groups: all that is queued when the thread turns to the queue
// is one group, between `begin` and `end`; that is what makes a group commit. Then every `done` of the group
// runs on the loop's thread, in order, with the group's result. Threading: construct, submit and destroy on
// the loop's thread; work, begin and end run on the worker. The signals that the loop handles must be blocked
// before construction (block_service_signals).
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "base/reactor.h"
#include "base/result.h"
#include "linux/worker.h"

namespace tranche {

class WorkerThread final : public Worker {
 public:
  struct Options {
    std::string name;                     // shown by ps and gdb; 15 bytes at most
    size_t queue_capacity = 8192;         // items queued, not yet begun
    size_t group_size_max = 1024;         // items in one group
    std::function<Result<void>()> begin;  // optional; if it fails the group's work is skipped
    // Optional; given the result of begin and work, returns the group's: commits, or rolls back and passes it
    // on.
    std::function<Result<void>(Result<void>)> end;
  };

  // `reactor` must outlive this.
  WorkerThread(Reactor& reactor, Options options);
  // Finishes what is queued, then joins. The `done`s of that last work are posted and run if the loop still
  // turns.
  ~WorkerThread() override;

  WorkerThread(const WorkerThread&) = delete;
  WorkerThread& operator=(const WorkerThread&) = delete;

  // Queues `work`. `over_limit` when the queue is full: nothing is queued, `done` is not called.
  // The first work that fails fails its group: the rest of the group is skipped and all get that error.
  Result<void> submit(Work work, Done done) override;

  // Items queued or being worked on, whose `done` has not been posted yet.
  size_t backlog() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tranche
