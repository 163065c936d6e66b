#include "machine/gpu_manager.h"

#include <unistd.h>

#include <algorithm>
#include <set>

#include "gpu/xid_policy.h"
#include "linux/log.h"

namespace tranche::machine {
namespace {

constexpr Duration kAskAgainAfter = kMinute;
constexpr Duration kPostponedAgainAfter = 2 * kSecond;
constexpr Duration kOpeningDeadline = 20 * kSecond;
// In every reason for which only an operator opens a GPU again, so that it is known after a restart too.
constexpr std::string_view kOperatorsWord = "`tranche gpus undrain`";
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

std::string mig_sentence(const DiscoveredGpu& found) {
  return "jobs cannot use MIG devices yet; `nvidia-smi -i " + std::to_string(found.index) +
         " -mig 0` turns it off";
}

}  // namespace

GpuManager::GpuManager(Parts parts)
    : reactor_(parts.reactor),
      engine_(parts.engine),
      host_(parts.host),
      drains_(parts.drains),
      ghosts_(parts.drains),
      manage_(std::move(parts.manage)),
      node_name_(describe_this_machine().name),
      rebooted_(parts.rebooted),
      operator_recovery_(parts.operator_recovery) {
  for (const auto& view : engine_.scheduler().gpus()) gpus_.insert_or_assign(view.gpu->id, *view.gpu);
  host_.on_health([this](uint32_t index, Health health, const std::string& reason) {
    health_changed(index, health, reason);
  });
  host_.on_xid([this](uint32_t index, const XidEvent& event) { return xid_happened(index, event); });
  host_.on_inventory([this] { discover({}); });
  host_.on_reading([this](uint32_t index) { reading_arrived(index); });
}

GpuManager::~GpuManager() {
  host_.on_health({});
  host_.on_xid({});
  host_.on_inventory({});
  host_.on_reading({});
}

std::optional<scheduler::GpuView> GpuManager::view_of(GpuId id) const {
  for (const auto& view : engine_.scheduler().gpus()) {
    if (view.gpu->id == id) return view;
  }
  return std::nullopt;
}

void GpuManager::health_changed(uint32_t index, Health health, const std::string& reason) {
  const auto id = by_index(index);
  if (!id) return;
  const bool bad = health == Health::failed || health == Health::lost;
  const GpuStatus* const status = host_.status(index);
  std::string told = reason;
  if (bad && operator_recovery_ && status != nullptr && !status->of_the_driver) {
    closed_.insert(*id);
    if (told.find(kOperatorsWord) == std::string::npos)
      told += "; then " + std::string(kOperatorsWord) + " it";
  }
  const auto known = view_of(*id);
  const bool stays_closed = !bad && closed_.contains(*id);
  const bool same = known && known->health == health && (known->reason == told || known->drained);
  if (!stays_closed && !same) engine_.record(HealthChanged{*id, health, told});
  consider_letting_go(index);
}

std::set<uid_t> GpuManager::xid_happened(uint32_t index, const XidEvent& event) {
  std::set<uid_t> users;
  const auto id = by_index(index);
  if (!id) return users;
  GpuFaulted fault{*id, static_cast<uint32_t>(std::min<uint64_t>(event.code, UINT32_MAX)), {}};
  std::string jobs;
  if (const auto view = view_of(*id)) {
    for (const TaskKey& task : view->tasks) {
      if (std::find(fault.jobs.begin(), fault.jobs.end(), task.job) != fault.jobs.end()) continue;
      fault.jobs.push_back(task.job);
      jobs += (jobs.empty() ? "" : " ") + std::to_string(task.job.value());
      const JobRecord* const record = engine_.jobs().find(task.job);
      if (record != nullptr) users.insert(record->spec->owner.uid);
    }
  }
  if (engine_.faults().is_repeated(fault, engine_.now())) return users;
  log(event.of_the_job ? LogLevel::info : LogLevel::warning, "gpu_xid",
      {{"gpu", index}, {"xid", event.code}, {"text", event.text}, {"jobs", jobs}});
  engine_.record(std::move(fault));
  return users;
}

// --- Letting go and opening -----------------------------------------------------------------------------

void GpuManager::reading_arrived(uint32_t index) {
  const auto id = by_index(index);
  if (!id) return;
  const auto opening = openings_.find(*id);
  const GpuStatus* const status = host_.status(index);
  const bool fresh =
      opening != openings_.end() &&
      (!opening->second.read_after ||
       (status != nullptr && status->reading && status->reading->taken_at >= *opening->second.read_after));
  // The description that came with the reading may not have been taken in yet.
  if (fresh) discover([this, id = *id] { finish_opening(id, check_usable(id)); });
  consider_letting_go(index);
  const auto view = view_of(*id);
  if (view && status != nullptr && status->reading) ghosts_.look(*view, *status->reading);
}

void GpuManager::consider_letting_go(uint32_t index) {
  const auto id = by_index(index);
  const GpuStatus* const status = host_.status(index);
  const auto view = id ? view_of(*id) : std::nullopt;
  if (!view || status == nullptr) return;
  const bool for_reset = status->health == Health::failed && status->needs_reset;
  const bool by_operator = view->drained && GpuDrains::is_operators(view->reason);
  const bool wanted = (for_reset || by_operator) && view->tasks.empty() && !openings_.contains(*id);
  if (wanted && !status->let_go) return host_.let_go(index);
  if (!wanted && status->let_go) host_.take_up(index);
}

void GpuManager::open(GpuId id, std::function<void(Result<void>)> done) {
  const Gpu* const gpu = find(id);
  const GpuStatus* const status = gpu == nullptr ? nullptr : host_.status(gpu->index);
  const bool let_go = status != nullptr && status->let_go;
  // Nobody is refused for what was true a moment ago: an operator has just turned it off.
  if (status == nullptr || (!let_go && check_usable(id))) return done(check_usable(id));
  finish_opening(id, fail(ErrorCode::conflict, "somebody else has asked for the same; ask again"));
  const Duration now = reactor_.clock().since_boot();
  openings_[id] = {std::move(done),
                   reactor_.at(now + kOpeningDeadline,
                               [this, id] {
                                 finish_opening(id, fail(ErrorCode::timed_out,
                                                         "the GPU does not answer, so it stays "
                                                         "closed; see `tranche doctor`"));
                               }),
                   let_go ? std::nullopt : std::optional(now)};
  host_.take_up(gpu->index);
}

void GpuManager::finish_opening(GpuId id, Result<void> opened) {
  const auto found = openings_.find(id);
  if (found == openings_.end()) return;
  const Opening opening = std::move(found->second);
  openings_.erase(found);
  opening.done(std::move(opened));
}

// What the inventory says is newer than the log, which waits until no task holds the GPU.
Result<void> GpuManager::check_usable(GpuId id) const {
  const Gpu* const gpu = find(id);
  const DiscoveredGpu* const found = gpu == nullptr ? nullptr : discovered(gpu->index);
  if (found == nullptr || !found->mig_enabled.value_or(false)) return {};
  return fail(ErrorCode::conflict, "GPU " + std::to_string(found->index) +
                                       " is in MIG mode, and jobs cannot use MIG " +
                                       "devices yet; turn it off first: nvidia-smi -i " +
                                       std::to_string(found->index) + " -mig 0");
}

void GpuManager::absolve(GpuId id) {
  const Gpu* const gpu = find(id);
  if (gpu == nullptr) return;
  closed_.erase(id);
  host_.absolve(gpu->index);
  // What the log says besides may be older than this run of the daemon.
  const GpuStatus* const status = host_.status(gpu->index);
  const auto known = view_of(id);
  if (status == nullptr || !known || known->health == status->health) return consider_letting_go(gpu->index);
  engine_.record(HealthChanged{id, status->health, status->health_reason});
  consider_letting_go(gpu->index);
}

bool GpuManager::whole_only() const {
  return !inventory_.gpus.empty() && std::all_of(inventory_.gpus.begin(), inventory_.gpus.end(),
                                                 [](const DiscoveredGpu& gpu) { return gpu.virtual_guest; });
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
    fail_all(inventory.error().message());
    again_ = reactor_.at(reactor_.clock().since_boot() + kAskAgainAfter, [this] { discover({}); });
    return;
  }
  inventory_ = std::move(*inventory);
  problems_ = inventory_.problems;
  record_gpus(!discovered_);
  discovered_ = true;
  if (postponed_) {
    again_ = reactor_.at(reactor_.clock().since_boot() + kPostponedAgainAfter, [this] { discover({}); });
  }
}

