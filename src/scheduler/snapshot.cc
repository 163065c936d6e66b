#include "scheduler/snapshot.h"

#include <algorithm>
#include <map>
#include <memory>

#include "base/archive.h"
#include "base/checksum.h"
#include "model/archive.h"
#include "scheduler/implementation.h"
#include "scheduler/state.h"

namespace tranche {

template <>
struct LastOf<scheduler::TaskPhase> {
  static constexpr auto value = scheduler::TaskPhase::exited;
};

}  // namespace tranche

namespace tranche::scheduler {

// --- primary facts: every member of the type is named -----------------------------------------------------
template <class Archive, OfType<Task> Value>
void archive_fields(Archive& archive, Value& value) {
  auto& [start, phase, stop_sent, never_executed, may_retry, cause, code] = value;
  archive(start, phase, stop_sent, never_executed, may_retry, cause, code);
}
// Without its specification, which several may share, and its place among those that run.
template <class Archive, OfType<Job> Value>
void archive_fields(Archive& archive, Value& value) {
  auto& [id, array, array_index, spec, state, attempt, submitted, started, not_before, first, expected,
         stop_time, stale_until, failed_starts, retried, queue, group, held, begin_passed, cancel_requested,
         requeue_requested, doomed, unmet_dependencies, stop_reason, failure, requeued_for, tasks, left,
         place_in_running] = value;
  bool is_ready = group != 0;
  archive(id, array, array_index, state, attempt, submitted, started, not_before, first, expected, stop_time,
          stale_until, failed_starts, retried, queue, is_ready, held, begin_passed, cancel_requested,
          requeue_requested, doomed, unmet_dependencies, stop_reason, failure, requeued_for, tasks, left);
  if constexpr (Archive::kReads) {
    group = is_ready ? 1 : 0;  // join_ready() gives it a real one
    place_in_running = UINT32_MAX;
  }
}
template <class Archive, OfType<Holding> Value>
void archive_fields(Archive& archive, Value& value) {
  auto& [task, uid, queue, preemptible, node, cpu, memory, exited, stays, latest_end, slices, charges] =
      value;
  archive(task, uid, queue, preemptible, node, cpu, memory, exited, stays, latest_end, slices, charges);
}
template <class Archive, OfType<Claim> Value>
void archive_fields(Archive& archive, Value& value) {
  auto& [beneficiary, victims, moved_for, waits_for] = value;
  archive(beneficiary, victims, moved_for, waits_for);
}
template <class Archive, OfType<GpuRecord> Value>
void archive_fields(Archive& archive, Value& value) {
  auto& [gpu, health, health_reason, drained, drain_reason, removed] = value;
  archive(gpu, health, health_reason, drained, drain_reason, removed);
}
template <class Archive, OfType<ArrayRecord> Value>
void archive_fields(Archive& archive, Value& value) {
  auto& [running_max, running, live] = value;
  archive(running_max, running, live);
}
template <class Archive, OfType<HostAmount> Value>
void archive_fields(Archive& archive, Value& value) {
  auto& [cpu, memory] = value;
  archive(cpu, memory);
}
template <class Archive, OfType<HostBound> Value>
void archive_fields(Archive& archive, Value& value) {
  auto& [cpu, memory] = value;
  archive(cpu, memory);
}

// --- classes that keep indexes of their own: what is primary in them ---------------------------------------
struct StateArchive {
  template <class Archive, class Value>
  static void wide_number(Archive& archive, Value& value) {
    auto high = static_cast<uint64_t>(value >> 64);
    auto low = static_cast<uint64_t>(value);
    archive(high, low);
    if constexpr (Archive::kReads) value = (Wide{high} << 64) | low;
  }

  template <class Archive, class Value>
  static void queue(Archive& archive, Value& value) {
    archive(value.configured, value.quota, value.guaranteed, value.limit, value.user_limit, value.weight,
            value.priority, value.host_quota, value.host_limit, value.host_used,
            value.host_used_not_preemptible, value.host_staying, value.used, value.used_not_preemptible,
            value.staying);
    wide_number(archive, value.usage);
    wide_number(archive, value.accrued);
    wide_number(archive, value.usage_seen);
    archive(value.waiting, value.demand_raw, value.demand, value.fair, value.entitled, value.jobs_waiting,
            value.jobs_running, value.running);
  }
  template <class Archive, OfType<QueueTree> Value>
  static void queues(Archive& archive, Value& tree) {
    std::vector<std::string> paths;
    for (const Queue& each : tree.queues_) paths.push_back(each.path);
    Time epoch = tree.clock_.epoch();
    Duration half_life = tree.clock_.half_life();
    archive(paths, epoch, half_life, tree.surplus_needed_, tree.share_unit_, tree.host_, tree.looks_);
    if constexpr (Archive::kReads) {
      tree.clock_.restart(epoch, half_life);
      if (paths.empty() || !paths.front().empty()) return archive.refuse();
      for (size_t i = 1; i < paths.size(); ++i) {
        if (paths[i].empty() || tree.ensure(paths[i]) != i) return archive.refuse();
      }
    }
    for (auto& each : tree.queues_) queue(archive, each);
  }

