#include "cli/command_line.h"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "cli/text.h"
#include "codec/nearest_name.h"

namespace tranche::cli {
namespace {

// Stands for the empty value of "--name=", which CLI11 would fill with the next word.
constexpr std::string_view kEmptyValue = "\x01";

struct OptionRow {
  const Option* option;
  CLI::Option* parsed;
};

std::string spelling(const Option& option) { return "--" + std::string(option_key(option)); }

std::vector<std::string_view> spellings(std::span<const OptionGroup> groups) {
  std::vector<std::string_view> all;
  for (const OptionGroup& group : groups) {
    for (const Option& option : group.options) {
      std::string_view names = option.names;
      while (!names.empty()) {
        const size_t end = std::min(names.find(','), names.size());
        all.push_back(names.substr(0, end));
        names.remove_prefix(std::min(end + 1, names.size()));
      }
    }
  }
  return all;
}

tl::unexpected<Error> unknown_option(std::string_view word, std::span<const OptionGroup> groups) {
  const std::string_view name = word.substr(0, word.find('='));
  std::vector<std::string_view> known = spellings(groups);
  std::erase_if(known, [](std::string_view candidate) { return candidate.size() <= 2; });
  const std::string_view meant = nearest_name(name, known);
  std::string message = "unknown option " + in_quotes(name);
  message += meant.empty() ? "; --help lists what there is" : "; did you mean " + std::string(meant) + "?";
  return fail(ErrorCode::invalid_argument, std::move(message));
}

std::vector<OptionRow> add_options(CLI::App& app, std::span<const OptionGroup> groups) {
  std::vector<OptionRow> rows;
  for (const OptionGroup& group : groups) {
    for (const Option& option : group.options) {
      const std::string names(option.names);
      CLI::Option* parsed = option.value.empty() ? app.add_flag(names) : app.add_option(names);
      // The last one must not win in silence: repeats are found and refused below.
      parsed->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
      rows.push_back({&option, parsed});
    }
  }
  return rows;
}

Result<void> take_option(const OptionRow& row, Arguments& arguments) {
  if (row.parsed->count() == 0) return {};
  const Option& option = *row.option;
  const std::string name = spelling(option);
  if (!option.not_yet.empty()) {
    return fail(ErrorCode::not_available_yet, name + " is not available yet; " + std::string(option.not_yet));
  }
  if (option.value.empty()) {
    if (row.parsed->results().front() != "true") {
      return fail(ErrorCode::invalid_argument, name + " is a switch and takes no value");
    }
    arguments.set(option_key(option), {});
    return {};
  }
  const std::vector<std::string>& values = row.parsed->results();
  if (values.size() > 1) {
    return fail(ErrorCode::invalid_argument,
                name + " is given " + std::to_string(values.size()) + " times; give it once");
  }
  if (values.front() == kEmptyValue || values.front().empty() || values.front().starts_with("--")) {
    return fail(ErrorCode::invalid_argument,
                name + " needs a value: " + name + " " + std::string(option.value));
  }
  // What is not text could only be sent changed.
  if (!is_valid_utf8(values.front())) {
    return fail(ErrorCode::invalid_argument, name + ": " + in_quotes(values.front()) + " is not UTF-8 text");
  }
  arguments.set(option_key(option), values.front());
  return {};
}

Result<void> take_words(std::vector<std::string> remaining, std::span<const OptionGroup> groups,
                        Operands operands, Arguments& arguments) {
  for (std::string& word : remaining) {
    const bool is_option = word.size() > 1 && word.front() == '-';
    const bool in_command = operands == Operands::kCommand && !arguments.words.empty();
    if (is_option && !in_command) return unknown_option(word, groups);
    if (word.ends_with("=\x01")) word.pop_back();
    arguments.words.push_back(std::move(word));
  }
  return {};
}

// CLI11 speaks in exceptions; they end here.
Result<void> run_parser(CLI::App& app, std::vector<std::string> words) {
  for (std::string& word : words) {
    if (word.size() > 3 && word.starts_with("--") && word.find('=') == word.size() - 1) word += kEmptyValue;
  }
  std::reverse(words.begin(), words.end());
  try {
    app.parse(words);
  } catch (const CLI::ArgumentMismatch& error) {
    const std::string text = error.what();
    return fail(ErrorCode::invalid_argument,
                printable(text.substr(0, text.find(':'))) + " needs a value; see --help");
  } catch (const CLI::Error& error) {
    return fail(ErrorCode::invalid_argument, printable(error.what()) + "; see --help");
  }
  return {};
}

// Common options may stand before the verb. Returns the index of the verb's word.
size_t verb_position(const std::vector<std::string>& words) {
  size_t i = 0;
  while (i < words.size() && words[i].starts_with("-")) {
    if (words[i] == "-q") {  // `tranche -q run ...`: quiet; after the verb -q is the queue
      ++i;
      continue;
    }
    const std::string_view name = std::string_view(words[i]).substr(0, words[i].find('='));
    bool takes_next = false;
    for (const Option& option : common_options()) {
      if ("--" + std::string(option_key(option)) == name) {
        takes_next = !option.value.empty() && words[i].find('=') == std::string::npos;
      }
    }
    i += takes_next ? 2 : 1;
  }
  return std::min(i, words.size());
}

tl::unexpected<Error> unknown_verb(std::string_view name) {
  std::vector<std::string_view> names;
  for (const Verb& verb : verbs()) names.push_back(verb.name);
  const std::string_view meant = nearest_name(name, names);
  std::string message = in_quotes(name) + " is not a verb of tranche";
  message +=
      meant.empty() ? "; 'tranche help' lists them" : "; did you mean 'tranche " + std::string(meant) + "'?";
  return fail(ErrorCode::invalid_argument, std::move(message));
}

Result<void> check_operands(const Verb& verb, const Arguments& arguments) {
  const size_t count = arguments.words.size();
  if (verb.kind == Operands::kCommand || (count >= verb.operands_min && count <= verb.operands_max))
    return {};
  std::string usage = "tranche " + std::string(verb.name);
  if (!verb.operands.empty()) usage += " " + std::string(verb.operands);
  if (count < verb.operands_min) {
    const std::string_view first = verb.operands.substr(0, verb.operands.find_first_of(" ."));
    return fail(ErrorCode::invalid_argument, std::string(first) + " is missing; write: " + usage);
  }
  return fail(ErrorCode::invalid_argument,
              in_quotes(arguments.words[verb.operands_max]) + " is one word too many; write: " + usage);
}

CommandLine help_about(std::string_view verb_name) {
  CommandLine line{find_verb("help"), {}};
  if (!verb_name.empty()) line.arguments.words.emplace_back(verb_name);
  return line;
}

}  // namespace

Result<Arguments> parse_options(const std::vector<std::string>& words, std::span<const OptionGroup> groups,
                                Operands operands) {
  // Behind "--" nothing is an option; CLI11 does not get to see it.
  const auto dashes = std::find(words.begin(), words.end(), "--");
  CLI::App app;
  app.set_help_flag("");
  app.allow_extras();
  app.prefix_command(operands == Operands::kCommand);
  const std::vector<OptionRow> rows = add_options(app, groups);
  TRY(run_parser(app, {words.begin(), dashes}));

  Arguments arguments;
  TRY(take_words(app.remaining(), groups, operands, arguments));
  for (const OptionRow& row : rows) TRY(take_option(row, arguments));
  if (dashes == words.end()) return arguments;
  if (arguments.words.empty()) {
    arguments.after_dashes = true;
    arguments.words.assign(dashes + 1, words.end());
  } else {  // a command that has begun keeps its own "--"
    const auto tail = operands == Operands::kCommand ? dashes : dashes + 1;
    arguments.words.insert(arguments.words.end(), tail, words.end());
  }
  return arguments;
}

Result<CommandLine> parse_command_line(std::vector<std::string> words) {
  const size_t position = verb_position(words);
  for (size_t i = 0; i < position; ++i) {
    if (words[i] == "-h" || words[i] == "--help") return help_about({});
    if (words[i] == "-V" || words[i] == "--version") return CommandLine{find_verb("version"), {}};
    if (words[i] == "-q") words[i] = "--quiet";
  }
  const bool has_verb = position < words.size();
  const Verb* verb = has_verb ? find_verb(words[position]) : find_verb("help");
  if (verb == nullptr) return unknown_verb(words[position]);
  if (has_verb) words.erase(words.begin() + static_cast<ptrdiff_t>(position));

  std::array<OptionGroup, 4> groups;
  std::copy(verb->groups.begin(), verb->groups.end(), groups.begin());
  groups.back() = {"Common", common_options()};
  CommandLine line{verb, {}};
  TRY_ASSIGN(line.arguments, parse_options(words, groups, verb->kind));
  if (line.arguments.has("help")) return help_about(verb->name);
  TRY(check_operands(*verb, line.arguments));
  return line;
}

}  // namespace tranche::cli
