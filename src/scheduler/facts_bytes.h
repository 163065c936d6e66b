// What a dump says as bytes, so that tests can compare two of them.
#pragma once

#include <string>

#include "base/archive.h"
#include "model/archive.h"
#include "model/state_dump.h"

namespace tranche {

template <class Archive, OfType<GpuFact> Value>
void archive_fields(Archive& archive, Value& value) {
  auto& [gpu, health, drained] = value;
  archive(gpu, health, drained);
}
template <class Archive, OfType<QueueFact> Value>
void archive_fields(Archive& archive, Value& value) {
  auto& [path, quota, limit, quota_cpu, limit_cpu, quota_memory, limit_memory] = value;
  archive(path, quota, limit, quota_cpu, limit_cpu, quota_memory, limit_memory);
}
template <class Archive, OfType<JobFact> Value>
void archive_fields(Archive& archive, Value& value) {
  auto& [job, array, spec, state, held, submitted, started, not_before, unmet] = value;
  archive(job, array, *spec, state, held, submitted, started, not_before, unmet);
}
template <class Archive, OfType<ArrayFact> Value>
void archive_fields(Archive& archive, Value& value) {
  auto& [array, running_max] = value;
  archive(array, running_max);
}
template <class Archive, OfType<HoldingFact> Value>
void archive_fields(Archive& archive, Value& value) {
  auto& [task, uid, queue, preemptible, node, cpu, memory, slices, latest_end, exited, leaving] = value;
  archive(task, uid, queue, preemptible, node, cpu, memory, slices, latest_end, exited, leaving);
}
template <class Archive, OfType<PlacementFact> Value>
void archive_fields(Archive& archive, Value& value) {
  auto& [node, slices, rank] = value;
  archive(node, slices, rank);
}
template <class Archive, OfType<ClaimFact> Value>
void archive_fields(Archive& archive, Value& value) {
  auto& [job, leaving, plan] = value;
  archive(job, leaving, plan);
}
template <class Archive, OfType<ReservationFact> Value>
void archive_fields(Archive& archive, Value& value) {
  auto& [job, start, plan] = value;
  archive(job, start, plan);
}

inline std::string facts_of(const StateDump& dump) {
  const auto& [now, policy, nodes, gpus, queues, jobs, arrays, holdings, claims, reservations] = dump;
  ArchiveWriter writer;
  writer(now, policy, nodes, gpus, queues, jobs, arrays, holdings, claims, reservations);
  return writer.take();
}

}  // namespace tranche
