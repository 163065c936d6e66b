#include "codec/sweep.h"

#include <algorithm>

#include "base/quantity_text.h"
#include "base/utf8.h"
#include "codec/limits.h"

namespace tranche::api {
namespace {

constexpr size_t kStoredSweepBytes = 4096;
constexpr std::string_view kHow = "write NAME=VALUE,VALUE or NAME=1..5, with spaces between parameters";

Error bad(std::string text) { return Error(ErrorCode::invalid_argument, std::move(text)); }

bool is_identifier(std::string_view name) {
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  return !name.empty() && name.size() <= limits::kSweepNameBytes && is_letter(name[0]) &&
         std::all_of(name.begin(), name.end(),
                     [&](char c) { return is_letter(c) || (c >= '0' && c <= '9'); });
}

std::vector<std::string_view> split_at(std::string_view text, std::string_view separators) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t end = text.find_first_of(separators);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

// "-3" too, which parse_integer has no sign for.
Result<int64_t> parse_whole(std::string_view text) {
  const bool is_negative = text.starts_with('-');
  TRY_ASSIGN(const int64_t size,
             parse_integer(text.substr(is_negative ? 1 : 0), 0, limits::kArrayIndexMax, "a range's end"));
  return is_negative ? -size : size;
}

// "1..5" and "0..100:10" into their numbers.
Result<void> add_range(std::string_view text, size_t dots, std::vector<std::string>& values) {
  const size_t colon = text.find(':', dots);
  TRY_ASSIGN(const int64_t first, parse_whole(text.substr(0, dots)));
  TRY_ASSIGN(const int64_t last,
             parse_whole(text.substr(dots + 2, colon == std::string_view::npos ? colon : colon - dots - 2)));
  int64_t step = 1;
  if (colon != std::string_view::npos) {
    TRY_ASSIGN(step, parse_integer(text.substr(colon + 1), 1, limits::kArrayIndexMax, "a range's step"));
  }
  if (last < first) {
    return fail(bad("the range " + std::string(text) + " is backwards; write the smaller number first"));
  }
  if ((last - first) / step >= static_cast<int64_t>(limits::kArrayElements)) {
    return fail(bad("a sweep has at most " + std::to_string(limits::kArrayElements) + " elements"));
  }
  for (int64_t value = first; value <= last; value += step) values.push_back(std::to_string(value));
  return {};
}

Result<SweepParameter> parse_parameter(std::string_view word) {
  const size_t equals = word.find('=');
  if (equals == std::string_view::npos) return fail(bad(std::string(kHow) + ", not " + std::string(word)));
  SweepParameter parameter{std::string(word.substr(0, equals)), {}};
  for (const std::string_view item : split_at(word.substr(equals + 1), ",")) {
    const size_t dots = item.find("..");
    // "0.1..0.5" is no range of whole numbers, and "../data" is a path.
    const bool is_range = dots != std::string_view::npos && dots > 0 && parse_whole(item.substr(0, dots));
    if (is_range) {
      TRY(add_range(item, dots, parameter.values));
    } else {
      parameter.values.emplace_back(item);
    }
    if (parameter.values.size() > limits::kArrayElements) {
      return fail(bad("a sweep has at most " + std::to_string(limits::kArrayElements) + " elements"));
    }
  }
  return parameter;
}

std::string check_parameter(const SweepParameter& parameter) {
  if (!is_identifier(parameter.name)) {
    return "a parameter's name has letters, digits and _, and no digit first: " + std::string(kHow);
  }
  if (parameter.values.empty()) return "the parameter " + parameter.name + " has no values";
  for (const std::string& value : parameter.values) {
    if (value.empty()) return "the parameter " + parameter.name + " has an empty value: " + std::string(kHow);
    if (value.size() > limits::kSweepValueBytes) {
      return "a value of " + parameter.name + " is longer than " + std::to_string(limits::kSweepValueBytes) +
             " bytes: pass a file's name instead";
    }
    if (!is_printable_text(value) || value.find_first_of(" ,") != std::string::npos) {
      return "a value of " + parameter.name + " holds a character that it may not: no spaces and no commas";
    }
  }
  return "";
}

// In file names a value must not lead into another folder.
SweepValues for_files(SweepValues values) {
  for (auto& [name, value] : values) std::replace(value.begin(), value.end(), '/', '_');
  return values;
}

void set_variable(std::vector<std::pair<std::string, std::string>>& environment, const std::string& name,
                  const std::string& value) {
  const auto place =
      std::lower_bound(environment.begin(), environment.end(), name,
                       [](const auto& one, const std::string& key) { return one.first < key; });
  if (place != environment.end() && place->first == name) {
    place->second = value;
  } else {
    environment.insert(place, {name, value});
  }
}

}  // namespace

Result<SweepText> parse_sweep(std::string_view text) {
  SweepText sweep;
  for (const std::string_view word : split_at(text, " \t\n")) {
    if (word.empty()) continue;
    if (sweep.running_max != 0) return fail(bad("the limit such as %4 comes last"));
    if (word.starts_with('%')) {
      TRY_ASSIGN(const int64_t most,
                 parse_integer(word.substr(1), 1, limits::kArrayElements, "the number that runs at a time"));
      sweep.running_max = static_cast<uint32_t>(most);
      continue;
    }
    TRY_ASSIGN(SweepParameter parameter, parse_parameter(word));
    sweep.parameters.push_back(std::move(parameter));
  }
  if (sweep.parameters.empty()) return fail(bad(std::string(kHow)));
  if (std::string problem = check_sweep(sweep.parameters); !problem.empty())
    return fail(bad(std::move(problem)));
  return sweep;
}

std::string format_sweep(const std::vector<SweepParameter>& sweep) {
  std::string text;
  for (const SweepParameter& parameter : sweep) {
    if (!text.empty()) text += ' ';
    text += parameter.name;
    for (size_t i = 0; i < parameter.values.size(); ++i) (text += i == 0 ? '=' : ',') += parameter.values[i];
  }
  return text;
}

uint64_t sweep_size(const std::vector<SweepParameter>& sweep) {
  if (sweep.empty()) return 0;
  uint64_t size = 1;
  for (const SweepParameter& parameter : sweep) {
    size = std::min<uint64_t>(size * parameter.values.size(), limits::kArrayElements + 1);
  }
  return size;
}

std::string check_sweep(const std::vector<SweepParameter>& sweep) {
  for (size_t i = 0; i < sweep.size(); ++i) {
    if (std::string problem = check_parameter(sweep[i]); !problem.empty()) return problem;
    for (size_t other = 0; other < i; ++other) {
      if (sweep[other].name == sweep[i].name)
        return "the parameter " + sweep[i].name + " stands twice in the sweep";
    }
  }
  if (sweep_size(sweep) > limits::kArrayElements) {
    return "a sweep has at most " + std::to_string(limits::kArrayElements) +
           " combinations: give fewer values, or several sweeps";
  }
  return "";
}

SweepValues sweep_values(const std::vector<SweepParameter>& sweep, uint32_t index) {
  SweepValues values;
  if (index == 0 || index > sweep_size(sweep)) return values;
  uint64_t rest = index - 1;
  values.resize(sweep.size());
  for (size_t i = sweep.size(); i-- > 0;) {
    const auto& choices = sweep[i].values;
    values[i] = {sweep[i].name, choices[rest % choices.size()]};
    rest /= choices.size();
  }
  return values;
}

std::string fill_placeholders(std::string_view text, const SweepValues& values) {
  std::string filled;
  while (!text.empty()) {
    const size_t open = text.find('{');
    filled += text.substr(0, open);
    if (open == std::string_view::npos) break;
    text.remove_prefix(open);
    const size_t close = text.find('}');
    const auto named = close == std::string_view::npos
                           ? values.end()
                           : std::find_if(values.begin(), values.end(), [&](const auto& one) {
                               return one.first == text.substr(1, close - 1);
                             });
    if (named == values.end()) {
      filled += '{';
      text.remove_prefix(1);
    } else {
      filled += named->second;
      text.remove_prefix(close + 1);
    }
  }
  return filled;
}

SubmitRequest element_request(const SubmitRequest& request, uint32_t index) {
  SubmitRequest element = request;
  const SweepValues values = sweep_values(request.sweep, index);
  if (values.empty()) return element;
  element.sweep.clear();
  for (std::string& word : element.argv) word = fill_placeholders(word, values);
  for (std::string& word : element.script_args) word = fill_placeholders(word, values);
  for (const auto& [name, value] : values) set_variable(element.environment, name, value);
  const SweepValues in_files = for_files(values);
  for (auto* path : {&element.stdout_path, &element.stderr_path, &element.stdin_path}) {
    if (*path) *path = fill_placeholders(**path, in_files);
  }
  return element;
}

std::string stored_name(const std::string& name, const std::vector<SweepParameter>& sweep) {
  if (sweep.empty()) return name;
  const std::string text = format_sweep(sweep);
  return text.size() > kStoredSweepBytes ? name : name + "\n" + text;
}

std::string element_name(const std::string& stored, uint32_t index) {
  const size_t end = stored.find('\n');
  if (end == std::string::npos) return stored;
  const std::string name = stored.substr(0, end);
  const auto sweep = parse_sweep(std::string_view(stored).substr(end + 1));
  if (!sweep) return name;
  const SweepValues values = sweep_values(sweep->parameters, index);
  std::string filled = fill_placeholders(name, values);
  if (filled == name) {
    for (const auto& [key, value] : values) (((filled += ' ') += key) += '=') += value;
  }
  return printable_part(filled, limits::kNameBytes);
}

}  // namespace tranche::api
