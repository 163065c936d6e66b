// The whole daemon on virtual time, with GPUs and tasks that a test decides about.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/manual_reactor.h"
#include "gpu/simulated_host.h"
#include "linux/log.h"
#include "machine/daemon.h"
#include "machine/simulated_task_host.h"

namespace tranche::machine {

class NamedUsers final : public UserDirectory {
 public:
  using UserDirectory::UserDirectory;

 protected:
  std::optional<UserRecord> look_up(uint32_t uid) override {
    return UserRecord{uid == 1500 ? "eve" : "user" + std::to_string(uid), uid, "/home", "/bin/sh"};
  }
};

class DaemonFixture : public ::testing::Test {
 protected:
  explicit DaemonFixture(std::vector<DiscoveredGpu> gpus = SimulatedHost::board("h100-80", 2))
      : reactor_(Time(1'800'000'000'000'000'000)),
        gpus_(reactor_, std::move(gpus)),
        users_(reactor_.clock()),
        tasks_(reactor_, [this](const LaunchPlan&) { return behaviour_; }) {
    set_log_sink([](LogLevel, std::string_view) {});
    char folder[] = "/dev/shm/tranche-daemon-XXXXXX";
    config_.state_dir = ::mkdtemp(folder);
    config_.journal_ballast = MiB(1);
  }
  ~DaemonFixture() override {
    stop_daemon();
    std::filesystem::remove_all(config_.state_dir);
    set_log_sink({});
  }

  // Who answers for device memory; null: nobody does.
  virtual MemoryArbiter* arbiter() { return nullptr; }

  void start_daemon(const std::string& boot = "boot") {
    auto created = Daemon::create({reactor_, gpus_, tasks_, users_, config_, boot,
                                   std::make_unique<InlineWorker>(reactor_),
                                   [this]() -> Result<DaemonConfig> { return config_; }, arbiter()});
    ASSERT_TRUE(created) << created.error().message();
    daemon_ = std::move(*created);
    daemon_->start([] {});
    tasks_.connect(&daemon_->listener());
    daemon_->listener().on_connected();
    pass(100 * kMillisecond);
  }
  void stop_daemon() {
    tasks_.connect(nullptr);
    daemon_.reset();
  }
  void pass(Duration time) { reactor_.run_until(reactor_.clock().since_boot() + time); }

  Engine& engine() { return daemon_->engine(); }
  scheduler::GpuView gpu(uint32_t index) { return engine().scheduler().gpus().at(index); }

  JobId submit(uint32_t gpus = 1) {
    JobSpec spec;
    spec.owner = {2001, 2001, "user2001"};
    spec.queue = "default/user2001";
    spec.task.gpu.count = gpus;
    return submit(std::move(spec));
  }
  JobId submit(JobSpec spec) {
    spec.time_limit = kHour;
    spec.payload_hash = "none";
    const JobId id = engine().jobs().next_id();
    Engine::Attachment attachment;
    api::SubmitRequest request;
    request.argv = {"train"};
    request.directory = "/home";
    attachment.payload = StoredPayload{"none", "train", api::encode(request)};
    attachment.request = std::make_shared<const api::SubmitRequest>(std::move(request));
    engine().record(JobSubmitted{id, spec, {}}, std::move(attachment));
    return id;
  }

  ManualReactor reactor_;
  SimulatedHost gpus_;
  NamedUsers users_;
  SimulatedTaskHost::Behaviour behaviour_;  // of tasks that start from now on
  SimulatedTaskHost tasks_;
  DaemonConfig config_;
  std::unique_ptr<Daemon> daemon_;
};

}  // namespace tranche::machine
