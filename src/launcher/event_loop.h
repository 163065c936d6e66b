// The root side's event loop: epoll and nothing else, since these programs link libc only. Launcher and
// shepherd each have one, on their single thread.
#pragma once

#include <sys/epoll.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <unordered_map>

#include "isolation/file.h"

namespace tranche::launcher {

class EventLoop {
 public:
  using Callback = std::function<void(uint32_t events)>;  // EPOLLIN...

  EventLoop();

  // `file` is borrowed: forget() it before it is closed. Callbacks may watch and forget anything.
  void watch(int file, uint32_t events, Callback callback);
  void change(int file, uint32_t events);
  void forget(int file);

  // Waits for one event and handles it.
  void run_once();

 private:
  isolation::FileDescriptor epoll_;
  std::unordered_map<int, std::shared_ptr<Callback>> callbacks_;
};

// One timer on CLOCK_BOOTTIME, which goes on while the machine sleeps.
class BootTimer {
 public:
  BootTimer(EventLoop& loop, std::function<void()> expired);
  ~BootTimer();
  BootTimer(const BootTimer&) = delete;
  BootTimer& operator=(const BootTimer&) = delete;

  // 0 disarms.
  void arm(uint64_t deadline_ns);

 private:
  EventLoop& loop_;
  isolation::FileDescriptor timer_;
  uint64_t armed_ns_ = 0;
};

// CLOCK_BOOTTIME in ns.
uint64_t boot_time_ns();

// Blocks `signals` and returns a descriptor that reports them.
isolation::FileDescriptor make_signal_file(std::initializer_list<int> signals);
constexpr uint64_t signal_bit(int signal) { return uint64_t{1} << signal; }
// Reads and drops what it has to report; returns all of it, a bit each: a SIGTERM may come with a SIGCHLD.
uint64_t drain_signal_file(int file);

// Field 22 of /proc/PID/stat; 0 if there is no such process.
uint64_t process_start_ticks(int pid);

}  // namespace tranche::launcher
