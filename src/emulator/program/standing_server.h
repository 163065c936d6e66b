// A server for the whole machine: made by `start`, removed by `stop`.
#pragma once

#include "base/result.h"
#include "emulator/server_description.h"

namespace tranche::emulator {

// Makes state, libraries and nodes, all or nothing; returns the folder of the libraries.
Result<std::string> start_server(const ServerDescription& server);
// Removes them. Without `force`, refuses while processes have a context.
Result<void> stop_server(bool force);

}  // namespace tranche::emulator
