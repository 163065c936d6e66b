// The tasks of a listed job as the model's groups of tasks, and the ranks that they get.
#pragma once

#include "replay/scenario_cluster.h"

namespace tranche::replay {

// Fills the parts of the specification that follow from the tasks, and `ranks`.
void set_parts(const ScenarioJob& listed, PlacedJob& job);

GpuRequest request_of(const ScenarioTask& task);

}  // namespace tranche::replay
