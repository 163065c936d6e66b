// The table of verbs: everything the command line can do, as data. Help, completion, docs/cli.md and the
// parser are made from it; each verb's work is one function in a file of its own.
#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace tranche::cli {

class Arguments;
class Session;

struct Option {
  std::string_view names;         // all spellings, "-G,--gpus"; the first long one is its key in Arguments
  std::string_view value;         // how help writes its value; empty: a switch
  std::string_view help;          // one line
  std::string_view not_yet = {};  // set: not built yet; a sentence that says what to do instead
};

struct OptionGroup {
  std::string_view title;
  std::span<const Option> options;
};

struct Example {
  std::string_view line;
  std::string_view meaning;
};

// What may follow a verb besides its options.
enum class Operands : unsigned char {
  kNone,
  kWords,    // options and words may be mixed
  kCommand,  // the first word (or what follows "--") begins a command, which is not looked into
};

struct Verb {
  std::string_view name;
  std::string_view alias;     // "" is none
  std::string_view operands;  // how help writes them: "ID..."
  std::string_view help;      // one line
  Operands kind = Operands::kNone;
  size_t operands_min = 0;
  size_t operands_max = 0;
  std::array<Example, 2> examples;
  std::array<OptionGroup, 3> groups;  // unused ones are empty
  // The exit code, or an error that main prints and turns into one.
  Result<int> (*run)(Session& session, const Arguments& arguments) = nullptr;
};

std::span<const Verb> verbs();
// Options that stand before the verb, or anywhere among a verb's own: --socket, --quiet, ...
std::span<const Option> common_options();
// By name or alias, or null.
const Verb* find_verb(std::string_view name);

// The first long spelling without its dashes: "gpus".
std::string_view option_key(const Option& option);

Result<int> run_attach(Session& session, const Arguments& arguments);
Result<int> run_cancel(Session& session, const Arguments& arguments);
Result<int> run_completion(Session& session, const Arguments& arguments);
Result<int> run_config(Session& session, const Arguments& arguments);
Result<int> run_doctor(Session& session, const Arguments& arguments);
Result<int> run_events(Session& session, const Arguments& arguments);
Result<int> run_exec(Session& session, const Arguments& arguments);
Result<int> run_gpus(Session& session, const Arguments& arguments);
Result<int> run_help(Session& session, const Arguments& arguments);
Result<int> run_history(Session& session, const Arguments& arguments);
Result<int> run_hold(Session& session, const Arguments& arguments);
Result<int> run_logs(Session& session, const Arguments& arguments);
Result<int> run_ls(Session& session, const Arguments& arguments);
Result<int> run_queue(Session& session, const Arguments& arguments);
Result<int> run_replay(Session& session, const Arguments& arguments);
Result<int> run_requeue(Session& session, const Arguments& arguments);
Result<int> run_release(Session& session, const Arguments& arguments);
Result<int> run_run(Session& session, const Arguments& arguments);
Result<int> run_share(Session& session, const Arguments& arguments);
Result<int> run_shell(Session& session, const Arguments& arguments);
Result<int> run_show(Session& session, const Arguments& arguments);
Result<int> run_submit(Session& session, const Arguments& arguments);
Result<int> run_token(Session& session, const Arguments& arguments);
Result<int> run_top(Session& session, const Arguments& arguments);
Result<int> run_update(Session& session, const Arguments& arguments);
Result<int> run_version(Session& session, const Arguments& arguments);
Result<int> run_wait(Session& session, const Arguments& arguments);
Result<int> run_who(Session& session, const Arguments& arguments);
Result<int> run_why(Session& session, const Arguments& arguments);

}  // namespace tranche::cli
