#include "cli/command_line.h"

#include <gtest/gtest.h>

#include "cli/text.h"

namespace tranche::cli {
namespace {

using Words = std::vector<std::string>;

std::string error_of(const Words& words) {
  const Result<CommandLine> line = parse_command_line(words);
  if (line) return "accepted";
  EXPECT_EQ(exit_code(line.error().code()), 2) << line.error().message();
  return line.error().message();
}

CommandLine parsed(const Words& words) {
  Result<CommandLine> line = parse_command_line(words);
  if (!line) {
    ADD_FAILURE() << line.error().message();
    return CommandLine{find_verb("help"), {}};
  }
  return std::move(*line);
}

TEST(CommandLine, NothingIsHelp) { EXPECT_EQ(parsed({}).verb->name, "help"); }

TEST(CommandLine, EveryVerbHasTwoExamplesThatParse) {
  for (const Verb& verb : verbs()) {
    for (const Example& example : verb.examples) {
      bool unclosed = false;
      std::string text(example.line);
      if (text.starts_with("source <(")) text = text.substr(9, text.size() - 10);
      text = text.substr(0, std::min(text.find(" > "), text.find(" && ")));
      Words words = shell_words(text, unclosed);
      ASSERT_FALSE(words.empty()) << verb.name;
      EXPECT_EQ(words.front(), "tranche");
      words.erase(words.begin());
      EXPECT_EQ(parsed(words).verb->name, verb.name) << example.line;
      EXPECT_FALSE(example.meaning.empty());
    }
  }
}

TEST(CommandLine, EveryOptionOfEveryVerbIsKnownByAllItsNames) {
  for (const Verb& verb : verbs()) {
    for (const OptionGroup& group : verb.groups) {
      for (const Option& option : group.options) {
        for (const std::string& name : split(option.names, ',')) {
          Words words = {std::string(verb.name), name};
          if (!option.value.empty()) words.push_back("1");
          for (size_t i = 0; i < verb.operands_min; ++i) words.push_back("bash");
          const Result<CommandLine> line = parse_command_line(words);
          if (option.not_yet.empty()) {
            ASSERT_TRUE(line.has_value()) << verb.name << " " << name << ": " << line.error().message();
            EXPECT_TRUE(line->arguments.has(option_key(option))) << verb.name << " " << name;
          } else {
            ASSERT_FALSE(line.has_value()) << verb.name << " " << name;
            EXPECT_EQ(line.error().code(), ErrorCode::not_available_yet);
            EXPECT_NE(line.error().message().find("is not available yet; "), std::string::npos);
          }
        }
      }
    }
  }
}

TEST(CommandLine, HelpOfEveryVerb) {
  for (const Verb& verb : verbs()) {
    const CommandLine line = parsed({std::string(verb.name), "--help"});
    EXPECT_EQ(line.verb->name, "help");
    EXPECT_EQ(line.arguments.words, Words{std::string(verb.name)});
  }
}

TEST(CommandLine, CommandKeepsItsOwnOptions) {
  const CommandLine line = parsed({"run", "-G", "2", "python", "train.py", "--gpus", "7", "--", "-x"});
  EXPECT_EQ(line.arguments.value_or("gpus", ""), "2");
  EXPECT_EQ(line.arguments.words, (Words{"python", "train.py", "--gpus", "7", "--", "-x"}));
  EXPECT_FALSE(line.arguments.after_dashes);
  const CommandLine dashed = parsed({"run", "-G2", "--", "--odd", "--gpus=7", "--empty="});
  EXPECT_EQ(dashed.arguments.value_or("gpus", ""), "2");
  EXPECT_EQ(dashed.arguments.words, (Words{"--odd", "--gpus=7", "--empty="}));
  EXPECT_TRUE(dashed.arguments.after_dashes);
}

TEST(CommandLine, EmptyValueInACommandStays) {
  EXPECT_EQ(parsed({"run", "env", "--name="}).arguments.words, (Words{"env", "--name="}));
}

TEST(CommandLine, WordsAndOptionsMix) {
  const CommandLine line = parsed({"show", "7", "--json", "8"});
  EXPECT_TRUE(line.arguments.has("json"));
  EXPECT_EQ(line.arguments.words, (Words{"7", "8"}));
}

TEST(CommandLine, CommonOptionsStandBeforeTheVerbToo) {
  const CommandLine line = parsed({"--socket", "/tmp/s", "-q", "ls", "-q", "physics"});
  EXPECT_EQ(line.verb->name, "ls");
  EXPECT_EQ(line.arguments.value_or("socket", ""), "/tmp/s");
  EXPECT_TRUE(line.arguments.has("quiet"));
  EXPECT_EQ(line.arguments.value_or("queue", ""), "physics");
}

TEST(CommandLine, AliasesAreTheSameVerb) {
  EXPECT_EQ(parsed({"ps"}).verb->name, "ls");
  EXPECT_EQ(parsed({"info"}).verb->name, "gpus");
  EXPECT_EQ(parsed({"--version"}).verb->name, "version");
}

TEST(CommandLine, MistakesAreNamed) {
  EXPECT_EQ(error_of({"sbumit"}), "'sbumit' is not a verb of tranche; did you mean 'tranche submit'?");
  EXPECT_EQ(error_of({"run", "--gpsu", "2", "--", "x"}), "unknown option '--gpsu'; did you mean --gpus?");
  EXPECT_EQ(error_of({"ls", "--zzzzzzz"}), "unknown option '--zzzzzzz'; --help lists what there is");
  EXPECT_EQ(error_of({"run", "-G", "1", "--gpus", "2", "--", "x"}), "--gpus is given 2 times; give it once");
  EXPECT_EQ(error_of({"run", "--name", "--gpus", "2", "--", "x"}), "--name needs a value: --name NAME");
  EXPECT_EQ(error_of({"run", "--name=", "x"}), "--name needs a value: --name NAME");
  EXPECT_EQ(error_of({"ls", "--me=maybe"}), "--me is a switch and takes no value");
  EXPECT_EQ(error_of({"ls", "7"}), "'7' is one word too many; write: tranche ls");
  EXPECT_EQ(error_of({"show"}), "ID is missing; write: tranche show ID...");
  EXPECT_EQ(error_of({"ls", "--\x1b[2J"}), "unknown option '--\\x1b[2J'; --help lists what there is");
}

TEST(CommandLine, WhatIsNotBuiltSaysSo) {
  EXPECT_EQ(error_of({"run", "--mig", "2g.20gb", "--", "x"}),
            "--mig is not available yet; ask for whole GPUs (-G 2) or a fraction (-G 0.5) instead");
}

TEST(CommandLine, BareValueOptionAtTheEndNeedsAValue) {
  EXPECT_NE(error_of({"ls", "--user"}).find("needs a value"), std::string::npos);
}

}  // namespace
}  // namespace tranche::cli
