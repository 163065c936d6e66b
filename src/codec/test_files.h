// Tests only: files of the source tree.
#pragma once

#include <string>

namespace tranche {

// The text of `path`, relative to the top of the source tree; ends the program if it cannot be read.
std::string read_source_file(const std::string& path);

}  // namespace tranche
