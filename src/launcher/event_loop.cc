#include "launcher/event_loop.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>

#include "base/assert.h"

namespace tranche::launcher {

using isolation::FileDescriptor;

EventLoop::EventLoop() : epoll_(::epoll_create1(EPOLL_CLOEXEC)) { TRANCHE_ASSERT(epoll_); }

void EventLoop::watch(int file, uint32_t events, Callback callback) {
  epoll_event event{};
  event.events = events;
  event.data.fd = file;
  const int operation = callbacks_.contains(file) ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;
  callbacks_[file] = std::make_shared<Callback>(std::move(callback));
  ::epoll_ctl(epoll_.get(), operation, file, &event);
}

void EventLoop::change(int file, uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.fd = file;
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, file, &event);
}

void EventLoop::forget(int file) {
  if (callbacks_.erase(file) != 0) ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, file, nullptr);
}

void EventLoop::run_once() {
  // One at a time: a batch could hold an event of a descriptor that an earlier callback closed and reused.
  epoll_event event{};
  if (::epoll_wait(epoll_.get(), &event, 1, -1) != 1) return;
  const auto found = callbacks_.find(event.data.fd);
  if (found == callbacks_.end()) return;
  const std::shared_ptr<Callback> callback = found->second;
  (*callback)(event.events);
}

BootTimer::BootTimer(EventLoop& loop, std::function<void()> expired)
    : loop_(loop), timer_(::timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK)) {
  TRANCHE_ASSERT(timer_);
  loop_.watch(timer_.get(), EPOLLIN, [this, expired = std::move(expired)](uint32_t) {
    uint64_t count = 0;
    if (::read(timer_.get(), &count, sizeof count) < 0) return;
    armed_ns_ = 0;
    expired();
  });
}

BootTimer::~BootTimer() { loop_.forget(timer_.get()); }

void BootTimer::arm(uint64_t deadline_ns) {
  if (deadline_ns == armed_ns_) return;
  itimerspec when{};
  when.it_value.tv_sec = static_cast<time_t>(std::min<uint64_t>(deadline_ns / 1'000'000'000, INT64_MAX));
  when.it_value.tv_nsec = static_cast<long>(deadline_ns % 1'000'000'000);
  ::timerfd_settime(timer_.get(), TFD_TIMER_ABSTIME, &when, nullptr);
  armed_ns_ = deadline_ns;
}

uint64_t boot_time_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_BOOTTIME, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

FileDescriptor make_signal_file(std::initializer_list<int> signals) {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : signals) sigaddset(&set, signal);
  ::sigprocmask(SIG_SETMASK, &set, nullptr);
  return FileDescriptor(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
}

uint64_t drain_signal_file(int file) {
  signalfd_siginfo info{};
  uint64_t signals = 0;
  while (::read(file, &info, sizeof info) == sizeof info)
    signals |= signal_bit(static_cast<int>(info.ssi_signo));
  return signals;
}

uint64_t process_start_ticks(int pid) {
  const auto text = isolation::read_text_at(AT_FDCWD, ("/proc/" + std::to_string(pid) + "/stat").c_str());
  if (!text) return 0;
  // The command in parentheses may hold blanks and parentheses itself: count from the last one.
  size_t position = text->rfind(')');
  for (int field = 2; field < 22 && position != std::string::npos; ++field)
    position = text->find(' ', position + 1);
  if (position == std::string::npos) return 0;
  uint64_t ticks = 0;
  std::from_chars(text->data() + position + 1, text->data() + text->size(), ticks);
  return ticks;
}

}  // namespace tranche::launcher
