// --dependency: what people write, and the jobs that it means.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/job.h"

namespace tranche::cli {

class Session;

// One clause as it was written: "afterok:7:@" is two of these. `jobs` is a word as people name jobs.
struct DependencyWish {
  DependencyKind kind = DependencyKind::after_ok;
  std::string jobs;
  bool operator==(const DependencyWish&) const = default;
};

// "afterok:7:8,afterany:@,after:9_3". Asks nobody: the words may name jobs that do not exist.
Result<std::vector<DependencyWish>> parse_dependencies(std::string_view text);

// The same as the jobs that are meant, which the daemon is asked about; a bare array is all its elements.
Result<std::vector<Dependency>> resolve_dependencies(const Session& session, std::string_view text);

// "afterok:7, afterany:9", as it is written.
std::string dependencies_text(const std::vector<Dependency>& dependencies);

}  // namespace tranche::cli
