#include "machine/gpu_manager.h"

#include <unistd.h>

#include <algorithm>

#include "linux/log.h"

namespace tranche::machine {
namespace {

constexpr Duration kAskAgainAfter = kMinute;
constexpr NodeId kThisNode{1};  // a machine's log has one node

Node describe_this_machine() {
  Node node;
  node.id = kThisNode;
  char name[256] = {};
  ::gethostname(name, sizeof name - 1);
  node.name = name;
  node.cpu = MilliCpu(std::max<int64_t>(1, ::sysconf(_SC_NPROCESSORS_ONLN)) * 1000);
  const int64_t page = ::sysconf(_SC_PAGESIZE);
  node.memory = MiB(::sysconf(_SC_PHYS_PAGES) / ((int64_t{1} << 20) / page));
  return node;
}

}  // namespace

GpuManager::GpuManager(Reactor& reactor, Engine& engine, GpuHost& host, std::vector<std::string> manage)
    : reactor_(reactor),
      engine_(engine),
      host_(host),
      manage_(std::move(manage)),
      node_name_(describe_this_machine().name) {
  for (const auto& view : engine_.scheduler().gpus()) gpus_.insert_or_assign(view.gpu->id, *view.gpu);
  host_.on_health([this](uint32_t index, Health health, const std::string& reason) {
    const auto id = by_index(index);
    if (id) engine_.record(HealthChanged{*id, health, reason});
  });
}

void GpuManager::discover(std::function<void()> done) {
  host_.discover([this, done = std::move(done)](Result<GpuInventory> inventory) {
    take_inventory(std::move(inventory));
    if (done) done();
  });
}

void GpuManager::take_inventory(Result<GpuInventory> inventory) {
  record_node();
  if (!inventory) {
    if (problems_.empty() || problems_.front() != inventory.error().message()) {
      log(LogLevel::warning, "no_gpus", {{"reason", inventory.error()}});
    }
    problems_ = {inventory.error().message()};
    again_ = reactor_.at(reactor_.clock().since_boot() + kAskAgainAfter, [this] { discover({}); });
    return;
  }
  inventory_ = std::move(*inventory);
  problems_ = inventory_.problems;
  record_gpus();
}

void GpuManager::record_node() {
  const Node node = describe_this_machine();
  const std::vector<Node> known = engine_.scheduler().nodes();
  const auto same =
      std::find_if(known.begin(), known.end(), [&](const Node& other) { return other.id == node.id; });
  if (same == known.end() || *same != node) engine_.record(NodeAdded{node});
}

void GpuManager::record_gpus() {
  const auto known = engine_.scheduler().gpus();
  uint32_t next_id = 1;
  for (const auto& view : known) next_id = std::max(next_id, view.gpu->id.value() + 1);

  ids_.clear();
  std::vector<GpuId> present;
  for (const DiscoveredGpu& found : inventory_.gpus) {
    if (!manage_.empty() && std::find(manage_.begin(), manage_.end(), found.uuid) == manage_.end()) continue;
    const auto same = std::find_if(known.begin(), known.end(),
                                   [&](const auto& view) { return view.gpu->uuid == found.uuid; });
    ids_[found.index] = same == known.end() ? GpuId(next_id++) : same->gpu->id;
    present.push_back(ids_[found.index]);
  }
  // Ids first: links name them.
  std::vector<EventPayload> changes;
  for (const DiscoveredGpu& found : inventory_.gpus) {
    if (!ids_.contains(found.index)) continue;
    const Gpu gpu = describe(found, ids_[found.index]);
    const auto same =
        std::find_if(known.begin(), known.end(), [&](const auto& view) { return view.gpu->id == gpu.id; });
    if (same == known.end() || *same->gpu != gpu) changes.push_back(GpuAdded{gpu});
    if (same != known.end() && same->health != Health::ok)
      changes.push_back(HealthChanged{gpu.id, Health::ok, ""});
  }
  for (const auto& view : known) {
    if (std::find(present.begin(), present.end(), view.gpu->id) != present.end()) continue;
    if (view.health == Health::lost) continue;
    changes.push_back(HealthChanged{view.gpu->id, Health::lost, "the driver does not list it any more"});
  }
  for (EventPayload& change : changes) engine_.record(std::move(change));
  for (const auto& view : engine_.scheduler().gpus()) gpus_.insert_or_assign(view.gpu->id, *view.gpu);
}

Gpu GpuManager::describe(const DiscoveredGpu& found, GpuId id) const {
  Gpu gpu;
  gpu.id = id;
  gpu.node = kThisNode;
  gpu.uuid = found.uuid;
  gpu.index = found.index;
  gpu.minor = found.minor.value_or(found.index);
  gpu.type = found.type;
  gpu.name = found.name;
  gpu.memory_usable = found.memory_usable;
  gpu.numa_node = found.numa_node;
  gpu.mig_capable = found.mig_capable.value_or(false);
  for (const PeerLink& link : found.links) {
    const auto peer = ids_.find(link.peer);
    if (peer != ids_.end()) gpu.links.push_back({peer->second, link.kind});
  }
  return gpu;
}

const Gpu* GpuManager::find(GpuId id) const {
  const auto gpu = gpus_.find(id);
  return gpu == gpus_.end() ? nullptr : &gpu->second;
}

std::optional<GpuId> GpuManager::by_index(uint32_t index) const {
  const auto id = ids_.find(index);
  if (id == ids_.end()) return std::nullopt;
  return id->second;
}

const DiscoveredGpu* GpuManager::discovered(uint32_t index) const {
  for (const DiscoveredGpu& gpu : inventory_.gpus) {
    if (gpu.index == index) return &gpu;
  }
  return nullptr;
}

}  // namespace tranche::machine