// Failed, not lost: what was accepted waits for them.
void GpuManager::fail_all(const std::string& reason) {
  for (const auto& view : engine_.scheduler().gpus()) {
    if (view.health == Health::failed || view.health == Health::lost) continue;
    engine_.record(HealthChanged{view.gpu->id, Health::failed, reason});
  }
}

void GpuManager::record_node() {
  const Node node = describe_this_machine();
  const std::vector<Node> known = engine_.scheduler().nodes();
  const auto same =
      std::find_if(known.begin(), known.end(), [&](const Node& other) { return other.id == node.id; });
  if (same == known.end() || *same != node) engine_.record(NodeAdded{node});
}

void GpuManager::record_gpus(bool first) {
  const auto known = engine_.scheduler().gpus();
  uint32_t next_id = 1;
  for (const auto& view : known) next_id = std::max(next_id, view.gpu->id.value() + 1);
  const auto find_known = [&](const std::string& uuid) -> const scheduler::GpuView* {
    const auto same =
        std::find_if(known.begin(), known.end(), [&](const auto& view) { return view.gpu->uuid == uuid; });
    return same == known.end() ? nullptr : &*same;
  };

  ids_.clear();
  postponed_ = false;
  std::set<GpuId> present;
  for (const DiscoveredGpu& found : inventory_.gpus) {
    if (!manage_.empty() && std::find(manage_.begin(), manage_.end(), found.uuid) == manage_.end()) continue;
    const scheduler::GpuView* const same = find_known(found.uuid);
    ids_[found.index] = same == nullptr ? GpuId(next_id++) : same->gpu->id;
    present.insert(ids_[found.index]);
  }
  // Ids first: links name them.
  for (const DiscoveredGpu& found : inventory_.gpus) {
    if (!ids_.contains(found.index)) continue;
    const scheduler::GpuView* const same = find_known(found.uuid);
    const Gpu gpu = describe(found, ids_[found.index]);
    gpus_.insert_or_assign(gpu.id, gpu);  // before the log has it: what waits may start in that instant
    record_description(gpu, same, found);
    if (first && same != nullptr) record_health(*same);
    record_mig(found, gpu.id);
  }
  for (const auto& view : known) {
    if (present.contains(view.gpu->id) || view.health == Health::lost) continue;
    engine_.record(HealthChanged{view.gpu->id, Health::lost, "the driver does not list it any more"});
  }
}

