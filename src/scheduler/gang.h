// All-or-nothing sets of tasks: where min..max tasks of a job go together, or not at all. Nothing is held
// while a gang waits, so two gangs cannot block each other with half of what they need.
#pragma once

#include <optional>
#include <vector>

#include "scheduler/placement.h"

namespace tranche::scheduler {

struct GangPlacement {
  std::string type;  // of all its GPUs: the tasks of a job are never spread over different types
  std::vector<TaskPlacement> tasks;
};

// Exactly `tasks` tasks, or nothing.
std::optional<GangPlacement> place_gang(const Shape& shape, uint32_t tasks, const Layers& layers);
std::optional<GangPlacement> place_gang_on_type(const Shape& shape, uint32_t tasks, const std::string& type,
                                                const Layers& layers);

// How many tasks (at most `most`) could be placed together.
uint32_t tasks_that_fit(const Shape& shape, uint32_t most, const Layers& layers);

}  // namespace tranche::scheduler
