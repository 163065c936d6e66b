#include "cli/ignore_rules.h"

#include <algorithm>
#include <vector>

namespace tranche::cli {
namespace {

struct Token {
  enum class Kind : unsigned char { kCharacter, kOne, kMany, kManyAndSlashes } kind = Kind::kCharacter;
  char character = 0;
};

// "**/" is any number of whole folders, so the slash behind it goes with it.
std::vector<Token> tokens_of(std::string_view pattern) {
  std::vector<Token> tokens;
  for (size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] == '?') {
      tokens.push_back({Token::Kind::kOne, 0});
    } else if (pattern[i] != '*') {
      tokens.push_back({Token::Kind::kCharacter, pattern[i]});
    } else if (i + 1 == pattern.size() || pattern[i + 1] != '*') {
      tokens.push_back({Token::Kind::kMany, 0});
    } else {
      while (i + 1 < pattern.size() && pattern[i + 1] == '*') ++i;
      if (i + 1 < pattern.size() && pattern[i + 1] == '/') ++i;
      tokens.push_back({Token::Kind::kManyAndSlashes, 0});
    }
  }
  return tokens;
}

}  // namespace

// reached[i]: the first i tokens fit what has been read. No recursion, no backtracking.
bool matches_glob(std::string_view pattern, std::string_view text) {
  const std::vector<Token> tokens = tokens_of(pattern);
  const auto is_many = [&](size_t i) {
    return tokens[i].kind == Token::Kind::kMany || tokens[i].kind == Token::Kind::kManyAndSlashes;
  };
  std::vector<bool> reached(tokens.size() + 1, false);
  reached[0] = true;
  for (size_t i = 0; i < tokens.size() && is_many(i); ++i) reached[i + 1] = true;
  for (const char c : text) {
    std::vector<bool> next(tokens.size() + 1, false);
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (!reached[i]) continue;
      const Token& token = tokens[i];
      switch (token.kind) {
        case Token::Kind::kCharacter:
          if (token.character == c) next[i + 1] = true;
          break;
        case Token::Kind::kOne:
          if (c != '/') next[i + 1] = true;
          break;
        case Token::Kind::kMany:
          if (c != '/') next[i] = true;
          break;
        case Token::Kind::kManyAndSlashes:
          next[i] = true;
          break;
      }
    }
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (next[i] && is_many(i)) next[i + 1] = true;
    }
    reached = std::move(next);
  }
  return reached.back();
}

void IgnoreRules::add(std::string_view folder, std::string_view text) {
  while (!text.empty() && rules_.size() < kRulesMax) {
    const size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.remove_suffix(1);
    if (line.empty() || line[0] == '#') continue;
    Rule rule;
    if (!folder.empty()) rule.base = std::string(folder) + "/";
    rule.takes_back = line[0] == '!';
    if (rule.takes_back || line[0] == '\\') line.remove_prefix(1);
    rule.folders_only = line.ends_with('/');
    if (rule.folders_only) line.remove_suffix(1);
    rule.anchored = line.find('/') != std::string_view::npos;
    if (line.starts_with('/')) line.remove_prefix(1);
    rule.pattern = line;
    if (!rule.pattern.empty()) rules_.push_back(std::move(rule));
  }
}

bool IgnoreRules::ignores(std::string_view path, bool is_folder) const {
  for (auto rule = rules_.rbegin(); rule != rules_.rend(); ++rule) {
    if (!path.starts_with(rule->base) || (rule->folders_only && !is_folder)) continue;
    const std::string_view below = path.substr(rule->base.size());
    const std::string_view subject = rule->anchored ? below : below.substr(below.rfind('/') + 1);
    if (matches_glob(rule->pattern, subject)) return !rule->takes_back;
  }
  return false;
}

}  // namespace tranche::cli
