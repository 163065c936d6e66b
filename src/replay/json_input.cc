#include "replay/json_input.h"

#include <cctype>

namespace tranche::replay {
namespace {

constexpr int64_t kMicroMax = int64_t{1'000'000'000'000} * kMicro;

bool is_digit(char c) { return c >= '0' && c <= '9'; }

struct Decimal {
  std::string digits;  // without leading zeros
  int64_t point = 0;   // digits before the decimal point; may be negative or beyond the digits
  bool negative = false;
};

std::optional<int64_t> parse_exponent(std::string_view text) {
  bool negative = false;
  if (!text.empty() && (text.front() == '-' || text.front() == '+')) {
    negative = text.front() == '-';
    text.remove_prefix(1);
  }
  if (text.empty() || text.size() > 3) return std::nullopt;
  int64_t exponent = 0;
  for (const char c : text) {
    if (!is_digit(c)) return std::nullopt;
    exponent = exponent * 10 + (c - '0');
  }
  return negative ? -exponent : exponent;
}

std::optional<Decimal> parse_decimal(std::string_view text) {
  Decimal decimal;
  if (!text.empty() && text.front() == '-') {
    decimal.negative = true;
    text.remove_prefix(1);
  }
  if (text.empty() || text.size() > 64 || !is_digit(text.front())) return std::nullopt;
  size_t at = 0;
  bool after_point = false;
  for (; at < text.size() && (is_digit(text[at]) || (text[at] == '.' && !after_point)); ++at) {
    if (text[at] == '.') {
      after_point = true;
      continue;
    }
    if (!after_point) ++decimal.point;
    decimal.digits += text[at];
  }
  if (at == text.size()) return decimal;
  if (text[at] != 'e' && text[at] != 'E') return std::nullopt;
  const auto exponent = parse_exponent(text.substr(at + 1));
  if (!exponent) return std::nullopt;
  decimal.point += *exponent;
  return decimal;
}

}  // namespace

std::optional<int64_t> parse_micro(std::string_view text) {
  const auto decimal = parse_decimal(text);
  if (!decimal) return std::nullopt;
  // Digits up to the sixth place, and the one after it to round by.
  const int64_t wanted = decimal->point + 6;
  int64_t micro = 0;
  for (int64_t i = 0; i < wanted; ++i) {
    const bool there = i < static_cast<int64_t>(decimal->digits.size());
    micro = micro * 10 + (there ? decimal->digits[static_cast<size_t>(i)] - '0' : 0);
    if (micro > kMicroMax) return std::nullopt;
  }
  if (wanted >= 0 && wanted < static_cast<int64_t>(decimal->digits.size()) &&
      decimal->digits[static_cast<size_t>(wanted)] >= '5') {
    ++micro;
  }
  return decimal->negative ? -micro : micro;
}

JsonInput::JsonInput(json::Value value, std::string where) : value_(value), where_(std::move(where)) {
  if (value_.kind() != json::Kind::object) problem("must be an object, not " + value_.describe());
}

void JsonInput::problem(std::string what) {
  if (problem_.empty()) problem_ = (where_.empty() ? "" : where_ + ": ") + std::move(what);
}

std::optional<json::Value> JsonInput::member(std::string_view name) {
  known_.insert(std::string(name));
  if (value_.kind() != json::Kind::object) return std::nullopt;
  json::Value child = value_.first();
  for (uint32_t i = 0; i < value_.size(); ++i, child = child.next()) {
    if (child.key() != name) continue;
    if (child.kind() == json::Kind::null) return std::nullopt;
    return child;
  }
  return std::nullopt;
}

bool JsonInput::has(std::string_view name) { return member(name).has_value(); }

std::string JsonInput::text(std::string_view name, std::string_view otherwise) {
  const auto found = member(name);
  if (!found) return std::string(otherwise);
  if (found->kind() == json::Kind::text) return std::string(found->text());
  problem("\"" + std::string(name) + "\" must be a text, not " + found->describe());
  return std::string(otherwise);
}

int64_t JsonInput::integer(std::string_view name, int64_t otherwise, int64_t low, int64_t high) {
  const auto found = member(name);
  if (!found) return otherwise;
  int64_t value = 0;
  if (found->integer(low, high, &value)) return value;
  const int64_t micro_value =
      found->kind() == json::Kind::decimal ? parse_micro(found->text()).value_or(1) : 1;
  if (micro_value % kMicro == 0 && micro_value / kMicro >= low && micro_value / kMicro <= high)
    return micro_value / kMicro;
  problem("\"" + std::string(name) + "\" must be a whole number from " + std::to_string(low) + " to " +
          std::to_string(high) + ", not " + found->describe());
  return otherwise;
}

bool JsonInput::flag(std::string_view name, bool otherwise) {
  const auto found = member(name);
  if (!found) return otherwise;
  if (found->kind() == json::Kind::boolean) return found->flag();
  problem("\"" + std::string(name) + "\" must be true or false, not " + found->describe());
  return otherwise;
}

int64_t JsonInput::micro(std::string_view name, int64_t otherwise) {
  const auto found = member(name);
  if (!found) return otherwise;
  int64_t whole = 0;
  if (found->integer(-kMicroMax / kMicro, kMicroMax / kMicro, &whole)) return whole * kMicro;
  if (found->kind() == json::Kind::decimal) {
    if (const auto value = parse_micro(found->text())) return *value;
  }
  problem("\"" + std::string(name) + "\" must be a number, not " + found->describe());
  return otherwise;
}

std::vector<std::string> JsonInput::texts(std::string_view name) {
  const auto found = member(name);
  if (!found) return {};
  if (found->kind() == json::Kind::text) return {std::string(found->text())};
  std::vector<std::string> result;
  for (const json::Value& element : list(name)) {
    if (element.kind() != json::Kind::text) {
      problem("\"" + std::string(name) + "\" must be a list of texts");
      return {};
    }
    result.emplace_back(element.text());
  }
  return result;
}

std::vector<json::Value> JsonInput::list(std::string_view name) {
  const auto found = member(name);
  if (!found) return {};
  if (found->kind() != json::Kind::array) {
    problem("\"" + std::string(name) + "\" must be a list, not " + found->describe());
    return {};
  }
  std::vector<json::Value> elements;
  json::Value child = found->first();
  for (uint32_t i = 0; i < found->size(); ++i, child = child.next()) elements.push_back(child);
  return elements;
}

std::optional<json::Value> JsonInput::object(std::string_view name) {
  const auto found = member(name);
  if (!found) return std::nullopt;
  if (found->kind() == json::Kind::object) return found;
  problem("\"" + std::string(name) + "\" must be an object, not " + found->describe());
  return std::nullopt;
}

void JsonInput::finish() {
  if (value_.kind() != json::Kind::object) return;
  json::Value child = value_.first();
  for (uint32_t i = 0; i < value_.size(); ++i, child = child.next()) {
    if (!known_.contains(std::string(child.key()))) problem("there is no field " + json::shown(child.key()));
  }
}

}  // namespace tranche::replay
