// Virtual time for deterministic runs. Clients run one at a time; whoever sleeps or waits gives its turn to
// the client that wakes earliest (the lower number first), and time jumps there. Equal programs with equal
// seeds make equal histories, and an hour of load takes as long as its bookkeeping.
//
// A client that dies with its turn is noticed by those that wait, within kAliveCheckMs of real time.

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <ctime>

#include "emulator/device_model.h"
#include "emulator/robust_lock.h"

namespace tranche::emulator {
namespace {

constexpr long kAliveCheckMs = 100;
constexpr int32_t kNobody = -1;

uint32_t* futex_of(std::atomic<uint32_t>& value) { return reinterpret_cast<uint32_t*>(&value); }

void wait_for_change(std::atomic<uint32_t>& word, uint32_t seen) {
  const timespec limit{0, kAliveCheckMs * 1'000'000};
  syscall(SYS_futex, futex_of(word), FUTEX_WAIT, seen, &limit, nullptr, 0);
}

void wake(std::atomic<uint32_t>& word) {
  word.fetch_add(1);
  syscall(SYS_futex, futex_of(word), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace

void DeviceModel::start_lock_step(uint32_t count) {
  SharedLockStep& step = state_->lock_step;
  RobustLock lock(step.lock, [] {});
  step.expected = std::min<uint32_t>(count, static_cast<uint32_t>(step.clients.size()));
  step.joined = 0;
  step.turn.store(kNobody);
  step.now_ns.store(monotonic_now());
  step.is_on.store(1, std::memory_order_release);
}

// Gives the turn to whoever wakes earliest. The lock is held.
void DeviceModel::pass_turn() {
  SharedLockStep& step = state_->lock_step;
  step.turn.store(kNobody);
  if (step.joined < step.expected) return;
  int32_t next = kNobody;
  for (uint32_t i = 0; i < step.expected; ++i) {
    if (step.clients[i].is_waiting == 0) continue;
    if (next == kNobody || step.clients[i].wake_ns < step.clients[static_cast<size_t>(next)].wake_ns) {
      next = static_cast<int32_t>(i);
    }
  }
  if (next == kNobody) return;
  SharedLockStep::Client& client = step.clients[static_cast<size_t>(next)];
  step.now_ns.store(std::max(step.now_ns.load(), client.wake_ns));
  client.is_waiting = 0;
  step.turn.store(next);
  wake(client.wake);
}

void DeviceModel::await_turn() {
  SharedLockStep& step = state_->lock_step;
  std::atomic<uint32_t>& word = step.clients[static_cast<size_t>(lock_step_client_)].wake;
  while (step.turn.load() != lock_step_client_) {
    const uint32_t seen = word.load();
    if (step.turn.load() == lock_step_client_) return;
    wait_for_change(word, seen);
    const int32_t turn = step.turn.load();
    if (turn == lock_step_client_) return;
    int32_t pid = 0;
    const bool is_lost = turn == kNobody ? step.joined >= step.expected
                                         : !is_alive(step.clients[static_cast<size_t>(turn)].slot, pid);
    if (!is_lost) continue;
    RobustLock lock(step.lock, [] {});
    if (step.turn.load() == turn) pass_turn();
  }
}

void DeviceModel::join_lock_step(uint32_t client, uint32_t slot) {
  SharedLockStep& step = state_->lock_step;
  if (client >= step.clients.size()) return;
  lock_step_client_ = static_cast<int32_t>(client);
  {
    RobustLock lock(step.lock, [] {});
    step.clients[client].slot = slot;
    step.clients[client].wake_ns = step.now_ns.load();
    step.clients[client].is_waiting = 1;
    ++step.joined;
    if (step.joined >= step.expected && step.turn.load() == kNobody) pass_turn();
  }
  await_turn();
}

void DeviceModel::leave_lock_step() {
  if (lock_step_client_ < 0) return;
  SharedLockStep& step = state_->lock_step;
  RobustLock lock(step.lock, [] {});
  step.clients[static_cast<size_t>(lock_step_client_)].is_waiting = 0;
  lock_step_client_ = -1;
  pass_turn();
}

void DeviceModel::sleep_in_lock_step(uint64_t time_ns) {
  SharedLockStep& step = state_->lock_step;
  {
    RobustLock lock(step.lock, [] {});
    SharedLockStep::Client& own = step.clients[static_cast<size_t>(lock_step_client_)];
    own.wake_ns = std::max(time_ns, step.now_ns.load());
    own.is_waiting = 1;
    pass_turn();
  }
  await_turn();
}

void DeviceModel::sleep_until_time(uint64_t time_ns) {
  if (lock_step_client_ >= 0) {
    sleep_in_lock_step(time_ns);
    return;
  }
  timespec deadline;
  deadline.tv_sec = static_cast<time_t>(time_ns / 1'000'000'000);
  deadline.tv_nsec = static_cast<long>(time_ns % 1'000'000'000);
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &deadline, nullptr) == EINTR) continue;
}

}  // namespace tranche::emulator
