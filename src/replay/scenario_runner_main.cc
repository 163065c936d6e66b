// scenario-runner [--policy FILE] TABLE...: plays the cases of conformance tables on the scheduler, prints a
// line for each and how many passed. Exit code 0 if all did, 1 if some did not, 2 for bad input.
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "codec/config.h"
#include "replay/conformance.h"

namespace tranche::replay {
namespace {

constexpr std::streamsize kTableBytesMax = std::streamsize{256} << 20;

Result<std::string> read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return fail(ErrorCode::not_found, path + " cannot be read; check the name");
  if (file.tellg() > kTableBytesMax) return fail(ErrorCode::too_large, path + " is larger than 256 MiB");
  file.seekg(0);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

std::string joined(const std::vector<std::string>& problems) {
  std::string text;
  for (const std::string& problem : problems) text += (text.empty() ? "" : "; ") + problem;
  return text;
}

Result<bool> run(const std::string& policy_path, const std::vector<std::string>& tables) {
  TRY_ASSIGN(const DaemonConfig config, load_config(policy_path));
  size_t passed = 0;
  size_t failed = 0;
  for (const std::string& path : tables) {
    TRY_ASSIGN(const std::string text, read_text(path));
    auto results = run_tables(text, config.policy);
    if (!results) return fail(results.error().code(), path + ": " + results.error().message());
    for (const CaseResult& result : *results) {
      if (result.problems.empty()) {
        ++passed;
        std::printf("PASS %s\n", result.id.c_str());
      } else {
        ++failed;
        std::printf("FAIL %s: %s\n", result.id.c_str(), joined(result.problems).c_str());
      }
    }
  }
  std::printf("%zu passed, %zu failed\n", passed, failed);
  return failed == 0;
}

}  // namespace
}  // namespace tranche::replay

int main(int count, char** words) {
  std::string policy = TRANCHE_KAI_POLICY;
  std::vector<std::string> tables;
  for (int i = 1; i < count; ++i) {
    const std::string word = words[i];
    if (word == "--policy" && i + 1 < count) {
      policy = words[++i];
    } else {
      tables.push_back(word);
    }
  }
  if (tables.empty() || tables.front().starts_with("-")) {
    std::fputs("write: scenario-runner [--policy FILE] TABLE...\n", stderr);
    return 2;
  }
  const auto all_passed = tranche::replay::run(policy, tables);
  if (!all_passed) {
    std::fprintf(stderr, "%s\n", all_passed.error().message().c_str());
    return 2;
  }
  return *all_passed ? 0 : 1;
}
