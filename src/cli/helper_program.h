// Programs beside this one that do what would cost every other verb half of its start: reading TOML,
// replaying journals. They get this session's standard streams.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace tranche::cli {

class Session;

// Runs `<folder of this program>/<name> words...` to its end; its exit code.
Result<int> run_helper_program(Session& session, std::string_view name, std::vector<std::string> words);

// Starts the program `name` and returns; `input`, a socket, is its standard input, and it has no other.
Result<void> start_helper_program(std::string_view name, std::vector<std::string> words, int input);

}  // namespace tranche::cli
