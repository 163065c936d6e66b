#include "linux/sd_event_reactor.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <systemd/sd-event.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <ctime>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "base/assert.h"
#include "linux/system_error.h"
#include "linux/unique_fd.h"

namespace tranche {

// Not in the anonymous namespace: SdEventReactor::State has members of this type.
struct UnrefEventSource {
  void operator()(sd_event_source* source) const { ::sd_event_source_disable_unref(source); }
};
using EventSource = std::unique_ptr<sd_event_source, UnrefEventSource>;

namespace {

int64_t read_clock(clockid_t clock) {
  timespec now = {};
  TRANCHE_ASSERT(::clock_gettime(clock, &now) == 0);
  return now.tv_sec * kSecond.count() + now.tv_nsec;
}

// A descriptor or a signal. The callback is shared, so that it may destroy its own Watch while it runs.
class SourceWatch final : public Reactor::Watch {
 public:
  explicit SourceWatch(Reactor::Callback ready)
      : ready_(std::make_shared<Reactor::Callback>(std::move(ready))) {}

  static int on_io(sd_event_source*, int, uint32_t, void* watch) { return dispatch(watch); }
  static int on_signal(sd_event_source*, const signalfd_siginfo*, void* watch) { return dispatch(watch); }

  // Of a descriptor that was registered already. Before `source`, so that it is closed after: epoll would go
  // on reporting a closed number for as long as the original is open.
  UniqueFd duplicate;
  EventSource source;

 private:
  static int dispatch(void* watch) {
    const auto ready = static_cast<SourceWatch*>(watch)->ready_;
    (*ready)();
    return 0;
  }

  std::shared_ptr<Reactor::Callback> ready_;
};

uint64_t microseconds_up(Duration duration) {
  return duration.count() <= 0 ? 0 : (static_cast<uint64_t>(duration.count()) + 999) / 1000;
}

}  // namespace

Duration SystemClock::since_boot() const { return Duration(read_clock(CLOCK_BOOTTIME)); }
Time SystemClock::wall() const { return Time(read_clock(CLOCK_REALTIME)); }

void block_service_signals() {
  sigset_t signals;
  ::sigemptyset(&signals);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) ::sigaddset(&signals, signal);
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
}

// Timers share one source of sd-event, which would fire those of one instant in any order.
struct SdEventReactor::State {
  using TimerKey = std::pair<Duration, uint64_t>;  // deadline, order of registration

  // Timers hold this weakly: they may outlive the reactor.
  struct Timers {
    std::map<TimerKey, Callback> waiting;
    uint64_t registrations = 0;
  };

  class TimerWatch final : public Watch {
   public:
    TimerWatch(std::weak_ptr<Timers> timers, TimerKey key) : timers_(std::move(timers)), key_(key) {}
    ~TimerWatch() override {
      if (const auto timers = timers_.lock()) timers->waiting.erase(key_);
    }

   private:
    std::weak_ptr<Timers> timers_;
    TimerKey key_;
  };

  ~State() {
    timer_source.reset();
    post_source.reset();
    ::sd_event_unref(loop);
  }

  Result<void> open();
  Handle add_io(int file_descriptor, uint32_t events, int enabled, Callback ready);
  void arm();
  void fire_due_timers();
  void run_posted();

  sd_event* loop = nullptr;
  EventSource timer_source;
  EventSource post_source;
  UniqueFd post_signal;
  SystemClock clock;
  std::shared_ptr<Timers> timers = std::make_shared<Timers>();
  bool stop_requested = false;

  std::mutex posted_mutex;
  std::vector<Callback> posted;  // guarded by posted_mutex
};

Result<void> SdEventReactor::State::open() {
  int status = ::sd_event_new(&loop);
  if (status < 0) return fail(system_error("making the event loop", -status));
  post_signal = UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!post_signal.is_open()) return fail(system_error("making the event loop's eventfd"));
  sd_event_source* source = nullptr;
  const auto on_post = [](sd_event_source*, int, uint32_t, void* state) {
    static_cast<State*>(state)->run_posted();
    return 0;
  };
  status = ::sd_event_add_io(loop, &source, post_signal.get(), EPOLLIN, on_post, this);
  if (status < 0) return fail(system_error("watching the event loop's eventfd", -status));
  post_source.reset(source);
  const auto on_time = [](sd_event_source*, uint64_t, void* state) {
    static_cast<State*>(state)->fire_due_timers();
    return 0;
  };
  status = ::sd_event_add_time(loop, &source, CLOCK_BOOTTIME, 0, /* accuracy= */ 1, on_time, this);
  if (status < 0) return fail(system_error("making the event loop's timer", -status));
  timer_source.reset(source);
  ::sd_event_source_set_enabled(source, SD_EVENT_OFF);
  return {};
}

void SdEventReactor::State::arm() {
  if (timers->waiting.empty()) {
    ::sd_event_source_set_enabled(timer_source.get(), SD_EVENT_OFF);
    return;
  }
  ::sd_event_source_set_time(timer_source.get(), microseconds_up(timers->waiting.begin()->first.first));
  ::sd_event_source_set_enabled(timer_source.get(), SD_EVENT_ONESHOT);
}

