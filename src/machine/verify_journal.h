// Recomputes a recorded journal: the same version of the scheduler must take the same decisions, bit for bit,
// from its first event on and from each snapshot that it holds.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace tranche::machine {

struct SnapshotVerdict {
  uint64_t seq = 0;
  std::string unreadable;  // why a restart would pass it over; empty: it would not
  bool holds = true;       // it is what the rows before it make, and leads to what the rows behind it made
};

struct JournalVerdict {
  uint64_t rows = 0;
  uint64_t recomputed = 0;  // of this scheduler's version; others are restored only
  uint64_t state_hash_recomputed = 0;
  uint64_t state_hash_restored = 0;
  std::vector<uint64_t> different;         // seqs, the first hundred
  std::vector<SnapshotVerdict> snapshots;  // newest first

  bool holds() const;
};

// Reads `<state_directory>/journal.db`, which may be in use.
Result<JournalVerdict> verify_journal(const std::string& state_directory);

}  // namespace tranche::machine
