// Recomputes a recorded journal: the same version of the scheduler must take the same decisions, bit for bit.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace tranche::machine {

struct JournalVerdict {
  uint64_t rows = 0;
  uint64_t recomputed = 0;  // of this scheduler's version; others are restored only
  uint64_t state_hash_recomputed = 0;
  uint64_t state_hash_restored = 0;
  std::vector<uint64_t> different;  // seqs, the first hundred

  bool holds() const { return different.empty() && state_hash_recomputed == state_hash_restored; }
};

// Reads `<state_directory>/journal.db`, which may be in use.
Result<JournalVerdict> verify_journal(const std::string& state_directory);

}  // namespace tranche::machine
