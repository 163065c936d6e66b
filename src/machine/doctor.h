// What a person asks first when something is wrong: each part of the machine, how it is, and what to do.
#pragma once

#include "codec/api.h"
#include "codec/config.h"
#include "machine/gpu_manager.h"
#include "machine/task_host.h"

namespace tranche::machine {

api::DoctorReport examine(const DaemonConfig& config, const Engine& engine, GpuManager& gpus,
                          const TaskHost& tasks, const std::string& journal_trouble);

}  // namespace tranche::machine
