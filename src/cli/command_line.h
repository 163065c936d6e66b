// argv into a verb and its Arguments. The only includer of CLI11 is command_line.cc; only the chosen verb's
// options are built, since the program starts for every `tranche ls`.
//
// Errors are invalid_argument (exit 2) and name the nearest known spelling; an option that is not built yet
// is not_available_yet (exit 2).
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/arguments.h"
#include "cli/verbs.h"

namespace tranche::cli {

struct CommandLine {
  const Verb* verb = nullptr;  // `help` when nothing is asked
  Arguments arguments;
};

// `words` is argv without the program's name. `VERB --help` becomes `help VERB`.
Result<CommandLine> parse_command_line(std::vector<std::string> words);

// Words against a list of options, for the verbs and for scripts' directives.
Result<Arguments> parse_options(const std::vector<std::string>& words, std::span<const OptionGroup> groups,
                                Operands operands);

}  // namespace tranche::cli
