#include "scheduler/capacity.h"

#include <algorithm>

#include "base/assert.h"
#include "scheduler/wide.h"

namespace tranche::scheduler {

void Capacity::add_node(const Node& node) {
  NodeRoom room;
  room.id = node.id;
  room.pool = node.pool;
  room.cpu = room.cpu_free = node.cpu;
  room.memory = room.memory_free = node.memory;
  const auto place = std::lower_bound(nodes_.begin(), nodes_.end(), node.id,
                                      [](const NodeRoom& a, NodeId id) { return a.id < id; });
  if (place != nodes_.end() && place->id == node.id) {
    // Known already: what it has may have changed, what its tasks hold has not.
    place->cpu_free += node.cpu - place->cpu;
    place->memory_free += node.memory - place->memory;
    place->cpu = node.cpu;
    place->memory = node.memory;
    place->pool = node.pool;
    place->present = true;
    return;
  }
  nodes_.insert(place, std::move(room));
  rebuild_places();
}

void Capacity::add_gpu(const Gpu& gpu) {
  NodeRoom* home = node(gpu.node);
  TRANCHE_ASSERT(home != nullptr);
  GpuRoom room;
  room.id = gpu.id;
  room.index = gpu.index;
  room.type = gpu.type;
  room.memory_usable = room.memory_free = gpu.memory_usable;
  const auto place = std::upper_bound(home->gpus.begin(), home->gpus.end(), room,
                                      [](const GpuRoom& a, const GpuRoom& b) { return a.index < b.index; });
  home->gpus.insert(place, std::move(room));
  rebuild_places();
}

void Capacity::remove_gpu(GpuId id) {
  for (NodeRoom& home : nodes_) {
    std::erase_if(home.gpus, [&](const GpuRoom& room) { return room.id == id; });
  }
  rebuild_places();
}

void Capacity::rebuild_places() {
  places_.clear();
  for (uint32_t n = 0; n < nodes_.size(); ++n) {
    for (uint32_t g = 0; g < nodes_[n].gpus.size(); ++g) places_.push_back({nodes_[n].gpus[g].id, {n, g}});
  }
  std::sort(places_.begin(), places_.end());
}

const GpuRoom* Capacity::gpu(GpuId id) const {
  const auto found = std::lower_bound(places_.begin(), places_.end(), id,
                                      [](const auto& entry, GpuId wanted) { return entry.first < wanted; });
  if (found == places_.end() || found->first != id) return nullptr;
  return &nodes_[found->second.first].gpus[found->second.second];
}

GpuRoom* Capacity::gpu(GpuId id) { return const_cast<GpuRoom*>(static_cast<const Capacity*>(this)->gpu(id)); }

const NodeRoom* Capacity::node(NodeId id) const {
  const auto found = std::lower_bound(nodes_.begin(), nodes_.end(), id,
                                      [](const NodeRoom& room, NodeId wanted) { return room.id < wanted; });
  return found == nodes_.end() || found->id != id ? nullptr : &*found;
}

NodeRoom* Capacity::node(NodeId id) {
  return const_cast<NodeRoom*>(static_cast<const Capacity*>(this)->node(id));
}

void Capacity::take(const Footprint& footprint) {
  NodeRoom* home = node(footprint.node);
  TRANCHE_ASSERT(home != nullptr);
  home->cpu_free -= footprint.cpu;
  home->memory_free -= footprint.memory;
  for (const Slice& slice : footprint.slices) {
    GpuRoom* room = gpu(slice.gpu);
    TRANCHE_ASSERT(room != nullptr);
    room->compute_free -= slice.compute;
    room->memory_free -= slice.memory;
    room->whole = slice.kind == SliceKind::whole;
    const auto owner = std::lower_bound(room->owners.begin(), room->owners.end(),
                                        std::pair<uint32_t, uint32_t>{footprint.uid, 0});
    if (owner != room->owners.end() && owner->first == footprint.uid) {
      ++owner->second;
    } else {
      room->owners.insert(owner, {footprint.uid, 1});
    }
  }
}

void Capacity::give(const Footprint& footprint) {
  give_host(footprint.node, footprint.cpu, footprint.memory);
  for (const Slice& slice : footprint.slices) give_slice(footprint.uid, slice);
}

void Capacity::give_host(NodeId id, MilliCpu cpu, MiB memory) {
  NodeRoom* home = node(id);
  TRANCHE_ASSERT(home != nullptr);
  home->cpu_free += cpu;
  home->memory_free += memory;
}

void Capacity::give_slice(uint32_t uid, const Slice& slice) {
  GpuRoom* room = gpu(slice.gpu);
  TRANCHE_ASSERT(room != nullptr);
  room->compute_free += slice.compute;
  room->memory_free += slice.memory;
  const auto owner =
      std::lower_bound(room->owners.begin(), room->owners.end(), std::pair<uint32_t, uint32_t>{uid, 0});
  TRANCHE_ASSERT(owner != room->owners.end() && owner->first == uid);
  if (--owner->second == 0) room->owners.erase(owner);
  if (room->is_idle()) room->whole = false;
}

MilliGpu Capacity::total_compute() const {
  MilliGpu total;
  for (const NodeRoom& home : nodes_) {
    for (const GpuRoom& room : home.gpus) {
      if ((room.open && room.installed) || !room.is_idle()) total += kWholeGpu;
    }
  }
  return total;
}

MilliGpu charge_of(const Slice& slice, MiB memory_usable) {
  if (slice.kind == SliceKind::whole || memory_usable.count() <= 0) return kWholeGpu;
  const int64_t memory_share = scale_up(slice.memory.count(), kWholeGpu.count(), memory_usable.count());
  return MilliGpu(std::max(slice.compute.count(), memory_share));
}

}  // namespace tranche::scheduler
