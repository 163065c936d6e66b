#include "scheduler/task_step.h"

#include <algorithm>
#include <deque>
#include <set>

#include "scheduler/state.h"

namespace tranche::scheduler {
namespace {

JobSpec leaf_spec(const JobSpec& spec, const TaskGroups::Part& part, uint32_t tasks) {
  JobSpec leaf;
  leaf.owner = spec.owner;
  leaf.task = *part.task;
  leaf.tasks_min = leaf.tasks_max = std::max(tasks, 1u);
  leaf.node_pool = spec.node_pool;
  return leaf;
}

// Adds the kinds of `more` that are not there yet.
void merge_choices(std::vector<TypeChoice>& choices, const std::vector<TypeChoice>& more) {
  for (const TypeChoice& choice : more) {
    const bool known = std::any_of(choices.begin(), choices.end(), [&](const TypeChoice& other) {
      return other.type == choice.type && other.kinds == choice.kinds;
    });
    if (!known) choices.push_back(choice);
  }
}

}  // namespace

bool is_structured(const JobSpec& spec) {
  return spec.elastic || !spec.groups.empty() || spec.topology.is_set() || !spec.nodes.empty();
}

TaskStep::TaskStep(std::shared_ptr<const JobSpec> spec, const Policy& policy,
                   const std::map<NodeId, Node>& nodes, const Capacity& capacity, TaskGroups::Ranks ranks,
                   std::map<uint32_t, Start> held)
    : spec_(std::move(spec)), groups_(*spec_), ranks_(std::move(ranks)), held_(std::move(held)) {
  std::sort(ranks_.begin(), ranks_.end());
  parts_.resize(groups_.parts().size());
  for (size_t i = 0; i < parts_.size(); ++i) {
    const TaskGroups::Part& listed = groups_.parts()[i];
    Part& part = parts_[i];
    if (!listed.nodes->empty()) {
      part.allowed.resize(capacity.nodes().size());
      for (NodeIndex n = 0; n < part.allowed.size(); ++n) {
        const auto node = nodes.find(capacity.at(n).id);
        part.allowed[n] = node != nodes.end() && std::find(listed.nodes->begin(), listed.nodes->end(),
                                                           node->second.name) != listed.nodes->end();
      }
    }
    if (!listed.topology->required.empty())
      part.required = domains_of(listed.topology->required, policy, nodes, capacity);
    if (!listed.topology->preferred.empty())
      part.preferred = domains_of(listed.topology->preferred, policy, nodes, capacity);
    if (!listed.has_tasks()) continue;
    for (const uint32_t rank : ranks_) {
      if (rank >= listed.first_rank && rank - listed.first_rank < listed.tasks_max)
        part.ranks.push_back(rank);
    }
    part.shape = shape_of(leaf_spec(*spec_, listed, static_cast<uint32_t>(part.ranks.size())), policy);
    part.choices = choices_for(part.shape, capacity);
  }
  // From the leaves up: parts come after those that they are part of.
  for (size_t i = parts_.size(); i-- > 0;) {
    Part& part = parts_[i];
    const TaskGroups::Part& listed = groups_.parts()[i];
    part.is_empty = part.ranks.empty();
    std::vector<uint32_t> below{static_cast<uint32_t>(i)};
    for (size_t next = 0; next < below.size(); ++next) {
      const TaskGroups::Part& child = groups_.parts()[below[next]];
      below.insert(below.end(), child.children.begin(), child.children.end());
      for (const auto& [rank, start] : held_) {
        if (rank < child.first_rank || rank - child.first_rank >= child.tasks_max) continue;
        const auto node = capacity.index_of(start.node);
        if (!node) continue;
        if (!part.required.empty()) part.required_held.push_back(part.required[*node]);
        if (!part.preferred.empty()) part.preferred_held.push_back(part.preferred[*node]);
        // The tasks of a part are never spread over different types.
        const GpuRoom* gpu = start.slices.empty() ? nullptr : capacity.gpu(start.slices.front().gpu);
        if (below[next] == i && gpu != nullptr)
          std::erase_if(part.choices, [&](const TypeChoice& choice) { return choice.type != gpu->type; });
      }
    }
    for (const uint32_t child : listed.children) part.is_empty = part.is_empty && parts_[child].is_empty;
  }
  measure(capacity);
}

void TaskStep::measure(const Capacity& capacity) {
  bool is_first = true;
  for (size_t i = 0; i < parts_.size(); ++i) {
    const TaskGroups::Part& listed = groups_.parts()[i];
    const Part& part = parts_[i];
    if (!listed.has_tasks()) continue;
    const auto tasks = static_cast<uint32_t>(part.ranks.size());
    charge_ += charge_at_least(part.shape, capacity, tasks);
    host_ += {listed.task->cpu * int64_t{tasks}, listed.task->memory * int64_t{tasks}};
    uint32_t running = 0;
    for (const auto& [rank, start] : held_)
      running += rank >= listed.first_rank && rank - listed.first_rank < listed.tasks_max ? 1 : 0;
    const uint32_t all = spec_->elastic ? listed.tasks_max - std::min(running, listed.tasks_max) : tasks;
    demand_ += charge_at_least(part.shape, capacity, std::max(all, tasks));
    if (tasks == 0) continue;
    if (part.shape.gpu_count > 0) merge_choices(choices_, part.choices);
    has_tasks_without_gpus_ = has_tasks_without_gpus_ || part.shape.gpu_count == 0;
    if (is_first) first_shape_ = part.shape;
    is_first = false;
  }
}

// A domain is named by its label together with those of all wider levels: two blocks may both have a rack 1.
TaskStep::Domains TaskStep::domains_of(const std::string& level, const Policy& policy,
                                       const std::map<NodeId, Node>& nodes, const Capacity& capacity) const {
  std::vector<std::string> keys;
  const auto& levels = policy.topology_levels;
  const auto found = std::find(levels.begin(), levels.end(), level);
  if (found != levels.end()) keys.assign(levels.begin(), found);
  keys.push_back(level);
  Domains domains(capacity.nodes().size(), kNoDomain);
  std::map<std::vector<std::string>, uint32_t> numbers;
  for (NodeIndex n = 0; n < domains.size(); ++n) {
    const auto node = nodes.find(capacity.at(n).id);
    if (node == nodes.end()) continue;
    std::vector<std::string> values;
    for (const std::string& key : keys) {
      for (const auto& [name, value] : node->second.labels)
        if (name == key) values.push_back(value);
    }
    if (values.size() == keys.size())
      domains[n] = numbers.emplace(values, static_cast<uint32_t>(numbers.size())).first->second;
  }
  return domains;
}

// One placement: what has been placed so far, and the layers with that taken.
class TaskStep::Placer {
 public:
  Placer(const TaskStep& step, const Layers& layers, const Scores* scores)
      : step_(step), base_(layers), scores_(scores), nodes_(layers.front()->base().nodes().size()) {}

