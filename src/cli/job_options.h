// What a job may ask for, as options: the same for `run`, `submit` and the #TRANCHE lines of a script. The
// letters are Slurm's wherever Slurm has one.
#pragma once

#include <span>

#include "cli/verbs.h"

namespace tranche::cli {

// Resources, and the rest: two groups of one page of help.
std::span<const Option> resource_options();
std::span<const Option> job_options();

}  // namespace tranche::cli
