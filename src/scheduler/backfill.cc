#include "scheduler/backfill.h"

#include <algorithm>

namespace tranche::scheduler {

Footprint footprint_of(const JobSpec& spec, const TaskPlacement& task) {
  return {spec.owner.uid, task.node, task.slices, spec.task.cpu, spec.task.memory};
}

std::optional<Reservation> plan_reservation(const Job& job, const Shape& shape, const Capacity& base,
                                            std::vector<Release> releases,
                                            const std::vector<Reservation>& others, Time now) {
  std::sort(releases.begin(), releases.end(), [](const Release& a, const Release& b) {
    return a.end != b.end ? a.end < b.end : a.task < b.task;
  });
  Reservation reservation{.job = job.id, .start = now, .plan = {}, .after = base};
  Layers layers{&reservation.after};
  for (const Reservation& other : others) layers.push_back(&other.after);
  size_t next = 0;
  while (true) {
    if (auto plan = place_gang(shape, shape.tasks_min, layers)) {
      for (const TaskPlacement& task : plan->tasks) reservation.after.take(footprint_of(*job.spec, task));
      reservation.plan = std::move(*plan);
      return reservation;
    }
    if (next == releases.size()) return std::nullopt;
    reservation.start = releases[next].end;
    while (next < releases.size() && releases[next].end == reservation.start) {
      reservation.after.give(releases[next++].footprint());
    }
  }
}

}  // namespace tranche::scheduler