  std::optional<GangPlacement> place() {
    if (step_.ranks_.empty() || !place_part(0, std::vector<bool>(nodes_, true))) return std::nullopt;
    std::sort(placed_.begin(), placed_.end(),
              [](const TaskPlacement& a, const TaskPlacement& b) { return a.rank < b.rank; });
    TypeIndex type = 0;
    if (!placed_.front().slices.empty())
      type = base_.front()->base().gpu(placed_.front().slices.front().gpu)->type;
    return GangPlacement{type, std::move(placed_)};
  }

 private:
  bool place_part(uint32_t index, std::vector<bool> filter) {
    const Part& part = step_.parts_[index];
    if (part.is_empty) return true;
    for (size_t n = 0; n < part.allowed.size(); ++n) filter[n] = filter[n] && part.allowed[n];
    // First with what is preferred, then without.
    for (const bool with_preferred : {true, false}) {
      if (with_preferred && part.preferred.empty()) continue;
      if (in_domains(part.required, part.required_held, true, filter, [&](const std::vector<bool>& required) {
            if (!with_preferred) return place_inside(index, required);
            return in_domains(part.preferred, part.preferred_held, false, required,
                              [&](const std::vector<bool>& both) { return place_inside(index, both); });
          }))
        return true;
    }
    return false;
  }

  // Tries each domain that has nodes in the filter until `place` does it. Those where tasks run already come
  // first; with `bound` there is no other.
  template <class Place>
  bool in_domains(const Domains& domains, const std::vector<uint32_t>& held, bool bound,
                  const std::vector<bool>& filter, Place place) {
    if (domains.empty()) return place(filter);
    std::map<uint32_t, int64_t> room;
    for (NodeIndex n = 0; n < domains.size(); ++n) {
      if (filter[n] && domains[n] != kNoDomain) room[domains[n]] += room_of(n);
    }
    struct Candidate {
      bool is_new;
      int64_t room;
      uint32_t domain;
      auto rank() const { return std::tuple(is_new, room, domain); }
    };
    std::vector<Candidate> order;
    for (const auto& [domain, idle] : room) {
      const bool is_new = std::find(held.begin(), held.end(), domain) == held.end();
      if (is_new && bound && !held.empty()) continue;
      order.push_back({is_new, idle, domain});
    }
    std::sort(order.begin(), order.end(),
              [](const Candidate& a, const Candidate& b) { return a.rank() < b.rank(); });
    for (const Candidate& candidate : order) {
      std::vector<bool> narrowed = filter;
      for (NodeIndex n = 0; n < domains.size(); ++n)
        narrowed[n] = narrowed[n] && domains[n] == candidate.domain;
      const size_t before = placed_.size();
      if (place(narrowed)) return true;
      placed_.resize(before);
    }
    return false;
  }

