// A copy of the journal while the daemon writes to it, and its way back.
//
// A backup is one SQLite file that holds what was durable at one instant: events, decisions, payloads and
// keys. What is restored is read in whole first, so that a damaged file replaces nothing.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "linux/unique_fd.h"

namespace tranche::machine {

// Writes `file` (mode 0600, durable when this returns; it must not exist). The rows that it holds.
Result<uint64_t> back_up_journal(const std::string& state_directory, const std::string& file);

// Puts an open backup in place of the state directory's journal, which is kept beside it under the name that
// `replaced` is set to (empty: there was none). No daemon may be using the directory. The rows that it holds.
// Not as root: call become_owner() first, since the directory is another user's.
Result<uint64_t> restore_journal(const UniqueFd& backup, const std::string& state_directory,
                                 std::string* replaced);

// Gives up being root, for good, for the user whom the state directory belongs to. Nothing if not root.
Result<void> become_owner(const std::string& state_directory);

}  // namespace tranche::machine
