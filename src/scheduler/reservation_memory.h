// Reservations as they were last worked out (backfill.h), with what has to stay as it was for them to hold,
// so that a step which touches none of it finds them as they are. Known from the state, never part of it: a
// copy starts empty.
#pragma once

#include <optional>
#include <vector>

#include "base/units.h"
#include "scheduler/gang.h"
#include "scheduler/waiting.h"

namespace tranche::scheduler {

struct Reservation {
  JobId job;
  int64_t aged = 0;  // State::aged of it
  TypeIndex type = 0;
  Time start;
  GangPlacement plan;
  View after;  // free at `start` on the nodes of the plan once it has its place
};

struct ReservationMemory {
  // One look at a waiting job, and what came of it.
  struct Look {
    ShapeId shape = 0;
    AgeKey age;
    bool waits_for_room = false;
    bool is_blocked = false;
  };
  // One search for the earliest time on nodes of a type.
  struct Search {
    ShapeId shape = 0;
    TypeChoice choice;
    Time found;  // unset: never
  };

  ReservationMemory() = default;
  ReservationMemory(const ReservationMemory&) {}
  ReservationMemory& operator=(const ReservationMemory&) {
    *this = ReservationMemory();
    return *this;
  }
  ReservationMemory(ReservationMemory&&) = default;
  ReservationMemory& operator=(ReservationMemory&&) = default;
  ~ReservationMemory() = default;

  bool is_worked_out = false;
  bool may_be_recalled = false;                   // false: something that is not written down here decided
  std::vector<std::optional<Reservation>> slots;  // by type, the last one for tasks without GPUs
  std::vector<Look> looks;
  std::vector<Search> searches;
  BitSet nodes;  // that a search looked at, or a plan stands on
  uint64_t machine_version = 0;
  uint64_t read_to = 0;  // of the capacity's log
};

}  // namespace tranche::scheduler