  template <class Archive, OfType<Scores> Value>
  static void scores(Archive& archive, Value& value, const Capacity& capacity) {
    bool is_current = value.machine_at_last_choice_ == capacity.machine_version();
    archive.list(value.asked_,
                 [&](auto& asked) { archive(asked.gpus, asked.milli, asked.cpu, asked.type, asked.jobs); });
    archive(value.jobs_, value.jobs_at_last_choice_, is_current, value.prices_, value.version_);
    archive.list(value.mixes_, [&](auto& mix) {
      archive(mix.elsewhere);
      archive.list(mix.steps, [&](auto& step) { archive(step.milli, step.gpus, step.weight, step.by_cpu); });
    });
    if constexpr (Archive::kReads)
      value.machine_at_last_choice_ = is_current ? capacity.machine_version() : UINT64_MAX;
  }

  template <class Archive, OfType<Prediction> Value>
  static void prediction(Archive& archive, Value& value) {
    if constexpr (Archive::kReads) {
      std::vector<std::pair<uint32_t, Prediction::Runs>> runs;
      archive.list(runs, [&](auto& each) {
        archive(each.first, each.second.last, each.second.before, each.second.has_two);
      });
      value.runs_.insert(runs.begin(), runs.end());
    } else {
      archive.list(value.runs_, [&](auto& each) {
        archive(each.first, each.second.last, each.second.before, each.second.has_two);
      });
    }
  }

  // A byte for each job that there ever was.
  static std::string ended_bytes(const EndedJobs& ended) {
    auto size = ended.by_id_.size();
    while (size > 0 && ended.by_id_[size - 1] == 0) --size;
    return {ended.by_id_.begin(), ended.by_id_.begin() + static_cast<std::ptrdiff_t>(size)};
  }
  static bool read_ended(const std::string& bytes, EndedJobs& ended) {
    ended.by_id_.resize(bytes.size());
    for (size_t id = 0; id < bytes.size(); ++id) {
      const auto byte = static_cast<uint8_t>(bytes[id]);
      if (byte == 0) continue;
      const auto state = static_cast<JobState>(byte / 2);
      if (!is_final(state) || to_string(state) == "?") return false;
      ended.add(JobId(id), state, (byte & 1) != 0);
    }
    return true;
  }

  // Nodes in the order in which they came, each with its GPUs; kinds and types in theirs, so that ties go as
  // before. What is free of them is taken by the tasks that hold it.
  struct Room {
    NodeId id;
    std::string pool;
    bool present = true;
    MilliCpu cpu;
    MiB memory;
    struct Device {
      GpuId id;
      uint32_t index = 0;
      TypeIndex type = 0;
      bool open = true, installed = true, degraded = false;
      MiB memory_usable;
    };
    std::vector<Device> gpus;
  };
  template <class Archive, class Value>
  static void room(Archive& archive, Value& node) {
    archive(node.id, node.pool, node.present, node.cpu, node.memory);
    archive.list(node.gpus, [&](auto& gpu) {
      archive(gpu.id, gpu.index, gpu.type, gpu.open, gpu.installed, gpu.degraded, gpu.memory_usable);
    });
  }
  static void capacity(ArchiveWriter& archive, const Capacity& capacity) {
    archive(capacity.type_names_);
    archive.list(capacity.kinds_, [&](const Kind& kind) { archive(kind.pool, kind.type); });
    archive.list(capacity.nodes_, [&](const NodeRoom& node) { room(archive, node); });
  }
  static void capacity(ArchiveReader& archive, Capacity& capacity) {
    std::vector<Room> nodes;
    archive(capacity.type_names_);
    archive.list(capacity.kinds_, [&](Kind& kind) { archive(kind.pool, kind.type); });
    archive.list(nodes, [&](Room& node) { room(archive, node); });
    const size_t types = capacity.type_names_.size();
    for (const Kind& kind : capacity.kinds_) {
      if (kind.type >= types) return archive.refuse();
    }
    for (const Room& node : nodes) {
      if (capacity.index_of(node.id)) return archive.refuse();
      capacity.add_node(Node{node.id, "", node.pool, node.cpu, node.memory, {}});
      for (const Room::Device& gpu : node.gpus) {
        if (gpu.type >= types || capacity.node_of(gpu.id)) return archive.refuse();
        Gpu added;
        added.id = gpu.id;
        added.node = node.id;
        added.index = gpu.index;
        added.type = capacity.type_names_[gpu.type];
        added.memory_usable = gpu.memory_usable;
        capacity.add_gpu(added);
        capacity.set_condition(gpu.id, gpu.open, gpu.installed, gpu.degraded);
      }
      if (!node.present) capacity.remove_node(node.id);
    }
  }

