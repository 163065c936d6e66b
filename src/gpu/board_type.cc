#include "gpu/board_type.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <vector>

namespace tranche {
namespace {

constexpr size_t kTypeLengthMax = 40;

// A board is known by a word of its name and by NVML's total, which differs from the name's GB by a few per
// cent either way (an "80GB" H100 has 81559 MiB, an A100 81920). Ranges in MiB.
struct KnownBoard {
  std::string_view word;
  int64_t memory_min, memory_max;
  std::string_view type;
};
constexpr std::array<KnownBoard, 9> kKnownBoards{{
    {"t4", 14'000, 17'000, "t4"},
    {"4090", 23'000, 25'500, "rtx4090"},
    {"l40s", 44'000, 50'000, "l40s"},
    {"a100", 38'000, 42'500, "a100-40"},
    {"a100", 78'000, 83'500, "a100-80"},
    {"h100", 78'000, 83'500, "h100-80"},
    {"h200", 138'000, 147'000, "h200"},
    {"a30", 23'000, 25'500, "a30"},
    {"b200", 178'000, 193'000, "b200"},
}};

bool is_alphanumeric(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; }

// Lower-case words of letters and digits: "NVIDIA A100-SXM4-80GB" -> nvidia a100 sxm4 80gb.
std::vector<std::string> words_of(std::string_view name) {
  std::vector<std::string> words;
  bool inside = false;
  for (const char c : name) {
    if (is_alphanumeric(c)) {
      if (!inside) words.emplace_back();
      words.back().push_back(static_cast<char>(std::tolower(static_cast<unsigned char>(c))));
    }
    inside = is_alphanumeric(c);
  }
  return words;
}

bool is_size(const std::string& word) {
  return word.size() > 2 && word.ends_with("gb") && std::isdigit(static_cast<unsigned char>(word[0])) != 0;
}

std::string slug_of(const std::vector<std::string>& words, MiB memory_total) {
  std::string slug;
  bool has_size = false;
  for (const std::string& word : words) {
    if (word == "nvidia" || word == "geforce" || word == "tesla")
      continue;  // maker and family, not the board
    has_size = has_size || is_size(word);
    if (!slug.empty()) slug.push_back('-');
    slug += is_size(word) ? word.substr(0, word.size() - 2) : word;
  }
  if (slug.empty()) slug = "gpu";
  const std::string size = has_size || memory_total <= MiB(0)
                               ? std::string()
                               : "-" + std::to_string((memory_total.count() + 512) / 1024);
  slug.resize(std::min(slug.size(), kTypeLengthMax - size.size()));
  while (slug.ends_with('-')) slug.pop_back();
  return slug + size;
}

// Three words: "6000" alone is on boards of three generations.
bool is_rtx_pro_6000(const std::vector<std::string>& words, MiB memory_total) {
  constexpr std::array<std::string_view, 3> kName{"rtx", "pro", "6000"};
  const auto at = std::search(words.begin(), words.end(), kName.begin(), kName.end());
  return at != words.end() && memory_total.count() > 94'000 && memory_total.count() < 100'000;
}

}  // namespace

std::string board_type(std::string_view name, MiB memory_total) {
  const std::vector<std::string> words = words_of(name);
  for (const KnownBoard& board : kKnownBoards) {
    if (memory_total.count() < board.memory_min || memory_total.count() > board.memory_max) continue;
    for (size_t i = 0; i < words.size(); ++i) {
      // "RTX 4090 Laptop", "RTX 4090 D": other chips under the same number.
      const bool variant = i + 1 < words.size() && (words[i + 1] == "laptop" || words[i + 1] == "d");
      if (words[i] == board.word && !variant) return std::string(board.type);
    }
  }
  if (is_rtx_pro_6000(words, memory_total)) return "rtxpro6000";
  return slug_of(words, memory_total);
}

}  // namespace tranche
