#include "gpu/simulated_host.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/assert.h"
#include "gpu/xid_policy.h"

namespace tranche {
namespace {

// NVML totals and reserves of the boards that an emulated server can have.
struct SimulatedBoard {
  std::string_view type, name;
  int64_t total, reserve;
  uint32_t compute_major, compute_minor, power_limit_watts;
  bool nvlink, mig_capable;
};
constexpr std::array<SimulatedBoard, 8> kSimulatedBoards{{
    {"t4", "Tesla T4", 15'360, 250, 7, 5, 70, false, false},
    {"rtx4090", "NVIDIA GeForce RTX 4090", 24'564, 346, 8, 9, 450, false, false},
    {"l40s", "NVIDIA L40S", 46'068, 612, 8, 9, 350, false, false},
    {"a100-40", "NVIDIA A100-SXM4-40GB", 40'960, 624, 8, 0, 400, true, true},
    {"a100-80", "NVIDIA A100-SXM4-80GB", 81'920, 870, 8, 0, 400, true, true},
    {"h100-80", "NVIDIA H100 80GB HBM3", 81'559, 561, 9, 0, 700, true, true},
    {"h200", "NVIDIA H200", 143'771, 606, 9, 0, 700, true, true},
    {"b200", "NVIDIA B200", 183'359, 729, 10, 0, 1000, true, true},
}};

constexpr SimulatedBoard kUnknownBoard{"", "", 16'384, 384, 8, 0, 250, false, false};

std::string bus_id(uint32_t index) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  const uint32_t bus = index + 1;
  return std::string("00000000:") + kDigits[(bus >> 4) & 15] + kDigits[bus & 15] + ":00.0";
}

}  // namespace

std::vector<DiscoveredGpu> SimulatedHost::board(std::string_view type, uint32_t count) {
  SimulatedBoard board = kUnknownBoard;
  board.type = board.name = type;
  for (const SimulatedBoard& known : kSimulatedBoards) {
    if (known.type == type) board = known;
  }
  std::vector<DiscoveredGpu> gpus;
  for (uint32_t index = 0; index < count; ++index) {
    DiscoveredGpu gpu{.index = index,
                      .uuid = "GPU-simulated-" + std::to_string(index),
                      .minor = index,
                      .name = std::string(board.name),
                      .type = std::string(board.type),
                      .memory_total = MiB(board.total),
                      .memory_usable = MiB(board.total - board.reserve),
                      .pci_bus_id = bus_id(index),
                      .numa_node = index < (count + 1) / 2 ? 0 : 1,
                      .cpu_affinity = "",
                      .links = {},
                      .mig_capable = board.mig_capable,
                      .mig_enabled = false,
                      .compute_capability_major = board.compute_major,
                      .compute_capability_minor = board.compute_minor,
                      .power_limit_milliwatts = board.power_limit_watts * 1000};
    for (uint32_t peer = 0; peer < count; ++peer) {
      const bool same_half = (peer < (count + 1) / 2) == (gpu.numa_node == 0);
      const LinkKind kind = board.nvlink ? LinkKind::nvlink
                            : same_half  ? LinkKind::numa_node
                                         : LinkKind::system;
      if (peer != index) gpu.links.push_back({peer, kind});
    }
    gpus.push_back(std::move(gpu));
  }
  return gpus;
}

SimulatedHost::SimulatedHost(Reactor& reactor, std::vector<DiscoveredGpu> gpus, Options options)
    : reactor_(reactor), options_(options) {
  for (DiscoveredGpu& gpu : gpus) {
    Device device;
    device.gpu = std::move(gpu);
    device.answered_at = reactor_.clock().since_boot();
    const uint32_t index = device.gpu.index;
    const bool added = devices_.emplace(index, std::move(device)).second;
    TRANCHE_ASSERT(added);
  }
}

SimulatedHost::Device* SimulatedHost::find(uint32_t index) {
  const auto found = devices_.find(index);
  return found == devices_.end() ? nullptr : &found->second;
}

void SimulatedHost::discover(InventoryCallback done) {
  arm_sampling();
  const Duration now = reactor_.clock().since_boot();
  const uint64_t id = ++last_request_;
  Request& request = requests_[id];
  request.discovered = std::move(done);
  const bool answers = !all_hanging_;
  request.timer =
      reactor_.at(now + (answers ? options_.inventory_latency : options_.check_deadline), [this, id] {
        const auto found = requests_.find(id);
        const Request finished = std::move(found->second);
        requests_.erase(found);
        if (all_hanging_) {
          finished.discovered(
              fail(ErrorCode::unavailable, "the NVIDIA driver does not answer; see `nvidia-smi`"));
        } else if (inventory_error_) {
          finished.discovered(fail(ErrorCode::unavailable, *inventory_error_));
        } else {
          GpuInventory inventory{.driver_version = "550.0 (simulated)", .gpus = {}, .problems = {}};
          for (const auto& [index, device] : devices_) inventory.gpus.push_back(device.gpu);
          finished.discovered(std::move(inventory));
        }
      });
}

void SimulatedHost::check_now(uint32_t index, CheckCallback done) {
  const Duration now = reactor_.clock().since_boot();
  const uint64_t id = ++last_request_;
  Request& request = requests_[id];
  request.index = index;
  request.checked = std::move(done);
  request.deadline = now + options_.check_deadline;
  request.timer = reactor_.at(now + options_.check_latency, [this, id] { finish_check(id); });
}

void SimulatedHost::finish_check(uint64_t id) {
  Request& request = requests_[id];
  Device* const device = find(request.index);
  const bool lost = device != nullptr && device->injected_health == Health::lost;
  if (device != nullptr && !lost && !answers(*device) && reactor_.clock().since_boot() < request.deadline) {
    request.timer = reactor_.at(request.deadline, [this, id] { finish_check(id); });
    return;
  }
  const Request finished = std::move(request);
  requests_.erase(id);
  const std::string name = "GPU " + std::to_string(finished.index);
  if (device == nullptr) {
    finished.checked(fail(ErrorCode::not_found, "there is no " + name + " on this machine"));
  } else if (lost) {
    finished.checked(fail(ErrorCode::unavailable, name + " is lost: " + device->injected_reason));
  } else if (!answers(*device)) {
    finished.checked(fail(ErrorCode::timed_out, name + " did not answer in time"));
  } else {
    device->answered_at = reactor_.clock().since_boot();
    finished.checked(read(*device));
  }
}

const GpuStatus* SimulatedHost::status(uint32_t index) const {
  const auto found = devices_.find(index);
  return found == devices_.end() ? nullptr : &found->second.status;
}

GpuSourceStatus SimulatedHost::source() const {
  return {.answering = !all_hanging_,
          .restarts = 0,
          .problem = all_hanging_ ? "the NVIDIA driver does not answer" : ""};
}

bool SimulatedHost::answers(const Device& device) const {
  return !all_hanging_ && !device.hanging && !device.status.let_go && device.injected_health != Health::lost;
}

GpuReading SimulatedHost::read(const Device& device) const {
  GpuReading reading;
  reading.taken_at = reactor_.clock().since_boot();
  MiB used = device.ghost_memory;
  std::vector<GpuProcess> processes;
  for (const auto& [pid, process] : device.processes) {
    processes.push_back(process);
    used += process.memory.value_or(MiB(0));
  }
  if (device.memory_known) reading.memory_used = used;
  if (device.process_list_known) reading.processes = std::move(processes);
  reading.utilisation_percent = device.utilisation_percent;
  reading.temperature_celsius = 30 + device.utilisation_percent / 3;
  reading.power_milliwatts =
      device.gpu.power_limit_milliwatts.value_or(0) / 1000 * (100 + 9 * device.utilisation_percent);
  return reading;
}

void SimulatedHost::arm_sampling() {
  if (sampling_) return;
  sampling_ = reactor_.at(reactor_.clock().since_boot() + options_.sample_period, [this] {
    sampling_.reset();
    arm_sampling();
    sample_all();
  });
}

void SimulatedHost::sample_all() {
  for (auto& [index, device] : devices_) {
    const bool answered = answers(device);
    if (answered) {
      device.answered_at = reactor_.clock().since_boot();
      device.status.reading = read(device);
    }
    update_health(device);
    if (answered && reading_arrived_) reading_arrived_(index);
  }
}

void SimulatedHost::update_health(Device& device) {
  Health health = device.injected_health;
  std::string reason = device.injected_reason;
  const Duration silent = reactor_.clock().since_boot() - device.answered_at;
  // When nothing answers at all, that says something of the driver and nothing of this GPU.
  if (health != Health::lost && !all_hanging_ && !device.status.let_go &&
      silent >= options_.silence_until_failed) {
    health = Health::failed;
    reason = "GPU " + std::to_string(device.gpu.index) + " has stopped answering while others answer";
  }
  if (all_hanging_ && device.status.health == Health::failed) return;
  if (health == device.status.health) return;
  device.status.health = health;
  device.status.health_reason = reason;
  device.status.needs_reset = health == Health::failed && xid_of_reason(reason).has_value();
  if (health_changed_) health_changed_(device.gpu.index, health, reason);
}

void SimulatedHost::add_process(uint32_t index, GpuProcess process) {
  Device* const device = find(index);
  TRANCHE_ASSERT(device != nullptr);
  device->processes[process.pid] = std::move(process);
}

void SimulatedHost::remove_process(uint32_t index, pid_t pid) {
  Device* const device = find(index);
  TRANCHE_ASSERT(device != nullptr);
  device->processes.erase(pid);
}

void SimulatedHost::set_utilisation(uint32_t index, uint32_t percent) {
  find(index)->utilisation_percent = std::min(percent, 100u);
}
void SimulatedHost::set_ghost_memory(uint32_t index, MiB memory) { find(index)->ghost_memory = memory; }
void SimulatedHost::set_process_list_known(uint32_t index, bool known) {
  find(index)->process_list_known = known;
}
void SimulatedHost::set_memory_known(uint32_t index, bool known) { find(index)->memory_known = known; }

void SimulatedHost::set_hanging(uint32_t index, bool hanging) { find(index)->hanging = hanging; }

void SimulatedHost::set_all_hanging(bool hanging) {
  all_hanging_ = hanging;
  // The silence was the driver's: each GPU gets its own time to answer again.
  for (auto& [index, device] : devices_) device.answered_at = reactor_.clock().since_boot();
}

void SimulatedHost::set_health(uint32_t index, Health health, std::string reason) {
  Device* const device = find(index);
  TRANCHE_ASSERT(device != nullptr);
  device->injected_health = health;
  device->injected_reason = std::move(reason);
  reactor_.post([this, index, alive = std::weak_ptr(alive_)] {
    if (!alive.expired()) update_health(*find(index));
  });
}

void SimulatedHost::set_inventory_error(std::optional<std::string> message) {
  inventory_error_ = std::move(message);
}

void SimulatedHost::report_xid(uint32_t index, uint64_t code) {
  const Health health = xid_health(code);
  if (xid_happened_) {
    xid_happened_(index, {.code = code,
                          .seen_at = reactor_.clock().since_boot(),
                          .of_the_job = xid_rule(code).class_of == XidClass::job,
                          .text = xid_reason(code)});
  }
  if (health != Health::ok) set_health(index, health, xid_reason(code));
}

void SimulatedHost::remember_xid(uint32_t index, uint64_t code) {
  const Health health = xid_health(code);
  if (health == Health::degraded || health == Health::failed) set_health(index, health, xid_reason(code));
}

void SimulatedHost::let_go(uint32_t index) {
  Device* const device = find(index);
  if (device != nullptr && answers(*device)) device->status.let_go = true;
}

void SimulatedHost::take_up(uint32_t index) {
  Device* const device = find(index);
  if (device == nullptr || !device->status.let_go) return;
  device->status.let_go = false;
  device->answered_at = reactor_.clock().since_boot();
}

void SimulatedHost::absolve(uint32_t index) {
  const Device* const device = find(index);
  if (device == nullptr || !xid_of_reason(device->injected_reason)) return;
  set_health(index, Health::ok, "");
}

void SimulatedHost::redescribe(uint32_t index, const std::function<void(DiscoveredGpu&)>& change) {
  change(find(index)->gpu);
  reactor_.post([this, alive = std::weak_ptr(alive_)] {
    if (!alive.expired() && inventory_changed_) inventory_changed_();
  });
}

}  // namespace tranche
