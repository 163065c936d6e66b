// The command line of tranche-emulator.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "emulator/server_description.h"

namespace tranche::emulator {

struct Options {
  std::string verb;
  bool help = false;
  bool json = false;
  bool force = false;
  ServerDescription server;          // from --board, --server, --driver-version and --name
  std::vector<std::string> command;  // after "--"; the words of fault
};

// Arguments without the program's name. Errors are of the command line (exit code 2).
Result<Options> parse_options(const std::vector<std::string>& arguments);
// The help text of one verb, or of the program for an unknown or empty one.
std::string_view help_text(std::string_view verb);

}  // namespace tranche::emulator
