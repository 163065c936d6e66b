// The whole program as a function of its words and its session, for main and for tests.
#pragma once

#include <string>
#include <vector>

namespace tranche::cli {

class Session;

// Parses, runs the verb, prints an error as "tranche: <sentence>"; returns the exit code.
int run_program(Session& session, std::vector<std::string> words);

}  // namespace tranche::cli
