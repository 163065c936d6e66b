#include "codec/test_files.h"

#include <fstream>
#include <sstream>

#include "base/assert.h"

namespace tranche {

// The directory is this file's alone, so that the other tests hit the compiler cache from any clone.
std::string read_source_file(const std::string& path) {
  std::ifstream file(std::string(TRANCHE_SOURCE_DIR) + "/" + path);
  TRANCHE_ASSERT(file.is_open());
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace tranche
