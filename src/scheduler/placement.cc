#include "scheduler/placement.h"

#include <algorithm>
#include <limits>
#include <tuple>

#include "scheduler/wide.h"

namespace tranche::scheduler {
namespace {

constexpr int64_t kUnbounded = std::numeric_limits<int64_t>::max();

bool gpu_takes(const Shape& shape, const GpuRoom& room, const Slice& slice) {
  if (!room.takes_work()) return false;
  if (shape.kind == SliceKind::whole) return room.is_idle();
  if (room.whole || room.compute_free < slice.compute || room.memory_free < slice.memory) return false;
  if (shape.share_with_others || room.is_idle() || room.for_all) return true;
  return room.owners.is_only(shape.uid);
}

// How many tasks the processors and the memory of the node are enough for.
int64_t tasks_of_host(const Shape& shape, NodeIndex node, const Layers& layers) {
  int64_t tasks = kUnbounded;
  for (const View* layer : layers) {
    const NodeRoom& room = layer->at(node);
    if (shape.cpu > 0) tasks = std::min(tasks, std::max<int64_t>(room.cpu_free.count(), 0) / shape.cpu);
    if (shape.cpu == 0 && room.cpu_free.count() < 0) return 0;
    if (shape.host_memory > 0)
      tasks = std::min(tasks, std::max<int64_t>(room.memory_free.count(), 0) / shape.host_memory);
  }
  return tasks;
}

bool may_stand_on(const Shape& shape, const NodeRoom& home) {
  return home.present && (shape.pool.empty() || home.pool == shape.pool);
}

// One GPU of the node as scratch that tasks are taken from: the least over all layers.
struct Option {
  size_t g = 0;
  Slice slice;
  int64_t compute = 0;
  int64_t memory = 0;
  bool degraded = false;
  int points = 0;
  bool idle = false;   // in the first layer
  bool taken = false;  // by the task that is being placed
  std::tuple<bool, int, bool, int64_t, int64_t, size_t> preference(bool spread) const {
    if (spread) return {degraded, 0, !idle, -compute, -memory, g};
    return {degraded, -points, idle, compute, memory, g};
  }
};

std::vector<Option> options_on(const Shape& shape, TypeIndex type, NodeIndex node, const Layers& layers,
                               const std::vector<int>& points) {
  std::vector<Option> options;
  const auto& first = layers.front()->at(node).gpus;
  for (size_t g = 0; g < first.size(); ++g) {
    if (first[g].type != type) continue;
    const auto slice = slice_on(shape, first[g]);
    if (!slice) continue;
    Option option{g, *slice, kUnbounded, kUnbounded, first[g].degraded, 0, first[g].is_idle(), false};
    if (!points.empty()) option.points = points[g];
    bool takes = true;
    for (const View* layer : layers) {
      const GpuRoom& room = layer->at(node).gpus[g];
      takes = takes && gpu_takes(shape, room, *slice);
      option.compute = std::min(option.compute, room.compute_free.count());
      option.memory = std::min(option.memory, room.memory_free.count());
    }
    if (takes) options.push_back(option);
  }
  return options;
}

// Whole GPUs in the order in which they are handed out.
std::vector<size_t> idle_on(const Shape& shape, TypeIndex type, NodeIndex node, const Layers& layers) {
  std::vector<size_t> idle;
  const auto& first = layers.front()->at(node).gpus;
  bool any_degraded = false;
  for (size_t g = 0; g < first.size(); ++g) {
    if (first[g].type != type) continue;
    bool takes = true;
    for (const View* layer : layers) {
      const GpuRoom& room = layer->at(node).gpus[g];
      takes = takes && room.takes_work() && room.is_idle();
    }
    if (!takes) continue;
    idle.push_back(g);
    any_degraded = any_degraded || first[g].degraded;
  }
  if (any_degraded && idle.size() > shape.gpu_count) {
    std::stable_sort(idle.begin(), idle.end(),
                     [&](size_t a, size_t b) { return first[a].degraded < first[b].degraded; });
  }
  return idle;
}

// A set for one task after the other, of healthy GPUs as long as those do.
class SetsOfIdle {
 public:
  SetsOfIdle(const Shape& shape, const Layers& layers, NodeIndex node, const std::vector<size_t>& idle)
      : shape_(shape), joined_(layers.front()->base().joined_gpus()) {
    for (const size_t g : idle) {
      const GpuRoom& room = layers.front()->at(node).gpus[g];
      all_.push_back(room.id);
      if (!room.degraded) healthy_.push_back(room.id);
    }
  }

