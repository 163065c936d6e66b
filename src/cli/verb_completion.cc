// tranche completion: scripts for the shells, made from the table of verbs.
#include "cli/arguments.h"
#include "cli/option_error.h"
#include "cli/session.h"
#include "cli/text.h"
#include "cli/verbs.h"

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

bool names_jobs(const Verb& verb) { return verb.operands.starts_with("ID"); }

std::string bash_script() {
  std::string text =
      "_tranche() {\n"
      "  local word=${COMP_WORDS[COMP_CWORD]} verb=${COMP_WORDS[1]}\n"
      "  if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
      "    COMPREPLY=($(compgen -W \"" +
      verb_names() +
      "\" -- \"$word\"))\n"
      "    return\n"
      "  fi\n"
      "  case $verb in\n";
  for (const Verb& verb : verbs()) {
    text += "    " + std::string(verb.name) + ") ";
    text +=
        "if [[ $word == -* ]]; then COMPREPLY=($(compgen -W \"" + option_names(verb) + "\" -- \"$word\"));";
    if (names_jobs(verb)) {
      text +=
          " else COMPREPLY=($(compgen -W \"$(tranche ls --me --no-header 2>/dev/null | awk '{print $1}')\" "
          "-- \"$word\"));";
    }
    text += " fi ;;\n";
  }
  return text + "  esac\n}\ncomplete -o default -F _tranche tranche\n";
}

// Within single quotes of a shell.
std::string shell_quoted(std::string_view text) {
  std::string out;
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out;
}

std::string zsh_script() {
  std::string text = "#compdef tranche\n_tranche() {\n  local -a verbs\n  verbs=(\n";
  for (const Verb& verb : verbs()) {
    text += "    '" + std::string(verb.name) + ":" + shell_quoted(verb.help) + "'\n";
  }
  text += "  )\n  if (( CURRENT == 2 )); then _describe verb verbs; return; fi\n  case $words[2] in\n";
  for (const Verb& verb : verbs()) {
    text += "    " + std::string(verb.name) + ") compadd -- " + option_names(verb) + " ;;\n";
  }
  return text + "  esac\n  _files\n}\ncompdef _tranche tranche\n";
}

// fish reads \' and \\ within single quotes.
std::string fish_quoted(std::string_view text) {
  std::string out;
  for (const char c : text) out += (c == '\'' || c == '\\') ? std::string("\\") + c : std::string(1, c);
  return out;
}

std::string fish_script() {
  std::string text;
  for (const Verb& verb : verbs()) {
    text += "complete -c tranche -n __fish_use_subcommand -a " + std::string(verb.name) + " -d '" +
            fish_quoted(verb.help) + "'\n";
    for (const OptionGroup& group : verb.groups) {
      for (const Option& option : group.options) {
        if (!option.not_yet.empty()) continue;
        text += "complete -c tranche -n '__fish_seen_subcommand_from " + std::string(verb.name) + "' -l " +
                std::string(option_key(option)) + (option.value.empty() ? "" : " -r") + " -d '" +
                fish_quoted(option.help) + "'\n";
      }
    }
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
