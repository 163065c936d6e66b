// One command on an emulated server of its own, in a mount namespace of its own.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "emulator/server_description.h"

namespace tranche::emulator {

// Builds the server, runs `command` on it and returns its exit code (128 + signal if one ended it).
// Signals that end programs are passed on to it. Changes the calling process's namespaces for good.
Result<int> run_on_private_server(const ServerDescription& server, const std::vector<std::string>& command);

}  // namespace tranche::emulator
