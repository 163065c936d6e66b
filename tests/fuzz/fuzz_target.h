// What is fuzzed: each decoder of bytes from outside is one target.
//
// A target takes any bytes, decodes them, and holds what was accepted against a property (what is written
// again is read as the same). A crash, a report of a sanitizer, a failed require(), more memory than the
// bound or more time than the bound is a finding.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tranche::fuzz {

struct Target {
  std::string_view name;
  // Whether the bytes were accepted.
  bool (*run)(std::string_view bytes);
  // Inputs to begin with, right ones: the more they show, the less has to be found.
  std::vector<std::string> (*seeds)();
  // Words that mean something to this decoder.
  std::vector<std::string> (*words)();
};

const std::vector<Target>& targets();

// Ends the program with a finding.
void require(bool condition, const char* what);

// Of the rows of journals.
std::vector<std::string> row_words();

// One for each file of targets.
std::vector<Target> text_targets();
std::vector<Target> state_targets();
std::vector<Target> peer_targets();
std::vector<Target> launcher_targets();

}  // namespace tranche::fuzz
