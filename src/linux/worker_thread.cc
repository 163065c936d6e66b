#include "linux/worker_thread.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <iterator>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace tranche {

struct WorkerThread::State {
  struct Item {
    Work work;
    Done done;
  };
  using Group = std::vector<Item>;

  State(Reactor& loop, Options given) : reactor(loop), options(std::move(given)) {}

  void serve();
  bool take_group(Group& group);
  Result<void> perform(Group& group);

  Reactor& reactor;
  const Options options;
  std::atomic<size_t> backlog = 0;

  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Item> queue;  // guarded by mutex
  bool is_ending = false;  // guarded by mutex

  std::thread thread;
};

// Waits for work. False when there will be no more.
bool WorkerThread::State::take_group(Group& group) {
  std::unique_lock lock(mutex);
  changed.wait(lock, [this] { return is_ending || !queue.empty(); });
  const size_t size = std::min(queue.size(), options.group_size_max);
  const auto end = queue.begin() + static_cast<std::ptrdiff_t>(size);
  group.assign(std::make_move_iterator(queue.begin()), std::make_move_iterator(end));
  queue.erase(queue.begin(), end);
  return size > 0;
}

Result<void> WorkerThread::State::perform(Group& group) {
  Result<void> outcome;
  if (options.begin) outcome = options.begin();
  for (Item& item : group) {
    if (!outcome) break;
    outcome = item.work();
  }
  if (options.end) outcome = options.end(std::move(outcome));
  return outcome;
}

void WorkerThread::State::serve() {
  ::pthread_setname_np(::pthread_self(), options.name.substr(0, 15).c_str());
  Group group;
  while (take_group(group)) {
    // Shared, because std::function wants to be copyable.
    const auto outcome = std::make_shared<Result<void>>(perform(group));
    const auto dones = std::make_shared<std::vector<Done>>();
    for (Item& item : group) {
      if (item.done) dones->push_back(std::move(item.done));
    }
    backlog -= group.size();
    group.clear();
    reactor.post([outcome, dones] {
      for (const Done& done : *dones) done(*outcome);
    });
  }
}

WorkerThread::WorkerThread(Reactor& reactor, Options options)
    : state_(std::make_unique<State>(reactor, std::move(options))) {
  state_->thread = std::thread([state = state_.get()] { state->serve(); });
}

WorkerThread::~WorkerThread() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->is_ending = true;
  }
  state_->changed.notify_one();
  state_->thread.join();
}

Result<void> WorkerThread::submit(Work work, Done done) {
  {
    const std::lock_guard lock(state_->mutex);
    if (state_->queue.size() >= state_->options.queue_capacity) {
      return fail(ErrorCode::over_limit, state_->options.name + " has " +
                                             std::to_string(state_->queue.size()) +
                                             " items waiting: try again in a moment");
    }
    state_->queue.push_back({std::move(work), std::move(done)});
    ++state_->backlog;
  }
  state_->changed.notify_one();
  return {};
}

size_t WorkerThread::backlog() const { return state_->backlog; }

}  // namespace tranche
