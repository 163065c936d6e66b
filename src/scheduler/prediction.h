// How long a job is expected to run: the mean of its user's last two runs, but never more than its own limit.
// The simplest prediction that has been found to beat people's estimates (Tsafrir, Etsion and Feitelson,
// "Backfilling using system-generated predictions", 2007).
//
// It orders jobs and nothing else: no job is ended by it and no promise rests on it.
#pragma once

#include <cstdint>
#include <map>

#include "base/state_hash.h"
#include "base/units.h"

namespace tranche::scheduler {

struct StateArchive;

class Prediction {
 public:
  // A job of the user has run for so long.
  void learn(uint32_t uid, Duration run);
  // At least a nanosecond; the limit itself for whoever has not run two jobs yet.
  Duration expected(uint32_t uid, Duration time_limit) const;
  void add_to(StateHash& hash) const;

 private:
  friend struct StateArchive;  // snapshot.cc
  struct Runs {
    Duration last;
    Duration before;
    bool has_two = false;
  };
  std::map<uint32_t, Runs> runs_;  // by uid
};

}  // namespace tranche::scheduler
