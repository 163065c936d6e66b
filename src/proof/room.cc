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

bool are_joined(const Gpu& a, const Gpu& b, GpuTopology how) {
  if (how == GpuTopology::numa_node) return a.numa_node >= 0 && a.numa_node == b.numa_node;
  const auto names = [](const Gpu& from, GpuId to) {
    return std::any_of(from.links.begin(), from.links.end(),
                       [&](const GpuLink& link) { return link.peer == to && link.kind == LinkKind::nvlink; });
  };
  return names(a, b.id) || names(b, a.id);
}

// The most sets of `width` GPUs of which each is joined with each other: every choice is tried.
int64_t most_sets(std::vector<const Gpu*> gpus, uint32_t width, GpuTopology how);

// Sets that begin with `chosen` and go on with GPUs of `gpus` from `next` on.
int64_t most_with(const std::vector<const Gpu*>& gpus, size_t next, std::vector<const Gpu*>& chosen,
                  uint32_t width, GpuTopology how) {
  if (chosen.size() == width) {
    std::vector<const Gpu*> left = gpus;
    for (const Gpu* taken : chosen) std::erase(left, taken);
    return 1 + most_sets(std::move(left), width, how);
  }
  int64_t best = 0;
  for (size_t i = next; i < gpus.size(); ++i) {
    const bool fits = std::all_of(chosen.begin(), chosen.end(),
                                  [&](const Gpu* other) { return are_joined(*other, *gpus[i], how); });
    if (!fits) continue;
    chosen.push_back(gpus[i]);
    best = std::max(best, most_with(gpus, i + 1, chosen, width, how));
    chosen.pop_back();
  }
  return best;
}

int64_t most_sets(std::vector<const Gpu*> gpus, uint32_t width, GpuTopology how) {
  if (gpus.size() < width) return 0;
  std::vector<const Gpu*> chosen{gpus.front()};
  const int64_t with_first = most_with(gpus, 1, chosen, width, how);
  gpus.erase(gpus.begin());
  return std::max(with_first, most_sets(std::move(gpus), width, how));
}

// The labels that name the node's domain at that level, the widest first; empty: it is in none.
std::vector<std::string> domain_of(const Node& node, const std::string& level, const Policy& policy) {
  std::vector<std::string> names;
  for (const std::string& wider : policy.topology_levels) {
    if (wider == level) break;
    names.push_back(wider);
  }
  const bool is_listed = std::find(policy.topology_levels.begin(), policy.topology_levels.end(), level) !=
                         policy.topology_levels.end();
  if (!is_listed) names.clear();
  names.push_back(level);
  std::vector<std::string> domain;
  for (const std::string& name : names) {
    for (const auto& [key, value] : node.labels) {
      if (key == name) domain.push_back(value);
    }
  }
  return domain.size() == names.size() ? domain : std::vector<std::string>();
}

}  // namespace

const TaskRequest& request_of_rank(const JobSpec& spec, uint32_t rank) {
  for (const TaskGroup& group : spec.groups) {
    if (rank < group.tasks_max) return group.task;
    rank -= group.tasks_max;
  }
  return spec.task;
}

bool may_go_to(const JobSpec& spec, const Node& node) {
  if (!spec.node_pool.empty() && node.pool != spec.node_pool) return false;
  return spec.nodes.empty() || std::find(spec.nodes.begin(), spec.nodes.end(), node.name) != spec.nodes.end();
}

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

const GpuFact* find_gpu(const StateDump& dump, GpuId id) {
  const auto found = std::find_if(dump.gpus.begin(), dump.gpus.end(),
                                  [&](const GpuFact& each) { return each.gpu.id == id; });
  return found == dump.gpus.end() ? nullptr : &*found;
}
const Node* find_node(const StateDump& dump, NodeId id) {
  const auto found =
      std::find_if(dump.nodes.begin(), dump.nodes.end(), [&](const Node& each) { return each.id == id; });
  return found == dump.nodes.end() ? nullptr : &*found;
}
const JobFact* find_job(const StateDump& dump, JobId id) {
  const auto found =
      std::find_if(dump.jobs.begin(), dump.jobs.end(), [&](const JobFact& each) { return each.job == id; });
  return found == dump.jobs.end() ? nullptr : &*found;
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
  const TaskRequest& task = request_of_rank(spec, placement.rank);
  change(placement.node, placement.slices, spec.owner.uid, task.cpu.count(), task.memory.count(), -1);
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

namespace {

// Tasks of the job on GPUs of one type of one node, of which `here` is what each room has.
int64_t tasks_on_node(const JobSpec& spec, bool users_share_gpu, const std::string& type,
                      const std::vector<const Room::NodeRoom*>& here) {
  const GpuRequest& request = spec.task.gpu;
  int64_t tasks = kAny;
  std::map<GpuId, int64_t> parts;
  for (const Room::NodeRoom* room : here) {
    tasks =
        std::min({tasks, tasks_of(room->cpu, spec.task.cpu.count()),
                  spec.task.memory.count() == 0 ? kAny : tasks_of(room->memory, spec.task.memory.count())});
    for (const auto& [gpu, each] : room->gpus) {
      if (each.gpu->type != type) continue;
      const int64_t fitting = parts_on(spec, users_share_gpu, each);
      const auto [at, is_new] = parts.emplace(gpu, fitting);
      if (!is_new) at->second = std::min(at->second, fitting);
    }
  }
  if (request.count == 0) return tasks;
  if (request.topology != GpuTopology::any && request.count > 1) {
    std::vector<const Gpu*> idle;
    for (const auto& [gpu, count] : parts) {
      if (count > 0) idle.push_back(here.front()->gpus.at(gpu).gpu);
    }
    return std::min(tasks, most_sets(std::move(idle), request.count, request.topology));
  }
  std::vector<int64_t> counts;
  for (const auto& [gpu, count] : parts) counts.push_back(count);
  return std::min(tasks, tasks_of_parts(counts, int64_t{request.count}));
}

}  // namespace

int64_t tasks_that_fit(const StateDump& dump, const JobSpec& spec, const std::vector<const Room*>& rooms) {
  std::set<std::string> types;
  for (const auto& [id, node] : rooms.front()->nodes_) {
    for (const auto& [gpu, room] : node.gpus) {
      if (is_of_type(spec.task.gpu, room.gpu->type)) types.insert(room.gpu->type);
    }
  }
  if (spec.task.gpu.count == 0) types = {""};
  const std::string& level = spec.topology.required;
  int64_t best = 0;
  for (const std::string& type : types) {
    // By domain; without one that is required, all nodes are of one.
    std::map<std::vector<std::string>, int64_t> sums;
    for (const auto& [id, node] : rooms.front()->nodes_) {
      if (!may_go_to(spec, *node.node)) continue;
      const auto domain =
          level.empty() ? std::vector<std::string>{""} : domain_of(*node.node, level, dump.policy);
      if (domain.empty()) continue;
      std::vector<const Room::NodeRoom*> here;
      for (const Room* room : rooms) here.push_back(&room->nodes_.at(id));
      const int64_t tasks = tasks_on_node(spec, dump.policy.users_share_gpu, type, here);
      sums[domain] += std::min<int64_t>(tasks, 1'000'000'000);
    }
    for (const auto& [domain, sum] : sums) best = std::max(best, sum);
  }
  return best;
}

}  // namespace tranche::proof