  static void look_at_all(QueueTree& tree) {
    for (QueueIndex index = 0; index < tree.size(); ++index) {
      tree.priorities_changed(index);
      tree.look_for_uneven_.insert(index);
    }
  }
};

namespace {

std::vector<std::vector<TaskKey>> tasks_by_node(const State& state) {
  std::vector<std::vector<TaskKey>> tasks(state.holdings_on.size());
  for (size_t node = 0; node < tasks.size(); ++node) {
    for (const uint32_t position : state.holdings_on[node])
      tasks[node].push_back(state.holdings.at(position).task);
  }
  return tasks;
}

void write_jobs(ArchiveWriter& archive, const State& state) {
  const std::vector<JobId> ids = state.jobs.keys();
  std::map<const JobSpec*, uint64_t> numbers;  // by address, only to be found
  std::vector<const JobSpec*> specs;
  for (const JobId id : ids) {
    const JobSpec* spec = state.find(id)->spec.get();
    if (numbers.emplace(spec, specs.size()).second) specs.push_back(spec);
  }
  archive.list(specs, [&](const JobSpec* spec) { archive(*spec); });
  archive.list(ids, [&](JobId id) {
    const Job& job = *state.find(id);
    archive(numbers.at(job.spec.get()), job);
  });
}

bool read_jobs(ArchiveReader& archive, State& state) {
  std::vector<std::shared_ptr<const JobSpec>> specs;
  archive.list(specs, [&](std::shared_ptr<const JobSpec>& spec) {
    const auto read = std::make_shared<JobSpec>();
    archive(*read);
    spec = read;
  });
  std::vector<Job> jobs;
  archive.list(jobs, [&](Job& job) {
    uint64_t spec = 0;
    archive(spec, job);
    if (spec < specs.size()) job.spec = specs[spec];
  });
  for (Job& job : jobs) {
    const JobId id = job.id;
    const bool is_known = job.spec != nullptr && job.queue < state.queues.size() && id.is_set();
    if (!is_known || is_final(job.state) || state.find(id) != nullptr) return false;
    if (job.array.is_set() && !state.arrays.contains(job.array)) return false;
    ++state.jobs_of_user[job.spec->owner.uid];
    state.jobs.add(id, std::move(job));
  }
  return !archive.failed();
}

bool take_room(State& state, std::vector<Holding> holdings,
               const std::vector<std::vector<TaskKey>>& by_node) {
  for (Holding& holding : holdings) {
    const auto node = state.capacity.index_of(holding.node);
    if (!node || holding.queue >= state.queues.size() || state.holdings.find(holding.task) != nullptr)
      return false;
    if (holding.charges.size() != holding.slices.size()) return false;
    if (holding.exited && !state.leaving.contains(holding.task)) return false;
    for (const Slice& slice : holding.slices) {
      if (state.capacity.node_of(slice.gpu) != node) return false;
    }
    state.capacity.take(holding.footprint());
    state.holdings.add(holding.task, std::move(holding));
  }
  size_t placed = 0;
  if (by_node.size() != state.capacity.nodes().size()) return false;
  for (const std::vector<TaskKey>& tasks : by_node) {
    std::vector<uint32_t>& here = state.holdings_on.emplace_back();
    for (const TaskKey& key : tasks) {
      const auto position = state.holdings.position(key);
      if (!position) return false;
      here.push_back(*position);
    }
    placed += here.size();
  }
  for (const auto& [key, number] : state.leaving) {
    if (state.holdings.find(key) == nullptr || number > state.last_leave) return false;
    state.leave_numbers.insert(number);
  }
  return placed == state.holdings.size();
}

bool join_running(State& state) {
  for (QueueIndex index = 0; index < state.queues.size(); ++index) {
    Queue& queue = state.queues.at(index);
    for (uint32_t place = 0; place < queue.running.size(); ++place) {
      Job* job = state.find(queue.running[place]);
      if (job == nullptr || job->queue != index || job->place_in_running != UINT32_MAX) return false;
      job->place_in_running = place;
      if (job->spec->preemptible) ++queue.running_priorities[gives_way_below(*job->spec)];
    }
  }
  return true;
}

// Jobs that were ready get their groups anew, which must come to the same demand.
bool join_ready(State& state) {
  struct Demand {
    MilliGpu waiting, raw, bounded;
  };
  std::vector<Demand> demands;
  for (QueueIndex index = 0; index < state.queues.size(); ++index) {
    Queue& queue = state.queues.at(index);
    demands.push_back({queue.waiting, queue.demand_raw, queue.demand});
    queue.waiting = MilliGpu();
  }
  for (const JobId id : state.jobs.keys()) {
    Job& job = *state.find(id);
    if (job.group == 0) continue;
    job.group = 0;
    state.update_ready(job);
    if (job.group == 0) return false;
  }
  for (QueueIndex index = 0; index < state.queues.size(); ++index) {
    Queue& queue = state.queues.at(index);
    if (queue.waiting != demands[index].waiting) return false;
    queue.demand_raw = demands[index].raw;
    queue.demand = demands[index].bounded;
    queue.divide_again = queue.divide_again_below = false;
  }
  return true;
}

// Those before and between them are of no use any more.
std::vector<std::pair<Time, JobId>> standing_starts(const State& state) {
  std::vector<std::pair<Time, JobId>> starts;
  for (size_t i = state.started_from; i < state.started.size(); ++i) {
    if (state.stands(state.started[i])) starts.push_back(state.started[i]);
  }
  return starts;
}

// Members that are written as they are; the others have their functions.
template <class Archive, class Value>
void plain_members(Archive& archive, Value& state) {
  archive(state.policy, state.now, state.last_event, state.wake, state.nodes, state.gpus, state.leaving,
          state.last_leave, state.arrays, state.dependents, state.begins, state.stale, state.claims,
          state.removed_gpus);
}

}  // namespace

std::string save_state(const State& state) {
  ArchiveWriter archive;
  archive(kSnapshotFormat, kVersion);
  plain_members(archive, state);
  archive(standing_starts(state));
  StateArchive::capacity(archive, state.capacity);
  StateArchive::queues(archive, state.queues);
  StateArchive::scores(archive, state.scores, state.capacity);
  StateArchive::prediction(archive, state.prediction);
  archive(StateArchive::ended_bytes(state.ended));
  write_jobs(archive, state);
  archive.list(state.holdings.keys(), [&](const TaskKey& key) { archive(*state.holdings.find(key)); });
  archive(tasks_by_node(state), state.hash());
  return with_checksum(archive.take());
}

Result<void> load_state(std::string_view bytes, State& state) {
  const auto damaged = [] { return fail(ErrorCode::corrupt, "the scheduler's state is damaged"); };
  const auto content = without_checksum(bytes);
  if (!content) return damaged();
  ArchiveReader archive(*content);
  uint32_t format = 0, version = 0;
  archive(format, version);
  if (!archive.failed() && (format != kSnapshotFormat || version != kVersion))
    return fail(ErrorCode::conflict, "the scheduler's state is of format " + std::to_string(format) +
                                         ", version " + std::to_string(version) +
                                         ", and this program writes " + std::to_string(kSnapshotFormat) +
                                         ", " + std::to_string(kVersion));
  std::string ended;
  std::vector<Holding> holdings;
  std::vector<std::vector<TaskKey>> by_node;
  uint64_t hash = 0;
  plain_members(archive, state);
  archive(state.started);
  StateArchive::capacity(archive, state.capacity);
  for (const auto& [id, record] : state.gpus) {
    if (state.capacity.gpu(id) != nullptr) state.capacity.know_joins(record.gpu);
  }
  StateArchive::queues(archive, state.queues);
  StateArchive::scores(archive, state.scores, state.capacity);
  StateArchive::prediction(archive, state.prediction);
  archive(ended);
  if (!read_jobs(archive, state)) return damaged();
  archive(holdings, by_node, hash);
  if (!archive.finish()) return damaged();
  if (!StateArchive::read_ended(ended, state.ended) || !take_room(state, std::move(holdings), by_node) ||
      !join_running(state) || !join_ready(state))
    return damaged();
  StateArchive::look_at_all(state.queues);
  state.know_nothing = true;
  state.capacity.forget_gains();
  if (state.hash() != hash) return damaged();
  return {};
}

std::string Scheduler::save() const { return save_state(*state_); }

Result<Scheduler> Scheduler::load(std::string_view bytes) {
  Scheduler loaded;
  TRY(load_state(bytes, *loaded.state_));
  return loaded;
}

}  // namespace tranche::scheduler
