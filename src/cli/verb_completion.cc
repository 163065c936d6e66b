// tranche completion: scripts for the shells, made from the table of verbs.
#include <algorithm>

#include "cli/arguments.h"
#include "cli/option_error.h"
#include "cli/session.h"
#include "cli/text.h"
#include "cli/verbs.h"
#include "model/job.h"
#include "model/policy.h"

namespace tranche::cli {
namespace {

std::string verb_names() {
  std::string names;
  for (const Verb& verb : verbs()) names += (names.empty() ? "" : " ") + std::string(verb.name);
  return names;
}

std::string option_names(const Verb& verb) {
  std::string names;
  for (const OptionGroup& group : verb.groups) {
    for (const Option& option : group.options) {
      if (option.not_yet.empty()) names += "--" + std::string(option_key(option)) + " ";
    }
  }
  return names + "--help";
}

// What a shell may put in a place: fixed words, or a command that prints them.
struct Candidates {
  std::string words;
  std::string command;
  bool empty() const { return words.empty() && command.empty(); }
};

constexpr std::string_view kJobs = "tranche ls --me --no-header 2>/dev/null | awk '{print $1}'";
constexpr std::string_view kGpuIndices = "tranche gpus --no-header 2>/dev/null | awk '{print $1}'";
constexpr std::string_view kQueues = "tranche queue --no-header 2>/dev/null | awk '{print $1}'";

template <class Enum>
std::string all_of(size_t count) {
  std::string words;
  for (size_t i = 0; i < count; ++i) {
    words += (i == 0 ? "" : " ") + std::string(to_string(static_cast<Enum>(i)));
  }
  return words;
}

// The words of a verb that are no options.
Candidates operands_of(const Verb& verb) {
  if (verb.operands.starts_with("ID")) return {{}, std::string(kJobs)};
  if (verb.name == "who") return {{}, std::string(kGpuIndices)};
  if (verb.name == "gpus") return {"drain undrain", std::string(kGpuIndices)};
  if (verb.name == "help") return {verb_names(), {}};
  if (verb.name == "completion") return {"bash zsh fish", {}};
  if (verb.name == "config") return {"check explain reload", {}};
  if (verb.name == "token") return {"create ls revoke", {}};
  return {};
}

// The values of an option.
Candidates values_of(const Option& option) {
  const std::string_view key = option_key(option);
  if (key == "queue") return {{}, std::string(kQueues)};
  if (key == "class") return {all_of<JobClass>(kJobClassCount), {}};
  if (key == "state") return {all_of<JobState>(static_cast<size_t>(JobState::unknown) + 1), {}};
  if (key == "export") return {"ALL NONE", {}};
  return {};
}

template <class Visit>
void for_each_option(const Verb& verb, Visit visit) {
  for (const OptionGroup& group : verb.groups) {
    for (const Option& option : group.options) {
      if (option.not_yet.empty()) visit(option);
    }
  }
}

std::string shell_list(const Candidates& candidates) {
  std::string text = candidates.words;
  if (!candidates.command.empty()) text += (text.empty() ? "$(" : " $(") + candidates.command + ")";
  return text;
}

std::string bash_reply(std::string_view list) {
  return "COMPREPLY=($(compgen -W \"" + std::string(list) + "\" -- \"$word\"))";
}

std::string bash_verb(const Verb& verb) {
  std::string values;
  for_each_option(verb, [&](const Option& option) {
    const Candidates candidates = values_of(option);
    if (candidates.empty()) return;
    std::string names(option.names);
    std::replace(names.begin(), names.end(), ',', '|');
    values += "      " + names + ") " + bash_reply(shell_list(candidates)) + "; return ;;\n";
  });
  std::string text = "    " + std::string(verb.name);
  if (!verb.alias.empty()) text += "|" + std::string(verb.alias);
  text += ")\n";
  if (!values.empty()) text += "      case $before in\n" + values + "      esac\n";
  text += "      if [[ $word == -* ]]; then " + bash_reply(option_names(verb));
  const Candidates operands = operands_of(verb);
  if (!operands.empty()) text += "; else " + bash_reply(shell_list(operands));
  return text + "; fi ;;\n";
}

std::string bash_script() {
  std::string text =
      "_tranche() {\n"
      "  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} verb=${COMP_WORDS[1]}\n"
      "  if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
      "    " +
      bash_reply(verb_names()) +
      "\n"
      "    return\n"
      "  fi\n"
      "  case $verb in\n";
  for (const Verb& verb : verbs()) text += bash_verb(verb);
  return text + "  esac\n}\ncomplete -o default -F _tranche tranche\n";
}

// Within single quotes of a shell.
std::string shell_quoted(std::string_view text) {
  std::string out;
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out;
}

std::string zsh_verb(const Verb& verb) {
  std::string values;
  for_each_option(verb, [&](const Option& option) {
    const Candidates candidates = values_of(option);
    if (candidates.empty()) return;
    std::string names(option.names);
    std::replace(names.begin(), names.end(), ',', '|');
    values += "      " + names + ") compadd -- " + shell_list(candidates) + "; return ;;\n";
  });
  std::string text = "    " + std::string(verb.name) + ")\n";
  if (!values.empty()) text += "      case $words[CURRENT-1] in\n" + values + "      esac\n";
  text += "      if [[ $words[CURRENT] == -* ]]; then compadd -- " + option_names(verb);
  const Candidates operands = operands_of(verb);
  if (!operands.empty()) text += "; else compadd -- " + shell_list(operands);
  return text + "; fi ;;\n";
}

std::string zsh_script() {
  std::string text = "#compdef tranche\n_tranche() {\n  local -a verbs\n  verbs=(\n";
  for (const Verb& verb : verbs()) {
    text += "    '" + std::string(verb.name) + ":" + shell_quoted(verb.help) + "'\n";
  }
  text += "  )\n  if (( CURRENT == 2 )); then _describe verb verbs; return; fi\n  case $words[2] in\n";
  for (const Verb& verb : verbs()) text += zsh_verb(verb);
  return text + "  esac\n  _files\n}\ncompdef _tranche tranche\n";
}

// fish reads \' and \\ within single quotes.
std::string fish_quoted(std::string_view text) {
  std::string out;
  for (const char c : text) out += (c == '\'' || c == '\\') ? std::string("\\") + c : std::string(1, c);
  return out;
}

std::string fish_list(const Candidates& candidates) {
  std::string text = candidates.words;
  if (!candidates.command.empty()) text += (text.empty() ? "(" : " (") + candidates.command + ")";
  return " -a '" + fish_quoted(text) + "'";
}

std::string fish_script() {
  std::string text;
  for (const Verb& verb : verbs()) {
    text += "complete -c tranche -n __fish_use_subcommand -a " + std::string(verb.name) + " -d '" +
            fish_quoted(verb.help) + "'\n";
    const std::string line =
        "complete -c tranche -n '__fish_seen_subcommand_from " + std::string(verb.name) + "'";
    const Candidates operands = operands_of(verb);
    if (!operands.empty()) text += line + " -f" + fish_list(operands) + "\n";
    for_each_option(verb, [&](const Option& option) {
      const Candidates values = values_of(option);
      text += line + " -l " + std::string(option_key(option)) + (option.value.empty() ? "" : " -r") +
              (values.empty() ? "" : " -f" + fish_list(values)) + " -d '" + fish_quoted(option.help) + "'\n";
    });
  }
  return text;
}

}  // namespace

Result<int> run_completion(Session& session, const Arguments& arguments) {
  const std::string& shell = arguments.words.front();
  if (shell == "bash") {
    session.print(bash_script());
  } else if (shell == "zsh") {
    session.print(zsh_script());
  } else if (shell == "fish") {
    session.print(fish_script());
  } else {
    return invalid("there is completion for bash, zsh and fish, not for " + in_quotes(shell));
  }
  return 0;
}

}  // namespace tranche::cli
