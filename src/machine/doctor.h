// What a person asks first when something is wrong: each part of the machine, how it is, and what to do.
#pragma once

#include "codec/api.h"
#include "codec/config.h"
#include "machine/gpu_manager.h"

namespace tranche::machine {

// `launcher_trouble`: what came of asking the launcher for its tasks; "" if it answered.
api::DoctorReport examine(const DaemonConfig& config, const Engine& engine, GpuManager& gpus,
                          const std::string& launcher_trouble, const std::string& journal_trouble);

// How long the certificate of the API on TCP is still good; only where the API is open to the network.
api::DoctorCheck certificate_check(const ListenConfig& config, Time now);

}  // namespace tranche::machine
