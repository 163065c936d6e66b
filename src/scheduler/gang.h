// All-or-nothing sets of tasks: where min..max tasks of a job go together, or not at all. Nothing is held
// while a gang waits, so two gangs cannot block each other with half of what they need.
#pragma once

#include <optional>
#include <vector>

#include "scheduler/placement.h"
#include "scheduler/scores.h"

namespace tranche::scheduler {

struct GangPlacement {
  TypeIndex type = 0;  // of all its GPUs: the tasks of a job are never spread over different types
  std::vector<TaskPlacement> tasks;
};

// Scores of one shape by node, each good for one version of its node. What is copied starts empty: a cache is
// not part of a state.
class ScoreCache {
 public:
  ScoreCache() = default;
  ScoreCache(const ScoreCache&) {}
  ScoreCache& operator=(const ScoreCache&) {
    entries_.clear();
    return *this;
  }
  ScoreCache(ScoreCache&&) = default;
  ScoreCache& operator=(ScoreCache&&) = default;
  ~ScoreCache() = default;

  static constexpr int16_t kDoesNotFit = -1;  // no room for one task
  struct Entry {
    uint32_t node_version = 0;
    uint32_t scores_version = UINT32_MAX;
    int16_t score = kDoesNotFit;
    uint16_t type = 0;
    uint8_t idle = 0;          // GPUs of the type
    bool is_degraded = false;  // a whole GPU of it would be a throttled one
  };

  Entry& at(NodeIndex node, size_t nodes) {
    if (entries_.size() < nodes) entries_.resize(nodes);
    return entries_[node];
  }
  void clear() { entries_ = {}; }
  size_t bytes() const { return entries_.capacity() * sizeof(Entry); }

 private:
  std::vector<Entry> entries_;
};

// What a search for room needs beside the request. `scores` null: all nodes are as good.
struct Search {
  const Shape& shape;
  const std::vector<TypeChoice>& choices;
  const Layers& layers;
  const Scores* scores = nullptr;
  ScoreCache* cache = nullptr;  // used where the layers say no more than the capacity itself
};

// Quick, from the counts of idle GPUs: place_gang() would find nothing.
bool has_surely_no_room(const Search& search, uint32_t tasks);
// Exactly `tasks` tasks, or nothing.
std::optional<GangPlacement> place_gang(const Search& search, uint32_t tasks);
std::optional<GangPlacement> place_gang_on_type(const Search& search, const TypeChoice& choice,
                                                uint32_t tasks);
// The same for whoever has a shape alone.
std::optional<GangPlacement> place_gang(const Shape& shape, uint32_t tasks, const Layers& layers);

// How many tasks (at most `most`) could be placed together.
uint32_t tasks_that_fit(const Shape& shape, uint32_t most, const Layers& layers);

}  // namespace tranche::scheduler
