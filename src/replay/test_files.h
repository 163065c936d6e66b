// Where tests find what is not part of the repository: the folder `shared` beside it (or beside the folder
// that it is in). It may be absent; tests then skip.
#pragma once

#include <optional>
#include <string>

namespace tranche::replay::test {

// The path of a file below `shared`, if it is there.
std::optional<std::string> shared_file(const std::string& relative);
// A file of the repository.
std::string source_file(const std::string& relative);
std::string read_file(const std::string& path);

}  // namespace tranche::replay::test
