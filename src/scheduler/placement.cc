#include "scheduler/placement.h"

#include <algorithm>
#include <tuple>

#include "scheduler/wide.h"

namespace tranche::scheduler {
namespace {

// The layers' views of one node, as scratch that tasks are taken from while they are placed.
using NodeLayers = std::vector<NodeRoom>;

bool gpu_takes(const Shape& shape, const GpuRoom& room, const Slice& slice) {
  if (!room.open || !room.installed) return false;
  if (shape.kind == SliceKind::whole) return room.is_idle();
  if (room.whole || room.compute_free < slice.compute || room.memory_free < slice.memory) return false;
  if (shape.share_with_others || room.is_idle()) return true;
  return room.owners.size() == 1 && room.owners.front().first == shape.uid;
}

bool node_may_host(const Shape& shape, const std::string& type, size_t n, const Layers& layers) {
  const NodeRoom& home = layers.front()->nodes()[n];
  if (!home.present || (!shape.pool.empty() && home.pool != shape.pool)) return false;
  for (const Capacity* layer : layers) {
    const NodeRoom& room = layer->nodes()[n];
    if (room.cpu_free.count() < shape.cpu) return false;
    if (shape.host_memory > 0 && room.memory_free.count() < shape.host_memory) return false;
  }
  uint32_t taking = 0;
  for (size_t g = 0; g < home.gpus.size() && taking < shape.gpu_count; ++g) {
    const GpuRoom& first = home.gpus[g];
    if (!type.empty() && first.type != type) continue;
    const auto slice = slice_on(shape, first);
    if (!slice) continue;
    const bool takes = std::all_of(layers.begin(), layers.end(), [&](const Capacity* layer) {
      return gpu_takes(shape, layer->nodes()[n].gpus[g], *slice);
    });
    taking += takes ? 1 : 0;
  }
  return taking >= shape.gpu_count;
}

bool gpu_takes_in_all(const Shape& shape, const NodeLayers& layers, size_t g, const Slice& slice) {
  return std::all_of(layers.begin(), layers.end(),
                     [&](const NodeRoom& layer) { return gpu_takes(shape, layer.gpus[g], slice); });
}

void take_gpu(NodeLayers& layers, size_t g, const Shape& shape, const Slice& slice) {
  for (NodeRoom& layer : layers) {
    GpuRoom& room = layer.gpus[g];
    room.compute_free -= slice.compute;
    room.memory_free -= slice.memory;
    room.whole = shape.kind == SliceKind::whole;
    if (room.owners.empty()) room.owners.push_back({shape.uid, 1});
  }
}

// Lower is better: healthy, then shared before idle (a fraction must not open a GPU that somebody may want
// whole), then the least room left, then the lowest index.
std::tuple<bool, bool, int64_t, int64_t, size_t> preference(const GpuRoom& room, size_t g) {
  return {room.degraded, room.is_idle(), room.compute_free.count(), room.memory_free.count(), g};
}

std::optional<std::vector<std::pair<size_t, Slice>>> choose_gpus(const Shape& shape, const std::string& type,
                                                                 const NodeLayers& layers) {
  std::vector<std::pair<size_t, Slice>> fitting;
  for (size_t g = 0; g < layers.front().gpus.size(); ++g) {
    const GpuRoom& room = layers.front().gpus[g];
    if (room.type != type) continue;
    const auto slice = slice_on(shape, room);
    if (slice && gpu_takes_in_all(shape, layers, g, *slice)) fitting.push_back({g, *slice});
  }
  if (fitting.size() < shape.gpu_count) return std::nullopt;
  std::sort(fitting.begin(), fitting.end(), [&](const auto& a, const auto& b) {
    return preference(layers.front().gpus[a.first], a.first) <
           preference(layers.front().gpus[b.first], b.first);
  });
  fitting.resize(shape.gpu_count);
  return fitting;
}

bool host_takes(const Shape& shape, const NodeLayers& layers) {
  return std::all_of(layers.begin(), layers.end(), [&](const NodeRoom& layer) {
    return layer.cpu_free.count() >= shape.cpu &&
           (shape.host_memory == 0 || layer.memory_free.count() >= shape.host_memory);
  });
}

}  // namespace

Shape shape_of(const JobSpec& spec, bool users_share_gpu) {
  Shape shape;
  const GpuRequest& gpu = spec.task.gpu;
  shape.gpu_count = gpu.count;
  shape.kind = gpu.kind;
  if (gpu.kind != SliceKind::whole && gpu.count > 0) {
    shape.compute = gpu.compute.count();
    shape.memory = gpu.memory.count();
    shape.share_with_others = users_share_gpu;
    shape.uid = spec.owner.uid;
  }
  shape.cpu = spec.task.cpu.count();
  shape.host_memory = spec.task.memory.count();
  shape.tasks_min = std::max(spec.tasks_min, 1u);
  shape.tasks_max = std::max(spec.tasks_max, shape.tasks_min);
  shape.type = gpu.count > 0 ? gpu.type : "";
  shape.pool = spec.node_pool;
  return shape;
}

std::optional<Slice> slice_on(const Shape& shape, const GpuRoom& room) {
  Slice slice{.gpu = room.id, .kind = shape.kind, .compute = kWholeGpu, .memory = room.memory_usable};
  if (shape.kind == SliceKind::whole) return slice;
  const int64_t usable = room.memory_usable.count();
  if (usable <= 0 || (shape.compute <= 0 && shape.memory <= 0)) return std::nullopt;
  if (shape.compute > kWholeGpu.count() || shape.memory > usable) return std::nullopt;
  slice.compute =
      MilliGpu(shape.compute > 0 ? shape.compute : scale_up(shape.memory, kWholeGpu.count(), usable));
  slice.memory = MiB(shape.memory > 0 ? shape.memory : scale_down(usable, shape.compute, kWholeGpu.count()));
  return slice;
}

std::vector<std::string> types_for(const Shape& shape, const Capacity& installed) {
  if (shape.gpu_count == 0) return {""};
  struct Type {
    int64_t memory = 0;
    int64_t gpus = 0;
    GpuId first;
    std::string name;
  };
  std::vector<Type> types;
  for (const NodeRoom& home : installed.nodes()) {
    if (!home.present || (!shape.pool.empty() && home.pool != shape.pool)) continue;
    for (const GpuRoom& room : home.gpus) {
      if (!room.installed || (!shape.type.empty() && room.type != shape.type)) continue;
      if (!slice_on(shape, room)) continue;
      auto found =
          std::find_if(types.begin(), types.end(), [&](const Type& t) { return t.name == room.type; });
      if (found == types.end()) found = types.insert(types.end(), {0, 0, room.id, room.type});
      found->memory = std::max(found->memory, room.memory_usable.count());
      ++found->gpus;
      found->first = std::min(found->first, room.id);
    }
  }
  std::sort(types.begin(), types.end(), [](const Type& a, const Type& b) {
    return std::tuple(a.memory, -a.gpus, a.first) < std::tuple(b.memory, -b.gpus, b.first);
  });
  std::vector<std::string> names;
  for (Type& type : types) names.push_back(std::move(type.name));
  return names;
}

std::vector<TaskPlacement> place_on_node(const Shape& shape, const std::string& type, size_t node_position,
                                         const Layers& layers, uint32_t most) {
  const NodeRoom& home = layers.front()->nodes()[node_position];
  std::vector<TaskPlacement> placed;
  if (!node_may_host(shape, type, node_position, layers)) return placed;
  NodeLayers scratch;
  for (const Capacity* layer : layers) scratch.push_back(layer->nodes()[node_position]);
  while (placed.size() < most && host_takes(shape, scratch)) {
    TaskPlacement task{.node = home.id, .slices = {}};
    if (shape.gpu_count > 0) {
      const auto chosen = choose_gpus(shape, type, scratch);
      if (!chosen) break;
      for (const auto& [g, slice] : *chosen) {
        take_gpu(scratch, g, shape, slice);
        task.slices.push_back(slice);
      }
      std::sort(task.slices.begin(), task.slices.end(),
                [](const Slice& a, const Slice& b) { return a.gpu < b.gpu; });
    }
    for (NodeRoom& layer : scratch) {
      layer.cpu_free -= MilliCpu(shape.cpu);
      layer.memory_free -= MiB(shape.host_memory);
    }
    placed.push_back(std::move(task));
  }
  return placed;
}

bool may_host_one(const Shape& shape, const Layers& layers) {
  for (size_t n = 0; n < layers.front()->nodes().size(); ++n) {
    if (node_may_host(shape, shape.type, n, layers)) return true;
  }
  return false;
}

MilliGpu charge_at_least(const Shape& shape, const Capacity& installed, uint32_t tasks) {
  const int64_t slices = int64_t{shape.gpu_count} * int64_t{tasks};
  if (shape.kind == SliceKind::whole) return kWholeGpu * slices;
  int64_t least = kWholeGpu.count();
  for (const NodeRoom& home : installed.nodes()) {
    for (const GpuRoom& room : home.gpus) {
      const auto slice = slice_on(shape, room);
      if (slice) least = std::min(least, charge_of(*slice, room.memory_usable).count());
    }
  }
  return MilliGpu(least * slices);
}

}  // namespace tranche::scheduler
