#include "proof/room.h"

#include <algorithm>
#include <limits>

namespace tranche::proof {
namespace {

constexpr int64_t kAny = std::numeric_limits<int64_t>::max();

int64_t tasks_of(int64_t free, int64_t each) {
  if (each == 0) return free < 0 ? 0 : kAny;
  return std::max<int64_t>(free, 0) / each;
}

// How often the job's part fits on the GPU as it is.
int64_t parts_on(const JobSpec& spec, bool users_share_gpu, const Room::GpuRoom& room) {
  const Need need = need_on(spec, *room.gpu);
  if (!room.open || room.whole > 0 || need.compute == 0) return 0;
  if (spec.task.gpu.kind == SliceKind::whole) return room.owners.empty() ? 1 : 0;
  if (!users_share_gpu && !room.for_all && room.owners.count(spec.owner.uid) != room.owners.size()) return 0;
  return std::max<int64_t>(
      std::min(room.compute / need.compute, need.memory == 0 ? kAny : room.memory / need.memory), 0);
}

// Tasks of `width` parts on different GPUs: `tasks` fit exactly if the parts, none used more than `tasks`
// times, are enough.
int64_t tasks_of_parts(const std::vector<int64_t>& parts, int64_t width) {
  int64_t most = 0;
  for (const int64_t each : parts) most += each;
  most /= width;
  for (int64_t tasks = most; tasks > 0; --tasks) {
    int64_t usable = 0;
    for (const int64_t each : parts) usable += std::min(each, tasks);
    if (usable >= tasks * width) return tasks;
  }
  return 0;
}

}  // namespace

Need need_on(const JobSpec& spec, const Gpu& gpu) {
  const GpuRequest& request = spec.task.gpu;
  const int64_t usable = gpu.memory_usable.count();
  if (request.kind == SliceKind::whole) return {1000, usable};
  Need need{request.compute.count(), request.memory.count()};
  if (need.compute == 0 && usable > 0) need.compute = (need.memory * 1000 + usable - 1) / usable;
  if (request.memory.count() == 0) need.memory = usable * need.compute / 1000;
  if (need.compute > 1000 || need.memory > usable) return {};
  return need;
}

int64_t charge_of(const Slice& slice, const Gpu& gpu) {
  if (slice.kind == SliceKind::whole) return 1000;
  const int64_t usable = gpu.memory_usable.count();
  return std::max(slice.compute.count(), (slice.memory.count() * 1000 + usable - 1) / usable);
}

bool is_of_type(const GpuRequest& request, const std::string& type) {
  if (request.type.empty()) return true;
  size_t begin = 0;
  while (begin <= request.type.size()) {
    const size_t end = std::min(request.type.find('|', begin), request.type.size());
    if (request.type.compare(begin, end - begin, type) == 0) return true;
    begin = end + 1;
  }
  return false;
}

bool is_installed(const GpuFact& fact) { return fact.health != Health::lost; }
bool takes_work(const GpuFact& fact) {
  return is_installed(fact) && !fact.drained && fact.health != Health::failed;
}

Room::Room(const StateDump& dump, const Counts& counts) {
  for (const Node& node : dump.nodes) nodes_[node.id] = {&node, node.cpu.count(), node.memory.count(), {}};
  for (const GpuFact& fact : dump.gpus) {
    const auto home = nodes_.find(fact.gpu.node);
    if (home == nodes_.end() || !is_installed(fact)) continue;
    GpuRoom room;
    room.gpu = &fact.gpu;
    room.open = takes_work(fact);
    const auto& shared = dump.policy.users_share_gpus;
    room.for_all = std::find(shared.begin(), shared.end(), fact.gpu.id) != shared.end();
    room.memory = fact.gpu.memory_usable.count();
    home->second.gpus[fact.gpu.id] = room;
  }
  for (const HoldingFact& holding : dump.holdings) {
    if (counts(holding))
      change(holding.node, holding.slices, holding.uid, holding.cpu.count(), holding.memory.count(), -1);
  }
}

Room Room::idle(const StateDump& dump) {
  Room room(dump, [](const HoldingFact&) { return false; });
  for (auto& [id, node] : room.nodes_) {
    for (auto& [gpu, each] : node.gpus) each.open = true;
  }
  return room;
}

void Room::change(NodeId node, const std::vector<Slice>& slices, uint32_t uid, int64_t cpu, int64_t memory,
                  int sign) {
  const auto home = nodes_.find(node);
  if (home == nodes_.end()) return;
  home->second.cpu += sign * cpu;
  home->second.memory += sign * memory;
  for (const Slice& slice : slices) {
    const auto found = home->second.gpus.find(slice.gpu);
    if (found == home->second.gpus.end()) continue;
    GpuRoom& room = found->second;
    room.compute += sign * slice.compute.count();
    room.memory += sign * slice.memory.count();
    if (slice.kind == SliceKind::whole) room.whole -= sign;
    if (sign < 0) {
      room.owners.insert(uid);
    } else if (const auto owner = room.owners.find(uid); owner != room.owners.end()) {
      room.owners.erase(owner);
    }
  }
}

void Room::take(const JobSpec& spec, const PlacementFact& placement) {
  change(placement.node, placement.slices, spec.owner.uid, spec.task.cpu.count(), spec.task.memory.count(),
         -1);
}

void Room::give(const JobSpec& spec, const PlacementFact& placement) {
  change(placement.node, placement.slices, spec.owner.uid, spec.task.cpu.count(), spec.task.memory.count(),
         1);
}

void Room::give(const HoldingFact& holding) {
  change(holding.node, holding.slices, holding.uid, holding.cpu.count(), holding.memory.count(), 1);
}

bool Room::is_consistent() const {
  for (const auto& [id, node] : nodes_) {
    if (node.cpu < 0 || node.memory < 0) return false;
    for (const auto& [gpu, room] : node.gpus) {
      if (room.compute < 0 || room.memory < 0 || room.whole > 1) return false;
      if (room.whole == 1 && room.owners.size() > 1) return false;
    }
  }
  return true;
}

int64_t tasks_that_fit(const JobSpec& spec, bool users_share_gpu, const std::vector<const Room*>& rooms) {
  const GpuRequest& request = spec.task.gpu;
  std::set<std::string> types;
  for (const auto& [id, node] : rooms.front()->nodes_) {
    for (const auto& [gpu, room] : node.gpus) {
      if (is_of_type(request, room.gpu->type)) types.insert(room.gpu->type);
    }
  }
  if (request.count == 0) types = {""};
  int64_t best = 0;
  for (const std::string& type : types) {
    int64_t sum = 0;
    for (const auto& [id, node] : rooms.front()->nodes_) {
      if (!spec.node_pool.empty() && node.node->pool != spec.node_pool) continue;
      int64_t tasks = kAny;
      std::map<GpuId, int64_t> parts;
      for (const Room* room : rooms) {
        const Room::NodeRoom& here = room->nodes_.at(id);
        tasks = std::min(
            {tasks, tasks_of(here.cpu, spec.task.cpu.count()),
             spec.task.memory.count() == 0 ? kAny : tasks_of(here.memory, spec.task.memory.count())});
        for (const auto& [gpu, each] : here.gpus) {
          if (each.gpu->type != type) continue;
          const int64_t fitting = parts_on(spec, users_share_gpu, each);
          const auto [at, is_new] = parts.emplace(gpu, fitting);
          if (!is_new) at->second = std::min(at->second, fitting);
        }
      }
      if (request.count > 0) {
        std::vector<int64_t> counts;
        for (const auto& [gpu, count] : parts) counts.push_back(count);
        tasks = std::min(tasks, tasks_of_parts(counts, int64_t{request.count}));
      }
      sum += std::min<int64_t>(tasks, 1'000'000'000);
    }
    best = std::max(best, sum);
  }
  return best;
}

}  // namespace tranche::proof
