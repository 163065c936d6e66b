// Reading trace and scenario files: thin, bounded access to the members of a parsed JSON value.
//
// A member that is missing gives the default that the caller names; a member of the wrong kind is a problem,
// and the first one is kept, with the name of the member. Amounts with decimals become integers of
// millionths, so nothing here is floating point.
//
// Ownership: borrows the document. Threading: none.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "codec/json_document.h"

namespace tranche::replay {

inline constexpr int64_t kMicro = 1'000'000;

// A decimal, "0.5", "3", "32.54999999999996" or "1e3", as millionths, rounded to the nearest; nothing if it
// is none or beyond 10^12.
std::optional<int64_t> parse_micro(std::string_view text);

class JsonInput {
 public:
  explicit JsonInput(json::Value value, std::string where = {});

  bool has(std::string_view name);
  std::string text(std::string_view name, std::string_view otherwise = {});
  int64_t integer(std::string_view name, int64_t otherwise, int64_t low = -1'000'000'000'000'000,
                  int64_t high = 1'000'000'000'000'000);
  bool flag(std::string_view name, bool otherwise);
  int64_t micro(std::string_view name, int64_t otherwise);
  // A text, or a list of texts; empty if missing.
  std::vector<std::string> texts(std::string_view name);
  // Elements of a list; empty if missing.
  std::vector<json::Value> list(std::string_view name);
  std::optional<json::Value> object(std::string_view name);

  // Marks a member as known without looking at it.
  void ignore(std::string_view name) { known_.insert(std::string(name)); }
  // After everything was asked for: a member that nobody knows is a problem, too.
  void finish();
  void problem(std::string what);
  const std::string& problem() const { return problem_; }
  void adopt(const JsonInput& child) {
    if (problem_.empty()) problem_ = child.problem_;
  }

 private:
  std::optional<json::Value> member(std::string_view name);

  json::Value value_;
  std::string where_;
  std::set<std::string> known_;
  std::string problem_;
};

}  // namespace tranche::replay
