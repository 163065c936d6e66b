// Which files of a source tree are not copied: patterns as in Git's .gitignore.
//
// One rule a line: `#` begins a comment, `!` takes a file back in, a trailing `/` means folders only, a slash
// at the front or within anchors the pattern at the file's own folder, otherwise it holds at any depth below
// it; `*` and `?` stop at slashes, `**` does not. The last rule that fits decides; a folder that is left out
// is not looked into. Not as in Git: a backslash has no meaning but at the front of a line (`\#`, `\!`).
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace tranche::cli {

class IgnoreRules {
 public:
  // The lines of an ignore file that lies in `folder`, relative to the root of the tree ("" is the root).
  // Lines beyond kRulesMax are not read.
  void add(std::string_view folder, std::string_view text);
  // `path` is relative to the root.
  bool ignores(std::string_view path, bool is_folder) const;

  static constexpr size_t kRulesMax = 10'000;

 private:
  struct Rule {
    std::string base;     // folder of the file, with a slash behind it, or ""
    std::string pattern;  // without its marks
    bool takes_back = false;
    bool folders_only = false;
    bool anchored = false;
  };
  std::vector<Rule> rules_;
};

// Whether `text` is of the form `pattern`, both whole. Linear in pattern times text.
bool matches_glob(std::string_view pattern, std::string_view text);

}  // namespace tranche::cli