// Those due now, and not those that they make: descriptors get their turn in between.
void SdEventReactor::State::fire_due_timers() {
  const Duration now = clock.since_boot();
  const uint64_t newest = timers->registrations;
  auto next = timers->waiting.begin();
  while (next != timers->waiting.end() && next->first.first <= now) {
    if (next->first.second > newest) {
      ++next;
      continue;
    }
    const TimerKey fired = next->first;
    const Callback ready = std::move(next->second);
    timers->waiting.erase(next);
    ready();
    next = timers->waiting.upper_bound(fired);  // the callback may have changed anything
  }
  arm();
}

void SdEventReactor::State::run_posted() {
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t size = ::read(post_signal.get(), &count, sizeof count);
  std::vector<Callback> work;
  {
    const std::lock_guard lock(posted_mutex);
    work.swap(posted);
  }
  for (Callback& one : work) {
    one();
    one = nullptr;  // what it holds goes before the next one runs, as if each had been alone
  }
}

Reactor::Handle SdEventReactor::State::add_io(int file_descriptor, uint32_t events, int enabled,
                                              Callback ready) {
  auto watch = std::make_unique<SourceWatch>(std::move(ready));
  sd_event_source* source = nullptr;
  int status = ::sd_event_add_io(loop, &source, file_descriptor, events, &SourceWatch::on_io, watch.get());
  if (status == -EEXIST) {  // epoll knows a descriptor once; readable and writable may be asked apart
    watch->duplicate = UniqueFd(::fcntl(file_descriptor, F_DUPFD_CLOEXEC, 0));
    TRANCHE_ASSERT(watch->duplicate.is_open());
    status =
        ::sd_event_add_io(loop, &source, watch->duplicate.get(), events, &SourceWatch::on_io, watch.get());
  }
  TRANCHE_ASSERT(status >= 0);
  watch->source.reset(source);
  ::sd_event_source_set_enabled(source, enabled);
  return watch;
}

Result<std::unique_ptr<SdEventReactor>> SdEventReactor::create() {
  auto state = std::make_unique<State>();
  TRY(state->open());
  return std::unique_ptr<SdEventReactor>(new SdEventReactor(std::move(state)));
}

SdEventReactor::SdEventReactor(std::unique_ptr<State> state) : state_(std::move(state)) {}
SdEventReactor::~SdEventReactor() = default;

Reactor::Handle SdEventReactor::at(Duration deadline, Callback ready) {
  State::Timers& timers = *state_->timers;
  const State::TimerKey key{deadline, ++timers.registrations};
  const bool is_first = timers.waiting.empty() || key < timers.waiting.begin()->first;
  timers.waiting.emplace(key, std::move(ready));
  if (is_first) state_->arm();
  return std::make_unique<State::TimerWatch>(state_->timers, key);
}

Reactor::Handle SdEventReactor::on_readable(int file_descriptor, Callback ready) {
  return state_->add_io(file_descriptor, EPOLLIN, SD_EVENT_ON, std::move(ready));
}

Reactor::Handle SdEventReactor::on_writable(int file_descriptor, Callback ready) {
  return state_->add_io(file_descriptor, EPOLLOUT, SD_EVENT_ON, std::move(ready));
}

void SdEventReactor::post(Callback work) {
  bool was_empty = false;
  {
    const std::lock_guard lock(state_->posted_mutex);
    was_empty = state_->posted.empty();
    state_->posted.push_back(std::move(work));
  }
  if (!was_empty) return;  // the loop has been woken for the first of them
  const uint64_t one = 1;
  TRANCHE_ASSERT(::write(state_->post_signal.get(), &one, sizeof one) == sizeof one);
}

Reactor::Handle SdEventReactor::on_signal(int signal, Callback received) {
  sigset_t signals;
  ::sigemptyset(&signals);
  ::sigaddset(&signals, signal);
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  auto watch = std::make_unique<SourceWatch>(std::move(received));
  sd_event_source* source = nullptr;
  const int status =
      ::sd_event_add_signal(state_->loop, &source, signal, &SourceWatch::on_signal, watch.get());
  TRANCHE_ASSERT(status >= 0);
  watch->source.reset(source);
  return watch;
}

Reactor::Handle SdEventReactor::on_child_exit(int pidfd, Callback exited) {
  return state_->add_io(pidfd, EPOLLIN, SD_EVENT_ONESHOT, std::move(exited));
}

Result<void> SdEventReactor::run() {
  state_->stop_requested = false;
  while (!state_->stop_requested) {
    const int status = ::sd_event_run(state_->loop, UINT64_MAX);
    if (status < 0) return fail(system_error("running the event loop", -status));
  }
  return {};
}

void SdEventReactor::stop() {
  post([state = state_.get()] { state->stop_requested = true; });
}

bool SdEventReactor::enable_watchdog() { return ::sd_event_set_watchdog(state_->loop, 1) > 0; }

}  // namespace tranche