// The log's description is replaced only while nobody holds the GPU, since that begins it anew there; who
// starts in the meantime is given what is true now (find()). A GPU that must not be used is drained from its
// first moment on: what waits would start on it between two events.
void GpuManager::record_description(const Gpu& gpu, const scheduler::GpuView* known,
                                    const DiscoveredGpu& found) {
  if (known == nullptr) {
    const bool mig = found.mig_enabled.value_or(false);
    return engine_.record(
        GpuAdded{gpu, mig ? GpuDrains::reason_for(DrainCause::mig, mig_sentence(found)) : ""});
  }
  if (*known->gpu == gpu) return;
  if (!known->tasks.empty()) {
    postponed_ = true;
    return;
  }
  constexpr const char* kMeanwhile = "it is described anew";
  const bool unwell = known->health != Health::ok;
  engine_.record(GpuAdded{gpu, known->drained ? known->reason : unwell ? kMeanwhile : ""});
  if (!unwell) return;
  engine_.record(HealthChanged{gpu.id, known->health, known->reason});
  if (!known->drained) engine_.record(GpuUndrained{gpu.id, "tranche"});
}

// What an earlier run of the daemon knew.
void GpuManager::record_health(const scheduler::GpuView& known) {
  if (known.drained && drains_.is_drained_for(known.gpu->id, DrainCause::release) && known.tasks.empty()) {
    drains_.remove(known.gpu->id, DrainCause::release);  // it has let go of everything
  }
  if (known.health == Health::ok) return;
  const bool is_bad = known.health == Health::failed || known.health == Health::lost;
  if (operator_recovery_ && is_bad && known.reason.find(kOperatorsWord) != std::string::npos) {
    closed_.insert(known.gpu->id);
  }
  const auto xid = rebooted_ ? std::nullopt : xid_of_reason(known.reason);
  if (xid && known.health != Health::lost) return host_.remember_xid(known.gpu->index, *xid);
  if (closed_.contains(known.gpu->id)) return;
  engine_.record(HealthChanged{known.gpu->id, Health::ok, ""});
}

void GpuManager::record_mig(const DiscoveredGpu& found, GpuId id) {
  if (found.mig_enabled.value_or(false)) {
    drains_.add(id, DrainCause::mig, mig_sentence(found));
  } else if (drains_.is_drained_for(id, DrainCause::mig)) {
    drains_.remove(id, DrainCause::mig);
  }
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