  // Empty: there is no other set.
  std::vector<GpuId> next() {
    std::vector<GpuId> taken;
    if (!take_joined(healthy_, shape_.gpu_count, shape_.topology, joined_, taken) &&
        !take_joined(all_, shape_.gpu_count, shape_.topology, joined_, taken))
      return taken;
    for (const GpuId gpu : taken) {
      std::erase(all_, gpu);
      std::erase(healthy_, gpu);
    }
    return taken;
  }

 private:
  const Shape& shape_;
  const JoinedGpus& joined_;
  std::vector<GpuId> all_;
  std::vector<GpuId> healthy_;
};

// Where it matters which GPUs a task gets together.
void place_joined(const Shape& shape, TypeIndex type, NodeIndex node, const Layers& layers, uint32_t most,
                  std::vector<TaskPlacement>& placed) {
  const NodeRoom& home = layers.front()->at(node);
  SetsOfIdle sets(shape, layers, node, idle_on(shape, type, node, layers));
  while (placed.size() < most) {
    const std::vector<GpuId> gpus = sets.next();
    if (gpus.empty()) return;
    TaskPlacement task{.node = home.id, .slices = {}};
    for (const GpuRoom& room : home.gpus) {
      if (std::find(gpus.begin(), gpus.end(), room.id) != gpus.end())
        task.slices.push_back({room.id, SliceKind::whole, kWholeGpu, room.memory_usable});
    }
    placed.push_back(std::move(task));
  }
}

void place_whole(const Shape& shape, TypeIndex type, NodeIndex node, const Layers& layers, uint32_t most,
                 std::vector<TaskPlacement>& placed) {
  const NodeRoom& home = layers.front()->at(node);
  if (shape.gpu_count > 1 && layers.front()->base().joined_gpus().knows_any())
    return place_joined(shape, type, node, layers, most, placed);
  if (shape.gpu_count > 1 && shape.topology != GpuTopology::any) return;  // nothing is known to be joined
  const std::vector<size_t> idle = idle_on(shape, type, node, layers);
  for (size_t next = 0; placed.size() < most && next + shape.gpu_count <= idle.size();) {
    TaskPlacement task{.node = home.id, .slices = {}};
    task.slices.reserve(shape.gpu_count);
    for (uint32_t i = 0; i < shape.gpu_count; ++i) {
      const GpuRoom& room = home.gpus[idle[next++]];
      task.slices.push_back({room.id, SliceKind::whole, kWholeGpu, room.memory_usable});
    }
    placed.push_back(std::move(task));
  }
}

// How many tasks the idle GPUs of the node are enough for where they have to be joined, at most `most`.
uint32_t joined_tasks(const Shape& shape, TypeIndex type, NodeIndex node, const Layers& layers,
                      uint32_t most) {
  std::vector<TaskPlacement> placed;
  place_whole(shape, type, node, layers, most, placed);
  return static_cast<uint32_t>(placed.size());
}

// How often the slice still fits there.
int64_t slots_of(const Option& option) {
  int64_t slots = kUnbounded;
  if (option.slice.compute.count() > 0) slots = option.compute / option.slice.compute.count();
  if (option.slice.memory.count() > 0) slots = std::min(slots, option.memory / option.slice.memory.count());
  return slots;
}

// Tasks of `width` slices on different GPUs: so many fit as make do with GPUs that each serve a task once.
uint32_t tasks_of_slices(const std::vector<Option>& options, uint32_t width, uint32_t most) {
  for (uint32_t tasks = most; tasks > 0; --tasks) {
    int64_t usable = 0;
    for (const Option& option : options) usable += std::min<int64_t>(slots_of(option), tasks);
    if (usable >= int64_t{tasks} * width) return tasks;
  }
  return 0;
}

void place_fractions(const Shape& shape, TypeIndex type, NodeIndex node, const Layers& layers, uint32_t most,
                     const std::vector<int>& points, std::vector<TaskPlacement>& placed) {
  const NodeRoom& home = layers.front()->at(node);
  std::vector<Option> options = options_on(shape, type, node, layers, points);
  if (shape.gpu_count > 1) most = tasks_of_slices(options, shape.gpu_count, most);
  while (placed.size() < most) {
    // With several slices a task, the GPUs that have to serve most tasks come first: otherwise they are left
    // over at the end, each too few for a task.
    const auto left = static_cast<int64_t>(most - placed.size());
    const auto is_better = [&](const Option& a, const Option& b) {
      const int64_t a_slots = shape.gpu_count > 1 ? std::min(slots_of(a), left) : 0;
      const int64_t b_slots = shape.gpu_count > 1 ? std::min(slots_of(b), left) : 0;
      return a_slots != b_slots ? a_slots > b_slots
                                : a.preference(shape.spread_gpus) < b.preference(shape.spread_gpus);
    };
    TaskPlacement task{.node = home.id, .slices = {}};
    for (Option& option : options) option.taken = false;
    for (uint32_t i = 0; i < shape.gpu_count; ++i) {
      Option* best = nullptr;
      for (Option& option : options) {
        if (option.taken || option.compute < option.slice.compute.count() ||
            option.memory < option.slice.memory.count())
          continue;
        if (best == nullptr || is_better(option, *best)) best = &option;
      }
      if (best == nullptr) return;
      best->taken = true;
      task.slices.push_back(best->slice);
    }
    for (Option& option : options) {
      if (!option.taken) continue;
      option.compute -= option.slice.compute.count();
      option.memory -= option.slice.memory.count();
      option.idle = false;
    }
    placed.push_back(std::move(task));
  }
}

}  // namespace

uint64_t Shape::hash() const {
  uint64_t hash = mix_bits(gpu_count | uint64_t{static_cast<unsigned>(kind)} << 32 |
                           uint64_t{share_with_others} << 40 | uint64_t{spread_nodes} << 41 |
                           uint64_t{spread_gpus} << 42 | uint64_t{some_gpus_for_all} << 43);
  for (const int64_t value :
       {compute, memory, cpu, host_memory, int64_t{tasks_min}, int64_t{tasks_max}, int64_t{uid},
        static_cast<int64_t>(structure), int64_t{gpu_count_max} << 8 | static_cast<int64_t>(topology)}) {
    hash = mix_bits(hash ^ static_cast<uint64_t>(value));
  }
  for (const std::string* text : {&type, &pool}) {
    for (const char c : *text) hash = hash * 31 + static_cast<unsigned char>(c);
    hash = mix_bits(hash);
  }
  return hash;
}

Shape shape_of(const JobSpec& spec, const Policy& policy) {
  Shape shape;
  const GpuRequest& gpu = spec.task.gpu;
  shape.gpu_count = gpu.count;
  shape.kind = gpu.kind;
  if (gpu.is_moldable() && gpu.kind == SliceKind::whole) shape.gpu_count_max = gpu.count_max;
  if (gpu.kind == SliceKind::whole && gpu.count > 1) shape.topology = gpu.topology;
  if (gpu.kind != SliceKind::whole && gpu.count > 0) {
    shape.compute = gpu.compute.count();
    shape.memory = gpu.memory.count();
    shape.share_with_others = policy.users_share_gpu;
    shape.spread_gpus = policy.gpu_placement == PlacementStrategy::spread;
    if (!policy.users_share_gpu) shape.uid = spec.owner.uid;
    shape.some_gpus_for_all = !policy.users_share_gpus.empty();
  }
  shape.cpu = spec.task.cpu.count();
  shape.host_memory = spec.task.memory.count();
  shape.tasks_min = std::max(spec.tasks_min, 1u);
  shape.tasks_max = std::max(spec.tasks_max, shape.tasks_min);
  shape.type = gpu.count > 0 ? gpu.type : "";
  shape.pool = spec.node_pool;
  shape.spread_nodes = policy.placement == PlacementStrategy::spread;
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

std::vector<TypeChoice> choices_for(const Shape& shape, const Capacity& capacity) {
  if (shape.gpu_count == 0) return {TypeChoice{}};
  struct Type {
    int64_t memory = 0;
    int64_t gpus = 0;
    GpuId first;
    TypeChoice choice;
  };
  std::vector<Type> types;
  for (size_t k = 0; k < capacity.kinds().size(); ++k) {
    const Kind& kind = capacity.kinds()[k];
    if (kind.installed == 0 || (!shape.pool.empty() && kind.pool != shape.pool)) continue;
    if (!accepts_type(shape.type, capacity.type_name(kind.type))) continue;
    int64_t gpus = 0;
    int64_t memory = 0;
    for (const auto& [usable, count] : kind.memories) {
      GpuRoom room;
      room.memory_usable = MiB(usable);
      if (!slice_on(shape, room)) continue;
      gpus += count;
      memory = std::max(memory, usable);
    }
    if (gpus == 0) continue;
    auto found = std::find_if(types.begin(), types.end(),
                              [&](const Type& type) { return type.choice.type == kind.type; });
    if (found == types.end())
      found = types.insert(types.end(), {0, 0, kind.first, {.type = kind.type, .rank = 0, .kinds = {}}});
    found->memory = std::max(found->memory, memory);
    found->gpus += gpus;
    found->first = std::min(found->first, kind.first);
    found->choice.kinds.push_back(static_cast<KindIndex>(k));
  }
  std::sort(types.begin(), types.end(), [](const Type& a, const Type& b) {
    return std::tuple(a.memory, -a.gpus, a.first) < std::tuple(b.memory, -b.gpus, b.first);
  });
  std::vector<TypeChoice> choices;
  for (size_t i = 0; i < types.size(); ++i) {
    if (i > 0)
      types[i].choice.rank = types[i - 1].choice.rank + (types[i].memory == types[i - 1].memory ? 0 : 1);
  }
  for (Type& type : types) choices.push_back(std::move(type.choice));
  return choices;
}

std::vector<TaskPlacement> place_on_node(const Shape& shape, const TypeChoice& choice, NodeIndex node,
                                         const Layers& layers, uint32_t most,
                                         const std::vector<int>& points) {
  std::vector<TaskPlacement> placed;
  const NodeRoom& home = layers.front()->at(node);
  if (!may_stand_on(shape, home)) return placed;
  const int64_t of_host = tasks_of_host(shape, node, layers);
  most = static_cast<uint32_t>(std::min<int64_t>(of_host, most));
  if (most == 0) return placed;
  if (shape.gpu_count == 0) {
    placed.assign(most, TaskPlacement{.node = home.id, .slices = {}});
    return placed;
  }
  if (shape.kind == SliceKind::whole) {
    place_whole(shape, choice.type, node, layers, most, placed);
  } else {
    place_fractions(shape, choice.type, node, layers, most, points, placed);
  }
  for (TaskPlacement& task : placed) {
    std::sort(task.slices.begin(), task.slices.end(),
              [](const Slice& a, const Slice& b) { return a.gpu < b.gpu; });
  }
  return placed;
}

bool fits_on_node(const Shape& shape, const TypeChoice& choice, NodeIndex node, const Layers& layers) {
  const NodeRoom& home = layers.front()->at(node);
  if (!may_stand_on(shape, home) || tasks_of_host(shape, node, layers) < 1) return false;
  if (shape.topology != GpuTopology::any) return joined_tasks(shape, choice.type, node, layers, 1) > 0;
  uint32_t taking = 0;
  for (size_t g = 0; g < home.gpus.size() && taking < shape.gpu_count; ++g) {
    if (home.gpus[g].type != choice.type) continue;
    const auto slice = slice_on(shape, home.gpus[g]);
    if (!slice) continue;
    bool takes = true;
    for (const View* layer : layers) takes = takes && gpu_takes(shape, layer->at(node).gpus[g], *slice);
    taking += takes ? 1 : 0;
  }
  return taking >= shape.gpu_count;
}

uint32_t count_on_node(const Shape& shape, const TypeChoice& choice, NodeIndex node, const Layers& layers,
                       uint32_t most) {
  const NodeRoom& home = layers.front()->at(node);
  if (!may_stand_on(shape, home)) return 0;
  const auto of_host = static_cast<uint32_t>(std::min<int64_t>(tasks_of_host(shape, node, layers), most));
  if (of_host == 0 || shape.gpu_count == 0) return of_host;
  if (shape.topology != GpuTopology::any) return joined_tasks(shape, choice.type, node, layers, of_host);
  if (shape.kind == SliceKind::whole) {
    uint32_t idle = 0;
    for (size_t g = 0; g < home.gpus.size(); ++g) {
      if (home.gpus[g].type != choice.type) continue;
      bool takes = true;
      for (const View* layer : layers) {
        const GpuRoom& room = layer->at(node).gpus[g];
        takes = takes && room.takes_work() && room.is_idle();
      }
      idle += takes ? 1 : 0;
    }
    return std::min(of_host, idle / shape.gpu_count);
  }
  return static_cast<uint32_t>(place_on_node(shape, choice, node, layers, of_host).size());
}

MilliGpu charge_at_least(const Shape& shape, const Capacity& installed, uint32_t tasks) {
  const int64_t slices = int64_t{shape.gpu_count} * int64_t{tasks};
  if (shape.kind == SliceKind::whole) return kWholeGpu * slices;
  int64_t least = kWholeGpu.count();
  for (const Kind& kind : installed.kinds()) {
    if (!accepts_type(shape.type, installed.type_name(kind.type))) continue;
    if (!shape.pool.empty() && kind.pool != shape.pool) continue;
    for (const auto& [usable, count] : kind.memories) {
      GpuRoom room;
      room.memory_usable = MiB(usable);
      const auto slice = slice_on(shape, room);
      if (slice) least = std::min(least, charge_of(*slice, room.memory_usable).count());
    }
  }
  return MilliGpu(least * slices);
}

}  // namespace tranche::scheduler
