// The whole state as bytes: format and version, what cannot be derived in order, the hash of the state, a
// checksum. Equal states give equal bytes (base/archive.h).
//
// What is written and what is not:
//   policy, machine, queues with their use and shares, jobs, what tasks hold, claims, arrays, dependencies,
//   times that are waited for, ended jobs, what was learned of sizes and run times       written
//   free capacity and its indexes, who shares what                   from the machine and what tasks hold
//   groups, classes, heads of queues, what waits                     from the jobs that were ready
//   what is known about room, reservations, trees of release times   nothing, as after a restart from a
//   journal
// A member that is added to a struct of primary facts does not compile until it is named in snapshot.cc; one
// that is added to an index must follow from the rest, and the property test of restarts says if it does not.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace tranche::scheduler {

struct State;

// Raised with every change of what is written. Bytes of another format are not read: whoever has the events
// replays them.
inline constexpr uint32_t kSnapshotFormat = 2;

std::string save_state(const State& state);
// `state` is new. On an error it is of no use.
Result<void> load_state(std::string_view bytes, State& state);

}  // namespace tranche::scheduler
