#include "emulator/driver_level.h"

#include <algorithm>
#include <charconv>
#include <map>

#include "base/assert.h"
#include "emulator/driver_level_data.h"
#include "emulator/server_description.h"

namespace tranche::emulator {
namespace {

int leading_number(std::string_view text) {
  int number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

// The second number of a driver version: 54 of "535.54.03".
int minor_of(std::string_view version) {
  const size_t dot = version.find('.');
  return dot == std::string_view::npos ? 0 : leading_number(version.substr(dot + 1));
}

// "12.8" as CUDA writes it: 12080.
int32_t cuda_number(std::string_view text) {
  const size_t dot = text.find('.');
  return leading_number(text) * 1000 +
         (dot == std::string_view::npos ? 0 : leading_number(text.substr(dot + 1)) * 10);
}

std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> words;
  line = line.substr(0, line.find('#'));
  while (true) {
    const size_t begin = line.find_first_not_of(" \t\r");
    if (begin == std::string_view::npos) return words;
    const size_t end = std::min(line.find_first_of(" \t\r", begin), line.size());
    words.push_back(line.substr(begin, end - begin));
    line.remove_prefix(end);
  }
}

}  // namespace

// All the files, read.
class DriverLevels {
 public:
  static constexpr int kForever = 1 << 30;

  // From which release on, and before which one, a function is there. `from_minor`: the first version within
  // the release `from` that has it.
  struct Life {
    int from = 0, until = kForever;
    int from_minor = 0;
  };

  DriverLevels() {
    for (const DriverLevelText& file : driver_level_texts()) read(file);
  }

  static const DriverLevels& all() {
    static const DriverLevels levels;
    return levels;
  }

  std::vector<DriverLevel> levels;
  std::map<std::string_view, Life> lives;
  std::map<int, int32_t> cuda_from;
  std::map<std::string_view, std::map<int, int64_t>> numbers;
  std::vector<std::string> mistakes;

 private:
  void read(const DriverLevelText& file) {
    DriverLevel level;
    level.branch_ = file.branch;
    std::string_view text = file.text;
    while (!text.empty()) {
      const size_t end = std::min(text.find('\n'), text.size());
      const std::string_view line = text.substr(0, end);
      const auto words = words_of(line);
      if (!words.empty() && !apply(words, level)) {
        mistakes.push_back(std::to_string(file.branch) + ".level: \"" + std::string(line) + "\"");
      }
      text.remove_prefix(std::min(end + 1, text.size()));
    }
    if (level.version_.empty()) mistakes.push_back(std::to_string(file.branch) + ".level: no version");
    levels.push_back(level);
  }

  bool apply(const std::vector<std::string_view>& words, DriverLevel& level) {
    const std::string_view what = words[0];
    if (what == "version" && words.size() == 2) {
      level.version_ = words[1];
      return leading_number(words[1]) == level.branch_;
    }
    if (what == "cuda" && words.size() == 2) return set_cuda(level.branch_, words[1]);
    if (what == "cuda" && words.size() == 4 && words[2] == "from") {
      return leading_number(words[3]) > level.branch_ && set_cuda(leading_number(words[3]), words[1]);
    }
    if (what == "set" && words.size() == 3) {
      return numbers[words[1]].emplace(level.branch_, leading_number(words[2])).second;
    }
    if (what == "+" && words.size() == 4 && words[2] == "from") {
      return leading_number(words[3]) == level.branch_ &&
             add_symbol(what, words[1], level.branch_, minor_of(words[3]));
    }
    return words.size() == 2 && add_symbol(what, words[1], level.branch_, 0);
  }

  bool set_cuda(int branch, std::string_view version) {
    return cuda_number(version) > 10000 && cuda_from.emplace(branch, cuda_number(version)).second;
  }

  bool add_symbol(std::string_view what, std::string_view symbol, int branch, int minor) {
    if (symbol.substr(0, 2) != "cu" && symbol.substr(0, 4) != "nvml") return false;
    if (what == "+") return lives.emplace(symbol, Life{branch, kForever, minor}).second;
    if (what != "-") return false;
    Life& life = lives[symbol];
    const bool is_new = life.until == kForever && life.from < branch;
    life.until = branch;
    return is_new;
  }
};

bool DriverLevel::has(std::string_view symbol) const {
  const auto& lives = DriverLevels::all().lives;
  const auto found = lives.find(symbol);
  if (found == lives.end()) return true;
  return found->second.from <= branch_ && branch_ < found->second.until;
}

int64_t DriverLevel::number(std::string_view name) const {
  const auto& numbers = DriverLevels::all().numbers;
  const auto found = numbers.find(name);
  TRANCHE_ASSERT(found != numbers.end());
  const auto after = found->second.upper_bound(branch_);
  TRANCHE_ASSERT(after != found->second.begin());
  return std::prev(after)->second;
}

const std::vector<DriverLevel>& driver_levels() { return DriverLevels::all().levels; }

const DriverLevel& driver_level(std::string_view driver_version) {
  const auto& levels = driver_levels();
  const int branch = leading_number(driver_version);
  const auto above =
      std::upper_bound(levels.begin(), levels.end(), branch,
                       [](int wanted, const DriverLevel& level) { return wanted < level.branch(); });
  return above == levels.begin() ? levels.front() : *std::prev(above);
}

Result<std::string> driver_version_of(std::string_view level_or_version) {
  std::string known;
  for (const DriverLevel& level : driver_levels()) {
    if (std::to_string(level.branch()) == level_or_version) return std::string(level.version());
    known.append(known.empty() ? "" : ", ").append(std::to_string(level.branch()));
  }
  if (level_or_version.find('.') == std::string_view::npos) {
    return fail(ErrorCode::invalid_argument, "\"" + std::string(level_or_version) +
                                                 "\" is not a driver level; choose one of " + known +
                                                 ", or write a whole version such as 550.163.01");
  }
  TRY(check_driver_version(level_or_version));
  return std::string(level_or_version);
}

int32_t cuda_version_of_driver(std::string_view driver_version) {
  const auto& cuda_from = DriverLevels::all().cuda_from;
  const auto above = cuda_from.upper_bound(leading_number(driver_version));
  return above == cuda_from.begin() ? above->second : std::prev(above)->second;
}

std::vector<std::string_view> absent_symbols(std::string_view driver_version) {
  const DriverLevel& level = driver_level(driver_version);
  const bool is_its_release = leading_number(driver_version) == level.branch();
  std::vector<std::string_view> absent;
  for (const auto& [symbol, life] : DriverLevels::all().lives) {
    const bool comes_later =
        is_its_release && life.from == level.branch() && minor_of(driver_version) < life.from_minor;
    if (comes_later || !level.has(symbol)) absent.push_back(symbol);
  }
  return absent;
}

std::vector<std::string> driver_level_mistakes() { return DriverLevels::all().mistakes; }

}  // namespace tranche::emulator
