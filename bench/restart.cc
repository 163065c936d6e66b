// bench-restart FOLDER [JOBS [LIVE]]: how long the daemon takes to come back with a journal of JOBS ended and
// LIVE waiting jobs, from all rows and through a snapshot, and how long its loop pauses to take one. FOLDER
// is new and stays. The journal is made by the daemon's own engine, with payloads and idempotency keys; what
// is timed is Daemon::create, all of it, in this process.
#include <sys/resource.h>
#include <time.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/manual_reactor.h"
#include "gpu/simulated_host.h"
#include "linux/database.h"
#include "linux/digest.h"
#include "linux/log.h"
#include "machine/daemon.h"
#include "machine/simulated_task_host.h"
#include "machine/tables_archive.h"
#include "measure.h"

namespace tranche::bench {
namespace {

using namespace machine;

constexpr Time kStart{1'800'000'000'000'000'000};
constexpr uint32_t kGpus = 8;

// Of this process: what others do on the machine is not in it.
int64_t processor_ns() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

void must(const Result<void>& result) {
  if (result) return;
  std::fprintf(stderr, "bench-restart: %s\n", result.error().message().c_str());
  std::exit(1);
}

// Jobs that end as soon as they start: their rows, not their time, are what is wanted.
class History final : private StepObserver {
 public:
  explicit History(const std::string& folder) : reactor_(kStart) {
    auto opened = Journal::open(folder, reactor_, std::make_unique<InlineWorker>(reactor_), MiB());
    if (!opened) must(fail(std::move(opened).error()));
    journal_ = std::move(*opened);
    engine_ = std::make_unique<Engine>(reactor_, *journal_);
    engine_->resume();
    engine_->add_observer(*this);
    must(journal_->write_note_now("boot_id", "boot"));
    engine_->record(PolicyChanged{});
    engine_->record(NodeAdded{Node{NodeId(1), "node", "", MilliCpu(64'000), MiB(512'000), {}}});
    for (uint32_t i = 1; i <= kGpus; ++i) {
      Gpu gpu;
      gpu.id = GpuId(i);
      gpu.node = NodeId(1);
      gpu.uuid = "GPU-" + std::to_string(i);
      gpu.index = gpu.minor = i - 1;
      gpu.type = "h100-80";
      gpu.memory_usable = MiB(80'000);
      engine_->record(GpuAdded{gpu});
    }
  }

  void submit(bool held) {
    const uint64_t number = engine_->jobs().next_id().value();
    api::SubmitRequest request;
    request.argv = {"python3", "train.py", "--seed", std::to_string(number)};
    request.directory = "/home/user" + std::to_string(number % 20) + "/experiments";
    request.environment = {
        {"PATH", "/usr/local/bin:/usr/bin:/bin"}, {"HOME", "/home/user"}, {"LANG", "C.UTF-8"}};
    JobSpec spec;
    spec.owner = {static_cast<uint32_t>(2000 + number % 20), 100, "user" + std::to_string(number % 20)};
    spec.queue = "default/" + spec.owner.user;
    spec.task.gpu.count = 1;
    spec.task.cpu = MilliCpu(1000);
    spec.time_limit = kHour;
    spec.held = held;
    const std::string content = api::encode(request);
    spec.payload_hash = sha256_hex(content);
    Engine::Attachment attachment;
    attachment.payload = StoredPayload{spec.payload_hash, "train", content};
    attachment.idempotency = IdempotencyKey{spec.owner.uid, "key-" + std::to_string(number)};
    attachment.request = std::make_shared<const api::SubmitRequest>(std::move(request));
    engine_->record(JobSubmitted{JobId(number), spec, {}}, std::move(attachment));
    while (!started_.empty()) finish(std::exchange(started_, {}));
    if (number % 1000 == 0) pass();
  }
  void pass() { reactor_.run_until(reactor_.clock().since_boot() + kSecond); }
  Engine& engine() { return *engine_; }

 private:
  void on_step(const JournalRow& row) override {
    for (const Decision& decision : row.decisions) {
      if (const auto* start = std::get_if<Start>(&decision)) started_.push_back(*start);
    }
  }
  void on_durable(const JournalRow&) override {}
  void finish(const std::vector<Start>& starts) {
    for (const Start& start : starts) {
      engine_->record(TaskStarted{start.task});
      engine_->record(TaskExited{start.task, ExitCause::exited, 0, 0});
      for (const Slice& slice : start.slices) engine_->record(SliceReleased{start.task, slice.gpu});
    }
  }

  ManualReactor reactor_;
  std::unique_ptr<Journal> journal_;
  std::unique_ptr<Engine> engine_;
  std::vector<Start> started_;
};

struct Spent {
  int64_t elapsed_ms = 0;
  int64_t processor_ms = 0;
};
void print_spent(const char* what, Spent spent) {
  std::printf("  %s: %lld ms, %lld of the processor\n", what, static_cast<long long>(spent.elapsed_ms),
              static_cast<long long>(spent.processor_ms));
}

// A daemon's whole recovery.
Spent restart(const std::string& folder, uint32_t snapshot_rows, bool takes_snapshot) {
  ManualReactor reactor{kStart + kDay};
  SimulatedHost gpus(reactor, SimulatedHost::board("h100-80", kGpus));
  SimulatedTaskHost tasks(reactor, [](const LaunchPlan&) { return SimulatedTaskHost::Behaviour(); });
  UserDirectory users(reactor.clock());
  DaemonConfig config;
  config.state_dir = folder;
  config.journal_ballast = MiB(1);
  config.snapshot_rows = snapshot_rows;
  const int64_t began = monotonic_ns(), began_working = processor_ns();
  auto daemon =
      Daemon::create({reactor, gpus, tasks, users, config, "boot", std::make_unique<InlineWorker>(reactor),
                      [config]() -> Result<DaemonConfig> { return config; }});
  const int64_t ended = monotonic_ns(), ended_working = processor_ns();
  if (!daemon) must(fail(std::move(daemon).error()));
  if (takes_snapshot) {
    (*daemon)->finish([] {});
    reactor.run_until(reactor.clock().since_boot() + kMinute);
  }
  return {(ended - began) / 1'000'000, (ended_working - began_working) / 1'000'000};
}

// What the loop's pause consists of.
void print_pause(Engine& engine) {
  Samples spans;
  size_t bytes = 0;
  for (int i = 0; i < 10; ++i) {
    const int64_t began = processor_ns();
    bytes = save_tables(engine.jobs(), engine.faults()).size() + engine.scheduler().save().size();
    spans.add(processor_ns() - began);
  }
  std::printf(
      "  pause to take a snapshot: %lld us of the processor with %zu live jobs (median of 10; %zu bytes)\n",
      static_cast<long long>(spans.percentile(50) / 1000), engine.jobs().live().size(), bytes);
}

int run(const std::string& folder, int64_t jobs, int64_t live) {
  std::filesystem::create_directory(folder);
  set_log_sink([](LogLevel, std::string_view) {});
  uint64_t rows = 0;
  {
    History history(folder);
    for (int64_t i = 0; i < jobs; ++i) history.submit(false);
    for (int64_t i = 0; i < live; ++i) history.submit(true);
    history.pass();
    rows = history.engine().last_seq().value();
    std::printf("%lld ended and %lld waiting jobs, %llu rows\n", static_cast<long long>(jobs),
                static_cast<long long>(live), static_cast<unsigned long long>(rows));
    print_pause(history.engine());
  }
  print_spent("restart from all rows", restart(folder, 0, false));
  (void)restart(folder, 1, true);
  for (int i = 0; i < 3; ++i) print_spent("restart through a snapshot", restart(folder, 0, false));
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  std::printf("  most memory of this process: %ld MiB\n", usage.ru_maxrss / 1024);
  return 0;
}

}  // namespace
}  // namespace tranche::bench

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: bench-restart FOLDER [JOBS [LIVE]]\n");
    return 2;
  }
  return tranche::bench::run(argv[1], argc > 2 ? std::atoll(argv[2]) : 100'000,
                             argc > 3 ? std::atoll(argv[3]) : 1'000);
}
