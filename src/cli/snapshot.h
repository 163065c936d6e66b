// --snapshot: a job runs a copy of the source tree that was made when it was submitted.
//
// Copies lie in the user's own store, $TRANCHE_SNAPSHOTS, or tranche/snapshots under $XDG_DATA_HOME or
// ~/.local/share, one folder for each content:
//
//   <digest>/tree/...    the files, not writable; what jobs write beside them is theirs
//   <digest>/manifest    what was copied: size, time and path of each file
//   <digest>/jobs/F-N    N jobs from number F on use it
//   <digest>/ended       since when none of them lives
//
// The same content again is the same folder: files that a job has changed or removed are put back first. A
// copy is removed by a later submission with --snapshot, kSnapshotKept after its jobs have ended; what jobs
// wrote into it stays. Nothing but the user's own processes touches the store.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "base/units.h"
#include "cli/source_tree.h"
#include "codec/api.h"

namespace tranche::cli {

class Daemon;
class Session;

inline constexpr Duration kSnapshotKept = 7 * kDay;

// Copies the tree around the request's directory and makes the request run in the copy.
Result<void> take_snapshot(Session& session, api::SubmitRequest& request, const TreeBounds& bounds = {});

// The request was accepted: notes whose the copy is, and removes copies that nobody has needed for long.
// What fails here is told and no error: the job is submitted.
void keep_snapshot(Session& session, Daemon& daemon, const api::SubmitRequest& request,
                   const api::SubmitResponse& response);

}  // namespace tranche::cli
