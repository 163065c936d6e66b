#include "isolation/cpu_weights.h"

#include <dirent.h>
#include <fcntl.h>

#include <algorithm>
#include <charconv>
#include <string>

#include "isolation/file.h"

namespace tranche::isolation {
namespace {

constexpr uint64_t kLeastWeight = 1, kGreatestWeight = 10'000;
constexpr uint64_t kMilliPerWeight = 50;
constexpr int kLooks = 8;  // more only while others keep coming and going, and then they look too

uint64_t weight_at(int folder, const std::string& name) {
  uint64_t weight = 0;
  if (const auto text = read_text_at(folder, name.c_str())) {
    std::from_chars(text->data(), text->data() + text->size(), weight);
  }
  return weight;
}

// What the folders below ask for together; 0 where there are none.
uint64_t weight_below(int level) {
  DIR* const folders = ::fdopendir(::openat(level, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folders == nullptr) return 0;
  uint64_t sum = 0;
  while (const dirent* const entry = ::readdir(folders)) {
    if (entry->d_type != DT_DIR || entry->d_name[0] == '.') continue;
    sum += weight_at(level, std::string(entry->d_name) + "/cpu.weight");
  }
  ::closedir(folders);
  return sum;
}

void weigh(int root, const std::string& name) {
  const auto level = open_at(root, name.c_str(), O_RDONLY | O_DIRECTORY);
  if (!level) return;
  for (int look = 0; look < kLooks; ++look) {
    const uint64_t below = weight_below(level->get());
    const uint64_t wanted = std::clamp(below, kLeastWeight, kGreatestWeight);
    if (below == 0 || weight_at(level->get(), "cpu.weight") == wanted) return;
    if (!write_text_at(level->get(), "cpu.weight", std::to_string(wanted))) return;
  }
}

}  // namespace

uint64_t cpu_weight(uint64_t milli) {
  return std::clamp(milli / kMilliPerWeight, kLeastWeight, kGreatestWeight);
}

void weigh_levels(const CgroupTree& tree, uint32_t uid, uint64_t job) {
  if (!tree.has_unified_controllers()) return;
  const std::string user = "u" + std::to_string(uid);
  weigh(tree.unified(), user + "/j" + std::to_string(job));
  weigh(tree.unified(), user);
}

}  // namespace tranche::isolation
