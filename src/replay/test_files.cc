#include "replay/test_files.h"

#include <filesystem>
#include <fstream>
#include <iterator>

namespace tranche::replay::test {

std::optional<std::string> shared_file(const std::string& relative) {
  for (const auto above : {"/../shared/", "/../../shared/"}) {
    std::string path = std::string(TRANCHE_SOURCE_DIR) + above + relative;
    if (std::filesystem::exists(path)) return path;
  }
  return std::nullopt;
}

std::string source_file(const std::string& relative) {
  return std::string(TRANCHE_SOURCE_DIR) + "/" + relative;
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

}  // namespace tranche::replay::test
