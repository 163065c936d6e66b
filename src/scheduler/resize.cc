#include "scheduler/resize.h"

#include <algorithm>
#include <map>

#include "base/quantity_text.h"
#include "scheduler/check.h"
#include "scheduler/placement.h"
#include "scheduler/text.h"

namespace tranche::scheduler {
namespace {

// Room that is being freed there for another job is not to be taken.
bool is_claimed(const State& state, const Job& job, GpuId gpu) {
  return std::any_of(state.claims.begin(), state.claims.end(), [&](const Claim& claim) {
    if (claim.beneficiary == job.id || state.has_ended(claim)) return false;
    return std::any_of(claim.victims.begin(), claim.victims.end(), [&](const TaskKey& victim) {
      const Holding* holding = state.holdings.find(victim);
      if (holding == nullptr) return false;
      return std::any_of(holding->slices.begin(), holding->slices.end(),
                         [&](const Slice& slice) { return slice.gpu == gpu; });
    });
  });
}

Result<void> check_bounds(const State& state, const Job& job, MilliGpu more) {
  if (more <= MilliGpu()) return {};
  for (const QueueIndex at : state.queues.path_to_root(job.queue)) {
    const Queue& queue = state.queues.at(at);
    if (queue.limit && queue.used + more > *queue.limit) {
      return fail(ErrorCode::over_limit, "queue '" + queue.path + "' may use " + gpus_text(*queue.limit) +
                                             " and would use " + gpus_text(queue.used + more) +
                                             ": ask for less, or wait until others of it end");
    }
    if (!job.spec->preemptible && queue.quota && queue.used_not_preemptible + more > *queue.quota) {
      return fail(ErrorCode::over_limit, "the job cannot be preempted, and the quota of queue '" +
                                             queue.path + "' is " + gpus_text(*queue.quota) +
                                             ": ask for less, or wait until others of it end");
    }
  }
  return {};
}

Result<void> check_room(const State& state, const Job& job, const GpuRoom& room, const Slice& before,
                        const Slice& after) {
  const bool grows = after.memory > before.memory || after.compute > before.compute;
  if (!grows) return {};
  const std::string name = "GPU " + std::to_string(room.index);
  if (room.memory_free < MiB() || room.compute_free < MilliGpu()) {
    const MiB most = before.memory + std::max(MiB(), room.memory_free + after.memory - before.memory);
    return fail(ErrorCode::conflict, "there is no room for " + format_memory(after.memory) + " on " + name +
                                         ": of what others do not hold there the job can have " +
                                         format_memory(std::min(most, room.memory_usable)) +
                                         " at most; or give a limit beyond it, such as " +
                                         format_memory(before.memory) + ".." + format_memory(after.memory));
  }
  if (is_claimed(state, job, room.id)) {
    return fail(ErrorCode::conflict,
                "what is free on " + name + " was promised to a job that starts next: try again later");
  }
  return {};
}

}  // namespace

GpuRequest with_memory(GpuRequest gpu, MiB memory, MiB limit) {
  gpu.memory = memory;
  gpu.memory_limit = limit > memory ? limit : MiB();
  return gpu;
}

Result<std::vector<ResizedSlice>> resized(const State& state, const Job& job, const GpuRequest& gpu) {
  JobSpec spec = *job.spec;
  spec.task.gpu = gpu;
  const Shape shape = shape_of(spec, state.policy);
  std::vector<ResizedSlice> found;
  std::map<GpuId, GpuRoom> rooms;  // with all of the job's tasks in their new size
  MilliGpu more;
  for (const Task& task : job.tasks) {
    const Holding* holding = state.holdings.find(task.start.task);
    if (holding == nullptr || holding->exited) continue;
    for (size_t place = 0; place < holding->slices.size(); ++place) {
      const Slice& before = holding->slices[place];
      const GpuRoom* known = state.capacity.gpu(before.gpu);
      if (before.kind != SliceKind::fraction || known == nullptr) continue;
      GpuRoom& room = rooms.try_emplace(before.gpu, *known).first->second;
      const auto after = slice_on(shape, room);
      if (!after) {
        return fail(ErrorCode::conflict, "GPU " + std::to_string(room.index) + " has " +
                                             format_memory(room.memory_usable) + " for jobs: ask for less");
      }
      room.memory_free -= after->memory - before.memory;
      room.compute_free -= after->compute - before.compute;
      TRY(check_room(state, job, room, before, *after));
      const MilliGpu charge = charge_of(*after, room.memory_usable);
      more += charge - holding->charges[place];
      found.push_back({holding->task, place, *after, charge});
    }
  }
  TRY(check_bounds(state, job, more));
  return found;
}

Result<void> check_resize(const State& state, JobId id, MiB memory, MiB limit) {
  const Job* job = state.find(id);
  if (job == nullptr) return fail(ErrorCode::not_found, "there is no such job");
  const GpuRequest gpu = with_memory(job->spec->task.gpu, memory, limit);
  if (!job->is_waiting()) return resized(state, *job, gpu).map([](const auto&) {});
  JobSpec spec = *job->spec;
  spec.task.gpu = gpu;
  return check_request(state, spec);
}

// The event was checked before it was recorded, in the history that it comes from.
void State::resize(Job& job, const JobUpdated& event) {
  const GpuRequest gpu = with_memory(job.spec->task.gpu, event.gpu_memory, event.gpu_memory_limit);
  const bool has_parts = gpu.kind == SliceKind::fraction && gpu.count > 0 && job.spec->groups.empty();
  if (!has_parts || job.stop_reason) return;
  if (!job.is_waiting()) {
    const auto slices = resized(*this, job, gpu);
    if (!slices) return;
    for (const ResizedSlice& each : *slices) {
      Holding& holding = *holdings.find(each.task);
      Slice& slice = holding.slices[each.place];
      MilliGpu& charge = holding.charges[each.place];
      capacity.give_slice(holding.uid, slice);
      queues.charge(holding.queue, each.charge - charge, holding.preemptible, now);
      if (holding.stays) queues.add_staying(holding.queue, each.charge - charge);
      for (Task& task : job.tasks) {
        if (task.start.task != each.task) continue;
        std::replace(task.start.slices.begin(), task.start.slices.end(), slice, each.slice);
      }
      slice = each.slice;
      charge = each.charge;
      capacity.take({holding.uid, holding.node, std::span(&slice, 1), MilliCpu(), MiB()});
      for (const QueueIndex at : queues.path_to_root(holding.queue)) waiting.unpark_bound(at, queues);
    }
  }
  const auto spec = std::make_shared<JobSpec>(*job.spec);
  spec->task.gpu = gpu;
  job.spec = spec;
}

}  // namespace tranche::scheduler
