#include "scheduler/capacity.h"

#include <algorithm>

#include "base/assert.h"
#include "scheduler/wide.h"

namespace tranche::scheduler {
namespace {

// Changes that are remembered for each node of the cluster, and at least.
constexpr size_t kLogPerNode = 4;
constexpr size_t kLogAtLeast = 4096;

}  // namespace

void Owners::add(uint32_t uid) {
  std::pair<uint32_t, uint32_t>* first = more_.empty() ? few_.data() : more_.data();
  std::pair<uint32_t, uint32_t>* last = first + size_;
  auto* place = std::lower_bound(first, last, std::pair<uint32_t, uint32_t>{uid, 0});
  if (place != last && place->first == uid) {
    ++place->second;
    return;
  }
  const auto at = place - first;
  if (more_.empty() && size_ < kFew) {
    std::move_backward(place, last, last + 1);
    few_[static_cast<size_t>(at)] = {uid, 1};
  } else {
    if (more_.empty()) more_.assign(few_.begin(), few_.end());
    more_.insert(more_.begin() + at, {uid, 1});
  }
  ++size_;
}

void Owners::remove(uint32_t uid) {
  std::pair<uint32_t, uint32_t>* first = more_.empty() ? few_.data() : more_.data();
  std::pair<uint32_t, uint32_t>* last = first + size_;
  auto* place = std::lower_bound(first, last, std::pair<uint32_t, uint32_t>{uid, 0});
  TRANCHE_ASSERT(place != last && place->first == uid);
  if (--place->second > 0) return;
  if (more_.empty()) {
    std::move(place + 1, last, place);
  } else {
    more_.erase(more_.begin() + (place - first));
  }
  --size_;
}

void GpuRoom::take(uint32_t uid, const Slice& slice) {
  compute_free -= slice.compute;
  memory_free -= slice.memory;
  whole = slice.kind == SliceKind::whole;
  owners.add(uid);
}

void GpuRoom::give(uint32_t uid, const Slice& slice) {
  compute_free += slice.compute;
  memory_free += slice.memory;
  owners.remove(uid);
  if (is_idle()) whole = false;
}

void Buckets::insert(NodeIndex node, const KindCount& count) {
  if (by_idle.size() <= count.idle) by_idle.resize(size_t{count.idle} + 1);
  by_idle[count.idle].insert(node);
  if (count.shared > 0) shared[count.shared - 1u].insert(node);
}

void Buckets::erase(NodeIndex node, const KindCount& count) {
  by_idle[count.idle].erase(node);
  if (count.shared > 0) shared[count.shared - 1u].erase(node);
}

bool Buckets::shares_any() const {
  return std::any_of(shared.begin(), shared.end(), [](const BitSet& nodes) { return !nodes.empty(); });
}

size_t Buckets::bytes() const {
  size_t sum = by_idle.capacity() * sizeof(BitSet);
  for (const BitSet& nodes : by_idle) sum += nodes.bytes();
  for (const BitSet& nodes : shared) sum += nodes.bytes();
  return sum;
}

GpuRoom* NodeRoom::gpu(GpuId wanted) {
  for (GpuRoom& room : gpus) {
    if (room.id == wanted) return &room;
  }
  return nullptr;
}

void NodeRoom::take(const Footprint& footprint) {
  cpu_free -= footprint.cpu;
  memory_free -= footprint.memory;
  for (const Slice& slice : footprint.slices) {
    GpuRoom* room = gpu(slice.gpu);
    TRANCHE_ASSERT(room != nullptr);
    room->take(footprint.uid, slice);
  }
}

void NodeRoom::give(const Footprint& footprint) {
  cpu_free += footprint.cpu;
  memory_free += footprint.memory;
  for (const Slice& slice : footprint.slices) {
    GpuRoom* room = gpu(slice.gpu);
    TRANCHE_ASSERT(room != nullptr);
    room->give(footprint.uid, slice);
  }
}

TypeIndex Capacity::type_index(const std::string& name) {
  const auto found = std::find(type_names_.begin(), type_names_.end(), name);
  if (found == type_names_.end()) {
    TRANCHE_ASSERT(type_names_.size() < UINT16_MAX);
    type_names_.push_back(name);
    return static_cast<TypeIndex>(type_names_.size() - 1);
  }
  return static_cast<TypeIndex>(found - type_names_.begin());
}

KindIndex Capacity::kind_index(const std::string& pool, TypeIndex type) {
  const auto found = std::find_if(kinds_.begin(), kinds_.end(),
                                  [&](const Kind& kind) { return kind.type == type && kind.pool == pool; });
  if (found == kinds_.end()) {
    TRANCHE_ASSERT(kinds_.size() < UINT16_MAX);
    kinds_.emplace_back().pool = pool;
    kinds_.back().type = type;
    return static_cast<KindIndex>(kinds_.size() - 1);
  }
  return static_cast<KindIndex>(found - kinds_.begin());
}

void Capacity::add_node(const Node& node) {
  ++machine_version_;
  if (const auto known = index_of(node.id)) {
    // What it has may have changed, what its tasks hold has not.
    NodeRoom& room = nodes_[*known];
    leave_index(*known);
    room.cpu_free += node.cpu - room.cpu;
    room.memory_free += node.memory - room.memory;
    room.cpu = node.cpu;
    room.memory = node.memory;
    room.pool = node.pool;
    room.present = true;
    recount_installed();
    refresh(*known);
    changed(*known, true);
    return;
  }
  NodeRoom room;
  room.id = node.id;
  room.pool = node.pool;
  room.cpu = room.cpu_free = node.cpu;
  room.memory = room.memory_free = node.memory;
  const auto index = static_cast<NodeIndex>(nodes_.size());
  nodes_.push_back(std::move(room));
  places_.emplace_back();
  node_index_.insert(node.id, index);
  changed(index, true);
}

void Capacity::remove_node(NodeId id) {
  const auto index = index_of(id);
  if (!index) return;
  ++machine_version_;
  nodes_[*index].present = false;
  recount_installed();
  refresh(*index);
  changed(*index, false);
}

void Capacity::add_gpu(const Gpu& gpu) {
  const auto home = index_of(gpu.node);
  TRANCHE_ASSERT(home.has_value());
  ++machine_version_;
  GpuRoom room;
  room.id = gpu.id;
  room.index = gpu.index;
  room.type = type_index(gpu.type);
  room.memory_usable = room.memory_free = gpu.memory_usable;
  auto& gpus = nodes_[*home].gpus;
  const auto place = std::upper_bound(gpus.begin(), gpus.end(), room.index,
                                      [](uint32_t index, const GpuRoom& b) { return index < b.index; });
  Kind& kind = kinds_[kind_index(nodes_[*home].pool, room.type)];
  if (nodes_[*home].present) {
    ++kind.memories[room.memory_usable.count()];
    if (kind.installed++ == 0 || room.id < kind.first) kind.first = room.id;
  }
  gpus.insert(place, std::move(room));
  home_of_gpu_.insert(gpu.id, *home);
  joined_gpus_.add(gpu);
  refresh(*home);
  changed(*home, true);
}

void Capacity::remove_gpu(GpuId id) {
  const auto home = node_of(id);
  if (!home) return;
  ++machine_version_;
  leave_index(*home);
  std::erase_if(nodes_[*home].gpus, [&](const GpuRoom& room) { return room.id == id; });
  home_of_gpu_.erase(id);
  joined_gpus_.remove(id);
  recount_installed();
  refresh(*home);
  changed(*home, false);
}

void Capacity::set_condition(GpuId id, bool open, bool installed, bool degraded) {
  const auto home = node_of(id);
  if (!home) return;
  GpuRoom& room = *nodes_[*home].gpu(id);
  const bool gained = open && installed && !room.takes_work();
  if (installed != room.installed) {
    ++machine_version_;
    room.installed = installed;
    recount_installed();
  }
  room.open = open;
  room.degraded = degraded;
  refresh(*home);
  changed(*home, gained);
}

void Capacity::set_for_all(GpuId id, bool for_all) {
  const auto home = node_of(id);
  if (!home || nodes_[*home].gpu(id)->for_all == for_all) return;
  nodes_[*home].gpu(id)->for_all = for_all;
  changed(*home, for_all);
}

const GpuRoom* Capacity::gpu(GpuId id) const {
  const auto home = node_of(id);
  if (!home) return nullptr;
  for (const GpuRoom& room : nodes_[*home].gpus) {
    if (room.id == id) return &room;
  }
  return nullptr;
}

const NodeRoom* Capacity::node(NodeId id) const {
  const auto index = index_of(id);
  return index ? &nodes_[*index] : nullptr;
}

void Capacity::take(const Footprint& footprint) {
  const auto index = index_of(footprint.node);
  TRANCHE_ASSERT(index.has_value());
  nodes_[*index].take(footprint);
  for (const Slice& slice : footprint.slices) {
    if (slice.kind != SliceKind::whole) count_sharing(footprint.uid, *index, 1);
  }
  refresh(*index);
  changed(*index, false);
}

void Capacity::give(const Footprint& footprint) {
  give_host(footprint.node, footprint.cpu, footprint.memory);
  for (const Slice& slice : footprint.slices) give_slice(footprint.uid, slice);
}

void Capacity::give_host(NodeId id, MilliCpu cpu, MiB memory) {
  const auto index = index_of(id);
  TRANCHE_ASSERT(index.has_value());
  nodes_[*index].cpu_free += cpu;
  nodes_[*index].memory_free += memory;
  changed(*index, true);
}

void Capacity::give_slice(uint32_t uid, const Slice& slice) {
  const auto index = node_of(slice.gpu);
  TRANCHE_ASSERT(index.has_value());
  nodes_[*index].gpu(slice.gpu)->give(uid, slice);
  if (slice.kind != SliceKind::whole) count_sharing(uid, *index, -1);
  refresh(*index);
  changed(*index, true);
}

std::span<const std::pair<NodeIndex, uint32_t>> Capacity::shared_by(uint32_t uid) const {
  const auto found = sharer_index_.find(uid);
  if (!found) return {};
  return sharers_[*found].nodes;
}

void Capacity::count_sharing(uint32_t uid, NodeIndex node, int change) {
  auto found = sharer_index_.find(uid);
  if (!found) {
    found = static_cast<uint32_t>(sharers_.size());
    sharers_.emplace_back();
    sharer_index_.insert(uid, *found);
  }
  auto& nodes = sharers_[*found].nodes;
  const auto entry = std::find_if(nodes.begin(), nodes.end(), [&](const auto& e) { return e.first == node; });
  if (entry == nodes.end()) {
    nodes.push_back({node, static_cast<uint32_t>(change)});
    return;
  }
  entry->second = static_cast<uint32_t>(static_cast<int>(entry->second) + change);
  if (entry->second != 0) return;
  *entry = nodes.back();
  nodes.pop_back();
}

void Capacity::leave_index(NodeIndex index) {
  Place& place = places_[index];
  for (const KindCount& count : place.kinds) kinds_[count.kind].nodes.erase(index, count);
  place.kinds.clear();
}

KindCount Capacity::count_of(const NodeRoom& room, KindIndex kind) const {
  KindCount count{kind, 0, 0};
  const TypeIndex type = kinds_[kind].type;
  for (const GpuRoom& gpu : room.gpus) {
    if (gpu.type != type || !gpu.takes_work()) continue;
    if (gpu.is_idle()) {
      ++count.idle;
    } else if (!gpu.whole && gpu.compute_free.count() > 0 && gpu.memory_free.count() > 0) {
      const auto step = static_cast<uint8_t>(Buckets::step_of(gpu.compute_free.count()) + 1);
      count.shared = std::max(count.shared, step);
    }
  }
  return count;
}

void Capacity::count_kinds(NodeIndex index, const NodeRoom& room, std::vector<KindCount>& counts) const {
  counts.clear();
  if (!room.present) return;
  for (const KindCount& known : places_[index].kinds) counts.push_back(count_of(room, known.kind));
}

// Moves the node to the buckets where it belongs now.
void Capacity::refresh(NodeIndex index) {
  const NodeRoom& room = nodes_[index];
  Place& place = places_[index];
  uint32_t counted = 0;
  for (const GpuRoom& gpu : room.gpus) counted += gpu.takes_work() || !gpu.is_idle() ? 1u : 0u;
  counted_gpus_ += int64_t{counted} - int64_t{place.counted};
  place.counted = counted;
  if (!room.present) return leave_index(index);
  // One type a node is the rule: the bucket moves only when the count does.
  std::vector<KindCount>& known = place.kinds;
  for (size_t i = 0; i < room.gpus.size(); ++i) {
    const TypeIndex type = room.gpus[i].type;
    if (i > 0 && type == room.gpus[i - 1].type) continue;
    auto entry = std::find_if(known.begin(), known.end(),
                              [&](const KindCount& count) { return kinds_[count.kind].type == type; });
    const bool is_new = entry == known.end();
    if (is_new) {
      known.push_back({kind_index(room.pool, type), 0, 0});
      entry = known.end() - 1;
    }
    const KindCount now = count_of(room, entry->kind);
    if (!is_new && now == *entry) continue;
    Buckets& nodes = kinds_[entry->kind].nodes;
    if (!is_new) nodes.erase(index, *entry);
    nodes.insert(index, now);
    *entry = now;
  }
}

void Capacity::recount_installed() {
  for (Kind& kind : kinds_) {
    kind.memories.clear();
    kind.installed = 0;
    kind.first = GpuId();
  }
  for (const NodeRoom& home : nodes_) {
    if (!home.present) continue;
    for (const GpuRoom& room : home.gpus) {
      if (!room.installed) continue;
      Kind& kind = kinds_[kind_index(home.pool, room.type)];
      ++kind.memories[room.memory_usable.count()];
      if (kind.installed++ == 0 || room.id < kind.first) kind.first = room.id;
    }
  }
}

void Capacity::note_change(NodeIndex index) { changed(index, false); }

void Capacity::changed(NodeIndex index, bool gained) {
  ++places_[index].version;
  if (log_.size() >= std::max(kLogAtLeast, nodes_.size() * kLogPerNode)) {
    log_begin_ += log_.size();
    log_.clear();
  }
  log_.push_back(index);
  if (gained && (gains_.empty() || gains_.back() != index)) gains_.push_back(index);
}

size_t Capacity::bytes() const {
  size_t sum = nodes_.capacity() * sizeof(NodeRoom) + places_.capacity() * sizeof(Place) +
               node_index_.bytes() + home_of_gpu_.bytes() + log_.capacity() * sizeof(NodeIndex);
  for (const NodeRoom& home : nodes_) {
    sum += home.gpus.capacity() * sizeof(GpuRoom);
    for (const GpuRoom& room : home.gpus) sum += room.owners.bytes();
  }
  for (const Place& place : places_) sum += place.kinds.capacity() * sizeof(KindCount);
  for (const Kind& kind : kinds_) {
    sum += kind.nodes.bytes();
  }
  return sum;
}

MilliGpu charge_of(const Slice& slice, MiB memory_usable) {
  if (slice.kind == SliceKind::whole || memory_usable.count() <= 0) return kWholeGpu;
  const int64_t memory_share = scale_up(slice.memory.count(), kWholeGpu.count(), memory_usable.count());
  return MilliGpu(std::max(slice.compute.count(), memory_share));
}

}  // namespace tranche::scheduler
