// A history in lines for people, with TRANCHE_TELL in the environment: what happened, and what was decided.
#pragma once

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "model/decision.h"
#include "model/event.h"
#include "scheduler/test_world.h"

namespace tranche::scheduler::test {

inline std::string described(const JobSpec& spec) {
  const GpuRequest& gpu = spec.task.gpu;
  return std::to_string(spec.tasks_min) + ".." + std::to_string(spec.tasks_max) + " tasks of " +
         std::to_string(gpu.count) + " x " + std::string(to_string(gpu.kind)) + " " + gpu.type + " " +
         std::to_string(gpu.compute.count()) + " milli " + std::to_string(gpu.memory.count()) + " MiB, " +
         std::to_string(spec.task.cpu.count()) + " CPU, " + std::to_string(spec.task.memory.count()) +
         " MiB host, " + spec.queue + ", priority " + std::to_string(spec.priority) + ", limit " +
         std::to_string(spec.time_limit.count() / kMinute.count()) + " min" +
         (spec.preemptible ? "" : ", not preemptible") + (spec.elastic ? ", elastic" : "") + ", " +
         std::to_string(spec.groups.size()) + " groups";
}

inline std::string told(const TaskKey& task) {
  return std::to_string(task.job.value()) + ":" + std::to_string(task.rank) + "." +
         std::to_string(task.attempt);
}

inline void tell(const Event& event, const std::vector<Decision>& decisions) {
  static const bool is_wanted = std::getenv("TRANCHE_TELL") != nullptr;
  if (!is_wanted) return;
  std::string line = std::to_string(event.seq.value()) + " " +
                     std::to_string((event.time - kStart).count() / kMillisecond.count()) + " ms " +
                     std::string(event_kind(event.payload));
  if (const auto* e = std::get_if<JobSubmitted>(&event.payload)) {
    line += " " + std::to_string(e->job.value()) + " x" +
            std::to_string(std::max<size_t>(e->array.indices.size(), 1)) + ": " + described(e->spec);
  }
  if (const auto* e = std::get_if<TaskExited>(&event.payload)) line += " " + told(e->task);
  if (const auto* e = std::get_if<TaskStarted>(&event.payload)) line += " " + told(e->task);
  if (const auto* e = std::get_if<SliceReleased>(&event.payload))
    line += " " + told(e->task) + " of GPU " + std::to_string(e->gpu.value());
  for (const Decision& decision : decisions) {
    if (const auto* d = std::get_if<Start>(&decision)) {
      line += "; start " + told(d->task) + " on node " + std::to_string(d->node.value());
      for (const Slice& slice : d->slices) line += " GPU " + std::to_string(slice.gpu.value());
    }
    if (const auto* d = std::get_if<Stop>(&decision)) {
      line += "; stop " + told(d->task) + " " + std::string(to_string(d->reason)) + " for " +
              std::to_string(d->beneficiary.value());
    }
    if (const auto* d = std::get_if<Requeue>(&decision))
      line += "; requeue " + std::to_string(d->job.value());
    if (const auto* d = std::get_if<End>(&decision)) line += "; end " + std::to_string(d->job.value());
  }
  std::printf("%s\n", line.c_str());
}

}  // namespace tranche::scheduler::test
