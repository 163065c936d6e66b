#include "cli/arguments.h"

namespace tranche::cli {
namespace {

// Two spellings of one question: an answer on the command line overrides the other one in a script.
std::string_view opposite(std::string_view key) {
  if (key == "requeue") return "no-requeue";
  if (key == "no-requeue") return "requeue";
  return {};
}

}  // namespace

const std::string* Arguments::find(std::string_view key) const {
  for (const auto& [name, value] : options_) {
    if (name == key) return &value;
  }
  return nullptr;
}

std::string Arguments::value_or(std::string_view key, std::string_view otherwise) const {
  const std::string* value = find(key);
  return value != nullptr ? *value : std::string(otherwise);
}

void Arguments::fill_from(const Arguments& weaker) {
  for (const auto& [name, value] : weaker.options_) {
    const std::string_view other = opposite(name);
    if (!has(name) && (other.empty() || !has(other))) set(name, value);
  }
}

}  // namespace tranche::cli
