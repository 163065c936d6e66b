// A command line after parsing: options by key, and the words that are none. A plain value, so that scripts'
// directives and the command line are merged and read alike.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tranche::cli {

class Arguments {
 public:
  // `value` is empty for a switch.
  void set(std::string_view key, std::string value) { options_.emplace_back(key, std::move(value)); }

  bool has(std::string_view key) const { return find(key) != nullptr; }
  // The value, or null if the option is not there.
  const std::string* find(std::string_view key) const;
  std::string value_or(std::string_view key, std::string_view otherwise) const;

  // Takes over what `weaker` has and this has not. `requeue` and `no-requeue` are one question.
  void fill_from(const Arguments& weaker);

  std::vector<std::string> words;  // operands in their order
  bool after_dashes = false;       // words follow "--": certainly a command, not a script

 private:
  std::vector<std::pair<std::string, std::string>> options_;
};

}  // namespace tranche::cli
