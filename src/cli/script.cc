#include "cli/script.h"

#include <optional>

#include "cli/command_line.h"
#include "cli/job_options.h"
#include "cli/job_request.h"
#include "cli/text.h"
#include "codec/limits.h"

namespace tranche::cli {
namespace {

// A directive's words, if `line` begins with `marker` and a space.
bool is_directive(std::string_view line, std::string_view marker) {
  if (!line.starts_with(marker)) return false;
  return line.size() == marker.size() || line[marker.size()] == ' ' || line[marker.size()] == '\t';
}

bool is_comment_or_blank(std::string_view line) {
  const size_t first = line.find_first_not_of(" \t\r");
  return first == std::string_view::npos || line[first] == '#';
}

Result<std::vector<std::string>> directive_words(std::string_view line, std::string_view marker) {
  bool unclosed = false;
  std::vector<std::string> words = shell_words(line.substr(marker.size()), unclosed);
  if (unclosed) return fail(ErrorCode::invalid_argument, "a quote is not closed");
  return words;
}

Result<Arguments> parse_directive(const std::vector<std::string>& words) {
  const OptionGroup groups[] = {{"", resource_options()}, {"", job_options()}};
  TRY_ASSIGN(Arguments arguments, parse_options(words, groups, Operands::kWords));
  if (!arguments.words.empty()) {
    return fail(ErrorCode::invalid_argument, in_quotes(arguments.words.front()) + " is not an option");
  }
  TRY(check_job_options(arguments));
  return arguments;
}

// Collects directives line by line. What contradicts each other is told of the line from which on it does.
class DirectiveReader {
 public:
  // Nothing is taken from a line that is no directive.
  Result<void> take(std::string_view line, const std::string& place, std::vector<std::string>& warnings) {
    const bool is_native = is_directive(line, "#TRANCHE");
    if (!is_native && !is_directive(line, "#SBATCH")) return {};
    TRY(is_native ? take_tranche(line) : take_slurm(line, warnings));
    const Result<void> together = check_job_options(all());
    if (together) {
      contradiction_.reset();
    } else if (!contradiction_) {
      contradiction_ = together.error().clone().with_context(place);
    }
    return {};
  }

  Result<Arguments> merged() const {
    if (contradiction_) return fail(contradiction_->clone());
    return all();
  }

 private:
  Result<void> take_tranche(std::string_view line) {
    TRY_ASSIGN(const std::vector<std::string> words, directive_words(line, "#TRANCHE"));
    TRY_ASSIGN(const Arguments found, parse_directive(words));
    // Within one script nothing is said twice: which of the two would count is not obvious to its reader.
    for (const OptionGroup& group : {OptionGroup{"", resource_options()}, OptionGroup{"", job_options()}}) {
      for (const Option& option : group.options) {
        const std::string_view key = option_key(option);
        if (found.has(key) && native_.has(key)) {
          return fail(ErrorCode::invalid_argument, "--" + std::string(key) + " is given twice");
        }
      }
    }
    native_.fill_from(found);
    return {};
  }

  Result<void> take_slurm(std::string_view line, std::vector<std::string>& warnings) {
    TRY_ASSIGN(const std::vector<std::string> words, directive_words(line, "#SBATCH"));
    TRY_ASSIGN(SlurmDirective translated, translate_slurm(words));
    TRY_ASSIGN(Arguments found, parse_directive(translated.words));
    found.fill_from(slurm_);  // as with Slurm, the last one holds
    slurm_ = std::move(found);
    warnings = std::move(translated.warnings);
    return {};
  }

  Arguments all() const {
    Arguments merged = native_;
    merged.fill_from(slurm_);
    return merged;
  }

  Arguments native_;
  Arguments slurm_;
  std::optional<Error> contradiction_;  // in what was taken so far
};

}  // namespace

Result<Script> read_script_text(std::string text, std::string_view name) {
  const auto refuse = [&](std::string_view why) {
    return fail(ErrorCode::invalid_argument, in_quotes(name) + " " + std::string(why));
  };
  if (text.size() > limits::kScriptBytes)
    return refuse("is longer than 1 MiB; call a program from a short script");
  if (text.find('\0') != std::string::npos || !is_valid_utf8(text)) {
    return refuse("is not a text in UTF-8; to run a program write: tranche submit -- " + printable(name));
  }
  if (!text.starts_with("#!")) return refuse("does not begin with a #! line, such as #!/bin/bash");

  Script script;
  DirectiveReader reader;
  size_t number = 0;
  std::string_view rest = text;
  while (!rest.empty()) {
    const size_t end = rest.find('\n');
    const std::string_view line = rest.substr(0, end);
    rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 1);
    ++number;
    if (!is_comment_or_blank(line)) break;
    const std::string place = printable(name) + ":" + std::to_string(number);
    std::vector<std::string> warnings;
    const Result<void> taken = reader.take(line, place, warnings);
    if (!taken) return fail(taken.error().clone().with_context(place));
    for (const std::string& warning : warnings) script.warnings.push_back(place + ": " + warning);
  }
  TRY_ASSIGN(script.directives, reader.merged());
  script.text = std::move(text);
  return script;
}

}  // namespace tranche::cli
