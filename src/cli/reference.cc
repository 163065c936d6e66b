#include "cli/reference.h"

#include <algorithm>

#include "cli/table.h"
#include "cli/text.h"

namespace tranche::cli {
namespace {

constexpr std::string_view kTagline = "tranche: share this server's GPUs, fairly";

// The exit codes of every verb, for the page and the overview.
struct ExitCodeRow {
  std::string_view code;
  std::string_view meaning;
};
constexpr ExitCodeRow kExitCodes[] = {
    {"0", "done; for run and wait: the job succeeded"},
    {"1", "it failed"},
    {"2", "the command line, script or configuration is wrong, or asks for what is not available yet"},
    {"3", "denied: by permission, by a limit, or because it never fits this server"},
    {"4", "no such job, queue or GPU"},
    {"5", "the daemon cannot be reached"},
    {"124", "the job was ended at its time limit"},
    {"125", "Tranche failed: the job never started, or nobody knows how it ended"},
    {"126, 127", "the job's command cannot be executed, or was not found"},
    {"128+n", "the job was ended by signal n"},
    {"137", "the job ran out of memory, or was ended by SIGKILL"},
};

// "-G, --gpus N|TYPE:N|0.5"
std::string option_heading(const Option& option) {
  std::string heading;
  for (const std::string& name : split(option.names, ',')) heading += (heading.empty() ? "" : ", ") + name;
  if (!option.value.empty()) heading += " " + std::string(option.value);
  return heading;
}

std::string option_help(const Option& option) {
  std::string help(option.help);
  if (!option.not_yet.empty()) help += " (not available yet)";
  return help;
}

std::string usage(const Verb& verb) {
  std::string text = "tranche " + std::string(verb.name) + " [options]";
  if (!verb.operands.empty()) text += " " + std::string(verb.operands);
  return text;
}

// Breaks at spaces so that no line is longer than `width`; following lines are indented.
std::string wrapped(std::string_view text, size_t width, size_t indent) {
  std::string out;
  size_t column = 0;
  for (const std::string& word : split(text, ' ')) {
    const size_t size = display_width(word);
    if (column > 0 && column + 1 + size > width) {
      out += "\n" + std::string(indent, ' ');
      column = 0;
    } else if (column > 0) {
      out += ' ';
      ++column;
    }
    out += word;
    column += size;
  }
  return out;
}

std::string group_text(const Look& look, const OptionGroup& group) {
  if (group.options.empty()) return {};
  constexpr size_t kIndent = 2;
  constexpr size_t kHelpColumn = 36;
  const size_t width = look.width == 0 ? 110 : std::max<size_t>(look.width, kHelpColumn + 20);
  std::string text = styled(look, Style::kBold, group.title) + "\n";
  for (const Option& option : group.options) {
    std::string row = std::string(kIndent, ' ') + option_heading(option);
    if (row.size() + 2 > kHelpColumn) {
      row += "\n" + std::string(kHelpColumn, ' ');
    } else {
      row.resize(kHelpColumn, ' ');
    }
    text += row + wrapped(option_help(option), width - kHelpColumn, kHelpColumn) + "\n";
  }
  return text + "\n";
}

void append_markdown_options(std::string& text, const OptionGroup& group) {
  if (group.options.empty()) return;
  text += "| " + std::string(group.title) + " | |\n|---|---|\n";
  for (const Option& option : group.options) {
    // A bar inside a table's cell would end it.
    std::string heading;
    for (const char c : option_heading(option)) heading += c == '|' ? std::string("\\|") : std::string(1, c);
    std::string help;
    for (const char c : option_help(option)) help += c == '|' ? std::string("\\|") : std::string(1, c);
    text += "| `" + heading + "` | " + help + " |\n";
  }
  text += "\n";
}

}  // namespace

std::string overview_page(const Look& look) {
  std::string text = styled(look, Style::kBold, kTagline) + "\n\n";
  Table table({{.title = ""}, {.title = ""}});
  for (const Verb& verb : verbs())
    table.add({{"  " + std::string(verb.name), Style::kBold}, {std::string(verb.help)}});
  text += table.render(Look{.colour = look.colour}, false);
  text += "\nJobs are named 7, 7_3 (an element of array 7), 7_[1-3], 7-9, @ (one's last) and @-1.\n";
  return text + "'tranche help VERB' and 'tranche VERB --help' explain one, with examples.\n";
}

std::string verb_page(const Look& look, const Verb& verb) {
  std::string text = styled(look, Style::kBold, usage(verb)) + "\n  " + std::string(verb.help) + "\n";
  if (!verb.alias.empty()) text += "  The same: tranche " + std::string(verb.alias) + "\n";
  text += "\n";
  for (const OptionGroup& group : verb.groups) text += group_text(look, group);
  text += group_text(look, {"Common", common_options()});
  text += styled(look, Style::kBold, "Examples") + "\n";
  for (const Example& example : verb.examples) {
    text += "  " + std::string(example.line) + "\n      " + std::string(example.meaning) + "\n";
  }
  return text;
}

std::string markdown_reference() {
  std::string text =
      "# The command line\n\n"
      "Written by `tranche help --markdown` from the table of verbs (`src/cli/verbs.cc`); a test keeps it "
      "true.\n\n"
      "Jobs are named `7`, `7_3` (an element of array 7), `7_[1-3]`, `7-9`, `@` (one's last) and `@-1`. "
      "Sizes are MiB\n"
      "or have K, M, G, T (binary); a bare duration is minutes. `--json` prints what the daemon answered. "
      "Colour is\n"
      "used on terminals only, and not if `NO_COLOR` is set.\n\n"
      "| exit code | meaning |\n|---|---|\n";
  for (const ExitCodeRow& row : kExitCodes) {
    text += "| " + std::string(row.code) + " | " + std::string(row.meaning) + " |\n";
  }
  text += "\n";
  for (const Verb& verb : verbs()) {
    text += "## " + std::string(verb.name) + "\n\n";
    std::string help(verb.help);
    help[0] = static_cast<char>(help[0] - 'a' + 'A');
    text += help + ".";
    if (!verb.alias.empty()) text += " The same: `tranche " + std::string(verb.alias) + "`.";
    text += "\n\n    " + usage(verb) + "\n\n";
    for (const OptionGroup& group : verb.groups) append_markdown_options(text, group);
    for (const Example& example : verb.examples) {
      text += "- `" + std::string(example.line) + "`: " + std::string(example.meaning) + "\n";
    }
    text += "\n";
  }
  text += "## Everywhere\n\n";
  append_markdown_options(text, {"Common", common_options()});
  text.pop_back();
  return text;
}

}  // namespace tranche::cli