  // Idle compute of a node, as the placement would find it; processors count where no GPU is asked for.
  int64_t room_of(NodeIndex node) const {
    const NodeRoom& home = base_.front()->at(node);
    int64_t sum = 0;
    for (const GpuRoom& gpu : home.gpus) sum += gpu.takes_work() && !gpu.whole ? gpu.compute_free.count() : 0;
    for (const TaskPlacement& task : placed_) {
      if (task.node != home.id) continue;
      for (const Slice& slice : task.slices) sum -= slice.compute.count();
    }
    return step_.first_shape_.gpu_count > 0 ? sum : home.cpu_free.count();
  }

  bool place_inside(uint32_t index, const std::vector<bool>& filter) {
    const Part& part = step_.parts_[index];
    const size_t before = placed_.size();
    bool good = part.ranks.empty() || place_tasks(part, filter);
    for (const uint32_t child : step_.groups_.parts()[index].children)
      good = good && place_part(child, filter);
    if (!good) placed_.resize(before);
    return good;
  }

  bool place_tasks(const Part& part, const std::vector<bool>& filter) {
    std::deque<View> views;  // a view is pointed to
    Layers layers;
    for (const View* layer : base_) {
      views.emplace_back(layer);
      layers.push_back(&views.back());
      for (const TaskPlacement& task : placed_) {
        const TaskRequest& request = request_of(*step_.spec_, task.rank);
        views.back().take({step_.spec_->owner.uid, task.node, task.slices, request.cpu, request.memory});
      }
    }
    const Search search{part.shape, part.choices, layers, scores_, nullptr, &filter};
    const auto gang = place_gang(search, static_cast<uint32_t>(part.ranks.size()));
    if (!gang) return false;
    for (size_t i = 0; i < part.ranks.size(); ++i) {
      placed_.push_back(gang->tasks[i]);
      placed_.back().rank = part.ranks[i];
    }
    return true;
  }

  const TaskStep& step_;
  const Layers& base_;
  const Scores* scores_;
  size_t nodes_;
  std::vector<TaskPlacement> placed_;
};

std::optional<GangPlacement> TaskStep::place(const Layers& layers, const Scores* scores) const {
  auto placed = Placer(*this, layers, scores).place();
  if (placed || scores == nullptr || groups_.parts().size() == 1) return placed;
  // What is best for one part may leave no place for the next: then any place will do.
  return Placer(*this, layers, nullptr).place();
}

namespace {

TaskGroups::RankSet running_ranks(const Job& job, std::map<uint32_t, Start>& held) {
  TaskGroups::RankSet running(job.spec->tasks_max);
  for (const Task& task : job.tasks) {
    const uint32_t rank = task.start.task.rank;
    if (rank >= running.size() || task.phase == TaskPhase::exited || task.stop_sent) continue;
    running[rank] = true;
    held.emplace(rank, task.start);
  }
  return running;
}

}  // namespace

std::shared_ptr<const TaskStep> next_step_of(const State& state, const Job& job) {
  if (!is_structured(*job.spec)) return nullptr;
  std::map<uint32_t, Start> held;
  TaskGroups::RankSet running = running_ranks(job, held);
  // What is still leaving keeps its rank.
  for (const Task& task : job.tasks) {
    if (task.start.task.rank < running.size()) running[task.start.task.rank] = true;
  }
  const TaskGroups groups(*job.spec);
  TaskGroups::Ranks ranks = held.empty() ? groups.missing(running) : groups.next_step(running);
  if (ranks.empty()) return nullptr;
  return std::make_shared<const TaskStep>(job.spec, state.policy, state.nodes, state.capacity,
                                          std::move(ranks), std::move(held));
}

TaskStep first_step_of(const State& state, std::shared_ptr<const JobSpec> spec, const Capacity& idle) {
  const TaskGroups groups(*spec);
  TaskGroups::Ranks ranks = groups.missing(TaskGroups::RankSet(spec->tasks_max));
  return {std::move(spec), state.policy, state.nodes, idle, std::move(ranks), {}};
}

std::optional<GangPlacement> place_again(const State& state, const Job& job, const Layers& layers) {
  std::map<uint32_t, Start> held;
  const TaskGroups::RankSet running = running_ranks(job, held);
  if (is_structured(*job.spec)) {
    TaskGroups::Ranks ranks;
    for (uint32_t rank = 0; rank < running.size(); ++rank)
      if (running[rank]) ranks.push_back(rank);
    return TaskStep(job.spec, state.policy, state.nodes, state.capacity, std::move(ranks), {}).place(layers);
  }
  const Shape shape = shape_of(*job.spec, state.policy);
  const auto choices = choices_for(shape, state.capacity);
  return place_gang(Search{shape, choices, layers, &state.scores}, static_cast<uint32_t>(held.size()));
}

std::optional<GangPlacement> place_record(const ShapeRecord& record, const Layers& layers,
                                          const Scores* scores) {
  if (record.step != nullptr) return record.step->place(layers, scores);
  return place_gang(Search{record.shape, record.choices, layers, scores, nullptr}, record.shape.tasks_min);
}

}  // namespace tranche::scheduler
