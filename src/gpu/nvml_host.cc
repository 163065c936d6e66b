#include "gpu/nvml_host.h"

#include <algorithm>
#include <utility>

#include "base/assert.h"
#include "gpu/nvml_calls.h"
#include "gpu/sampler_values.h"

namespace tranche {
namespace {

constexpr size_t kUserNamesMax = 4096;
constexpr size_t kChecksMax = 1024;
constexpr size_t kStuckProcessesMax = 4;

std::string name_of(uint32_t index) { return "GPU " + std::to_string(index); }

std::string milliseconds(Duration duration) {
  return std::to_string(duration.count() / kMillisecond.count());
}

// What later readings are held against; unknown where the GPU was not described.
std::optional<uint64_t> described_layout(const sampler::Gpu& message) {
  if ((message.known & sampler::kKnownMinor) == 0) return std::nullopt;
  return message.layout;
}

}  // namespace

NvmlHost::NvmlHost(Reactor& reactor, NvmlHostOptions options)
    : reactor_(reactor),
      options_(std::move(options)),
      reaper_(reactor),
      restart_delay_(options_.restart_delay_min),
      indices_retry_delay_(options_.retry_delay_min),
      probe_(reactor, reaper_),
      alive_(std::make_shared<NvmlHost*>(this)) {
  TRANCHE_ASSERT(!options_.sampler_program.empty());
  // A healthy GPU must have had the time to answer before one that is stuck is compared with it.
  options_.call_deadline = std::max(options_.call_deadline, 2 * options_.sample_period);
}

NvmlHost::~NvmlHost() = default;

void NvmlHost::post(Reactor::Callback work) {
  reactor_.post([alive = std::weak_ptr(alive_), work = std::move(work)] {
    if (const auto host = alive.lock()) work();
  });
}

// --- The sampler's life ---------------------------------------------------------------------------------

void NvmlHost::start_sampler() {
  restart_timer_.reset();
  stop_sampler();
  if (reaper_.waiting() >= kStuckProcessesMax) {
    const std::string reason =
        "several samplers cannot be ended because the driver holds them; see the kernel log";
    if (!discovered_) return fail_inventory(ErrorCode::unavailable, reason);
    return restart(reason, false);
  }
  std::vector<std::string> arguments = sampler_arguments();
  for (const uint32_t index : skip_indices_) {
    arguments.insert(arguments.end(), {"--skip-index", std::to_string(index)});
  }
  for (const auto& [index, device] : devices_) {
    if (device.let_go_index) {
      arguments.insert(arguments.end(), {"--skip-index", std::to_string(*device.let_go_index)});
    } else if (device.skipped) {
      arguments.insert(arguments.end(), {"--skip-uuid", device.gpu.uuid});
    }
  }
  arriving_gpus_.clear();
  arriving_problems_.clear();
  arriving_mig_devices_.clear();
  started_at_ = now();
  phase_ = Phase::kInventory;
  auto link = SamplerLink::start(reactor_, reaper_, *this, options_.sampler_program, std::move(arguments));
  if (!link) {
    const std::string reason = link.error().message();
    if (!discovered_) return fail_inventory(ErrorCode::unavailable, reason);
    return restart(reason, false);
  }
  link_ = std::move(*link);
  silence_timer_ = reactor_.at(now() + options_.progress_deadline,
                               [this] { restart("tranche-sampler has stopped answering", false); });
  inventory_timer_ = reactor_.at(now() + options_.inventory_deadline, [this] {
    const std::string reason = "the NVIDIA driver has not answered within " +
                               std::to_string(options_.inventory_deadline.count() / kSecond.count()) +
                               " s; see `nvidia-smi` and the kernel log";
    if (!discovered_) return fail_inventory(ErrorCode::timed_out, reason);
    restart(reason, false);
  });
}

std::vector<std::string> NvmlHost::sampler_arguments() const {
  std::vector<std::string> arguments{"--period-ms",   milliseconds(options_.sample_period),
                                     "--progress-ms", milliseconds(options_.progress_period),
                                     "--proc-root",   options_.proc_root,
                                     "--sysfs-root",  options_.sysfs_root,
                                     "--dev-root",    options_.dev_root};
  if (!options_.library_dir.empty())
    arguments.insert(arguments.end(), {"--library-dir", options_.library_dir});
  return arguments;
}

void NvmlHost::stop_sampler() {
  silence_timer_.reset();
  inventory_timer_.reset();
  if (link_) {
    link_->silence();
    // This may run inside one of the link's own calls, so the link goes after them.
    ended_links_.push_back(std::move(link_));
    post([this] { ended_links_.clear(); });
  }
  for (auto& [index, device] : devices_) device.sampler_index.reset();
  fail_checks("readings are being started again; ask again in a moment");
}

void NvmlHost::restart(const std::string& reason, bool at_once) {
  problem_ = reason;
  stop_sampler();
  ++restarts_;
  phase_ = Phase::kWaiting;
  // One that has run well for long starts afresh.
  if (now() - started_at_ > options_.restart_delay_max) restart_delay_ = options_.restart_delay_min;
  const Duration delay = at_once ? Duration(0) : restart_delay_;
  if (!at_once) restart_delay_ = std::min(options_.restart_delay_max, 2 * restart_delay_);
  restart_timer_ = reactor_.at(now() + delay, [this] { start_sampler(); });
}

void NvmlHost::sampler_ended(const std::string& reason) {
  // While nothing has been discovered nobody waits for readings: discover() starts it again.
  if (!discovered_) return fail_inventory(ErrorCode::unavailable, reason + "; see the log");
  restart(reason, false);
}

// --- Inventory ------------------------------------------------------------------------------------------

void NvmlHost::discover(InventoryCallback done) {
  if (discovered_) {
    post([this, done = std::move(done)] { done(GpuInventory(inventory_)); });
    return;
  }
  waiting_for_inventory_.push_back(std::move(done));
  if (phase_ == Phase::kIdle)
    post([this] {
      if (phase_ == Phase::kIdle) start_sampler();
    });
}

void NvmlHost::fail_inventory(ErrorCode code, const std::string& reason) {
  problem_ = reason;
  stop_sampler();
  phase_ = Phase::kIdle;
  const std::vector<InventoryCallback> waiting = std::exchange(waiting_for_inventory_, {});
  for (const InventoryCallback& done : waiting) {
    post([done, code, reason] { done(fail(code, reason)); });
  }
}

void NvmlHost::inventory_arrived(const sampler::Inventory& message) {
  const std::string problem = sampler::field_text(message.problem);
  if (problem.empty()) {
    arriving_driver_version_ = sampler::field_text(message.driver_version);
  } else if (!discovered_) {
    fail_inventory(ErrorCode::unavailable, problem);
  } else {
    restart(problem, false);
  }
}

void NvmlHost::gpu_arrived(const sampler::Gpu& message) {
  if (phase_ == Phase::kInventory && arriving_gpus_.size() < sampler::kGpusMax)
    arriving_gpus_.push_back(message);
}

void NvmlHost::gpu_problem_arrived(const sampler::GpuProblem& message) {
  if (phase_ == Phase::kInventory && arriving_problems_.size() < sampler::kGpusMax) {
    arriving_problems_.push_back(message);
  }
}

void NvmlHost::inventory_ended() {
  if (phase_ != Phase::kInventory) return;
  phase_ = Phase::kSampling;
  inventory_timer_.reset();
  problem_.clear();
  if (discovered_) {
    adopt_later_inventory();
  } else {
    adopt_first_inventory();
  }
  arriving_gpus_.clear();
  arriving_problems_.clear();
  arriving_mig_devices_.clear();
}

void NvmlHost::mig_device_arrived(const sampler::MigDevice& message) {
  constexpr size_t kMigDevicesMax = 16 * sampler::kGpusMax;
  if (phase_ == Phase::kInventory && arriving_mig_devices_.size() < kMigDevicesMax) {
    arriving_mig_devices_.push_back(message);
  }
}

DiscoveredGpu NvmlHost::describe(const sampler::Gpu& message) const {
  DiscoveredGpu gpu = discovered_gpu(message);
  for (const sampler::MigDevice& device : arriving_mig_devices_) {
    if (device.gpu == message.index) gpu.mig_devices.push_back(mig_device(device));
  }
  return gpu;
}

void NvmlHost::adopt_first_inventory() {
  inventory_.driver_version = arriving_driver_version_;
  std::set<std::string> uuids;
  std::map<uint32_t, std::optional<uint64_t>> layouts;
  for (const sampler::Gpu& message : arriving_gpus_) {
    DiscoveredGpu gpu = describe(message);
    const bool usable = gpu.index < sampler::kGpusMax && !gpu.uuid.empty() && uuids.insert(gpu.uuid).second &&
                        (inventory_.gpus.empty() || inventory_.gpus.back().index < gpu.index);
    if (!usable) continue;
    layouts[gpu.index] = described_layout(message);
    inventory_.gpus.push_back(std::move(gpu));
  }
  complete_links(inventory_.gpus);
  for (const DiscoveredGpu& gpu : inventory_.gpus) {
    Device& device = devices_[gpu.index];
    device.gpu = gpu;
    device.sampler_index = gpu.index;
    device.answered_at = now();
    device.layout = layouts[gpu.index];
    device.retry_delay = options_.retry_delay_min;
  }
  for (const sampler::GpuProblem& problem : arriving_problems_) {
    inventory_.problems.push_back(problem_text(problem));
  }
  discovered_ = true;
  arm_probe();
  const std::vector<InventoryCallback> waiting = std::exchange(waiting_for_inventory_, {});
  for (const InventoryCallback& done : waiting) {
    post([this, done] { done(GpuInventory(inventory_)); });
  }
}

void NvmlHost::adopt_later_inventory() {
  if (take_up_if_renumbered()) return;
  bool changed = inventory_.driver_version != arriving_driver_version_;
  inventory_.driver_version = arriving_driver_version_;
  for (auto& [index, device] : devices_) {
    device.sampler_index.reset();
    device.answered_at = now();
    if (!device.let_go_index) device.layout.reset();
    for (const sampler::Gpu& message : arriving_gpus_) {
      if (sampler::field_text(message.uuid) != device.gpu.uuid) continue;
      device.sampler_index = message.index;
      if (!device.skipped) device.layout = described_layout(message);
      changed = adopt_change(device, message) || changed;
    }
    if (device.sampler_index || device.let_go_index) continue;
    // Not described, for a reason that is given, or not there at all. The driver's numbers are the same as
    // long as no GPU has gone, which is when they are needed here.
    const auto problem = std::find_if(
        arriving_problems_.begin(), arriving_problems_.end(),
        [&, position = index](const sampler::GpuProblem& candidate) { return candidate.index == position; });
    const bool lost =
        problem == arriving_problems_.end() || problem->code == static_cast<int32_t>(nvml::Code::gpu_is_lost);
    apply(device, lost ? device.judge.missing() : device.judge.silent(problem_text(*problem)));
  }
  if (changed && inventory_changed_) post([this] { inventory_changed_(); });
}

// One that is not asked is not described either, and stays as it was known. Links name indices that stay, and
// are as they were: boards do not wander.
bool NvmlHost::adopt_change(Device& device, const sampler::Gpu& message) {
  if (device.skipped) return false;
  DiscoveredGpu found = describe(message);
  found.index = device.gpu.index;
  found.links = device.gpu.links;
  if (found == device.gpu) return false;
  device.gpu = found;
  for (DiscoveredGpu& listed : inventory_.gpus) {
    if (listed.index == found.index) listed = found;
  }
  return true;
}

// --- Readings -------------------------------------------------------------------------------------------

NvmlHost::Device* NvmlHost::device_of_sampler_index(uint32_t index) {
  for (auto& [position, device] : devices_) {
    if (device.sampler_index == index) return &device;
  }
  return nullptr;
}

GpuReading NvmlHost::reading_of(const Device& device, const sampler::Reading& message) const {
  const auto known = [&](uint32_t bit) { return (message.known & bit) != 0; };
  GpuReading reading;
  // A time of the future would never age.
  reading.taken_at = std::min(Duration(message.taken_at), now());
  if (known(sampler::kKnownMemoryUsed)) {
    const MiB used = mib_up(message.memory_used);
    if (used <= device.gpu.memory_total) reading.memory_used = used;
  }
  if (known(sampler::kKnownUtilisation) && message.utilisation <= 100) {
    reading.utilisation_percent = message.utilisation;
    reading.memory_utilisation_percent = std::min(message.memory_utilisation, 100u);
  }
  if (known(sampler::kKnownTemperature)) reading.temperature_celsius = message.temperature;
  if (known(sampler::kKnownPower)) reading.power_milliwatts = message.power_milliwatts;
  if (!known(sampler::kKnownProcesses)) return reading;
  std::vector<GpuProcess>& processes = reading.processes.emplace();
  for (uint32_t i = 0; i < message.process_count; ++i) {
    const sampler::Process& entry = message.processes[i];
    GpuProcess process;
    process.pid = static_cast<pid_t>(entry.pid);
    if ((entry.known & sampler::kKnownStart) != 0) process.start_ticks = entry.start_ticks;
    if ((entry.known & sampler::kKnownMemory) != 0) process.memory = mib_up(entry.memory);
    if ((entry.known & sampler::kKnownUser) != 0) {
      process.uid = entry.uid;
      const auto name = user_names_.find(entry.uid);
      if (name != user_names_.end()) process.user = name->second;
    }
    processes.push_back(std::move(process));
  }
  return reading;
}

void NvmlHost::reading_arrived(const sampler::Reading& message) {
  Device* const device = device_of_sampler_index(message.gpu);
  if (phase_ != Phase::kSampling || device == nullptr) return;
  device->answered_at = now();
  if (!device->skipped) device->stuck_reason.clear();
  const std::string call(nvml::call_name(static_cast<nvml::Call>(message.call)));
  GpuReading reading = reading_of(*device, message);

  if (message.header.id != 0) {
    if (!reading.memory_used && !reading.processes) {
      return finish_check(
          message.header.id,
          fail(ErrorCode::unavailable, name_of(device->gpu.index) + ": " + call + " failed with NVML error " +
                                           std::to_string(message.code)));
    }
    return finish_check(message.header.id, std::move(reading));
  }
  if (reading.memory_used || reading.processes) device->status.reading = std::move(reading);
  judge_reading(*device, message);
  if (device->judge.verdict().health == Health::ok) device->retry_delay = options_.retry_delay_min;
  // Now that one has answered, those that are not asked because they had hung are known to be alone in it.
  for (auto& [index, other] : devices_) {
    if (!other.skipped) continue;
    other.blame_confirmed = true;
    apply(other, other.judge.silent(other.stuck_reason));
  }
  const uint32_t index = device->gpu.index;
  // One that does not fit the inventory waits for the inventory that does.
  if (note_layout(*device, message) && reading_arrived_callback_) reading_arrived_callback_(index);
}

void NvmlHost::judge_reading(Device& device, const sampler::Reading& message) {
  apply(device,
        device.judge.reading({.code = static_cast<nvml::Code>(message.code),
                              .call = std::string(nvml::call_name(static_cast<nvml::Call>(message.call))),
                              .clocks_event_reasons = message.clocks_event_reasons,
                              .rows_pending = message.rows_pending != 0,
                              .rows_failure = message.rows_failure != 0,
                              .recovery_action = (message.known & sampler::kKnownRecovery) != 0
                                                     ? std::optional(message.recovery_action)
                                                     : std::nullopt}));
  judge_nodes(device, message.nodes_missing, message.known);
}

void NvmlHost::apply(Device& device, std::optional<GpuHealthJudge::Verdict> verdict) {
  if (!verdict) return;
  device.status.health = verdict->health;
  device.status.health_reason = verdict->reason;
  device.status.needs_reset = verdict->needs_reset;
  device.status.of_the_driver = verdict->of_the_driver;
  if (health_changed_) health_changed_(device.gpu.index, verdict->health, verdict->reason);
}

void NvmlHost::user_name_arrived(const sampler::UserName& message) {
  if (user_names_.size() >= kUserNamesMax) user_names_.clear();
  user_names_[message.uid] = sampler::field_text(message.name);
}

const GpuStatus* NvmlHost::status(uint32_t index) const {
  const auto found = devices_.find(index);
  return found == devices_.end() ? nullptr : &found->second.status;
}

GpuSourceStatus NvmlHost::source() const {
  return {.answering = phase_ == Phase::kSampling,
          .restarts = restarts_,
          .problem = problem_,
          .driver_problem = driver_problem_};
}

// --- Checks ---------------------------------------------------------------------------------------------

void NvmlHost::check_now(uint32_t index, CheckCallback done) {
  const auto refuse = [&](ErrorCode code, std::string reason) {
    post([done = std::move(done), code, reason = std::move(reason)] { done(fail(code, reason)); });
  };
  const auto found = devices_.find(index);
  if (found == devices_.end()) return refuse(ErrorCode::not_found, "there is no " + name_of(index));
  Device& device = found->second;
  if (device.let_go_index) return refuse(ErrorCode::unavailable, name_of(index) + " is let go for a reset");
  if (!device.stuck_reason.empty()) return refuse(ErrorCode::unavailable, device.stuck_reason);
  if (phase_ != Phase::kSampling || !device.sampler_index) {
    return refuse(ErrorCode::unavailable, name_of(index) + " cannot be asked now: " +
                                              (problem_.empty() ? device.status.health_reason : problem_));
  }
  const uint64_t id = ++last_check_;
  if (checks_.size() >= kChecksMax || !link_->request(sampler::Kind::check, id, *device.sampler_index)) {
    return refuse(ErrorCode::unavailable, "too many checks wait for an answer; ask again in a moment");
  }
  Check& check = checks_[id];
  check.index = index;
  check.done = std::move(done);
  check.timer = reactor_.at(now() + options_.check_deadline, [this, id, index] {
    finish_check(id, fail(ErrorCode::timed_out, name_of(index) + " has not answered in time"));
  });
}

void NvmlHost::finish_check(uint64_t id, Result<GpuReading> answer) {
  const auto found = checks_.find(id);
  if (found == checks_.end()) return;  // it came after its deadline
  const Check check = std::move(found->second);
  checks_.erase(found);
  check.done(std::move(answer));
}

void NvmlHost::fail_checks(const std::string& reason) {
  for (auto& [id, check] : std::exchange(checks_, {})) {
    post([done = std::move(check.done), reason] { done(fail(ErrorCode::unavailable, reason)); });
  }
}

}  // namespace tranche
