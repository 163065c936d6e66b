// A job script: its text, and what its #TRANCHE and #SBATCH lines ask for (design section 13).
//
// Directives stand before the first line that is a command. #TRANCHE takes exactly the options of `submit`;
// an unknown one is an error. #SBATCH is read as Slurm would: what has no meaning here is named in a warning,
// but a line that would change resources, time, dependency or array and cannot be obeyed is an error.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cli/arguments.h"

namespace tranche::cli {

struct Script {
  std::string text;
  Arguments directives;               // #TRANCHE over #SBATCH
  std::vector<std::string> warnings;  // a sentence each
};

// Errors name `name` and the line, also those of values: each directive must be right by itself, and all of
// them together.
Result<Script> read_script_text(std::string text, std::string_view name);

// Words of one #SBATCH line, as the options of `submit` that mean the same.
struct SlurmDirective {
  std::vector<std::string> words;
  std::vector<std::string> warnings;
};
Result<SlurmDirective> translate_slurm(const std::vector<std::string>& words);

}  // namespace tranche::cli
