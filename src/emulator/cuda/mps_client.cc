#include "emulator/cuda/mps_client.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string>

namespace tranche::emulator::cuda {
namespace {

// "2G", "512M", "512MB", "100K" or a plain number of bytes; 0: none of these.
uint64_t size_of(const std::string& text) {
  char* end = nullptr;
  const uint64_t number = std::strtoull(text.c_str(), &end, 10);
  if (end == text.c_str() || text[0] == '-') return 0;
  const std::string unit(end);
  const auto is = [&unit](const char* one, const char* two) { return unit == one || unit == two; };
  const uint32_t shift = is("G", "GB") ? 30 : is("M", "MB") ? 20 : is("K", "KB") ? 10 : 0;
  if (shift == 0 && !unit.empty()) return 0;
  return number > (UINT64_MAX >> shift) ? UINT64_MAX : number << shift;
}

}  // namespace

uint32_t multiprocessors_of_client(std::string_view percentage, uint32_t all) {
  const std::string text(percentage);
  char* end = nullptr;
  const double percent = std::strtod(text.c_str(), &end);
  if (end == text.c_str() || !(percent > 0) || percent >= 100) return all;
  const auto part = static_cast<uint32_t>(std::floor(percent * all / 100));
  return std::max(part / 2 * 2, 2u);
}

std::vector<uint64_t> memory_limits_of_client(std::string_view list, uint32_t device_count) {
  std::vector<uint64_t> limits(device_count, UINT64_MAX);
  bool any = false;
  while (!list.empty()) {
    const size_t comma = std::min(list.find(','), list.size());
    const std::string entry(list.substr(0, comma));
    list.remove_prefix(std::min(comma + 1, list.size()));
    const size_t equals = entry.find('=');
    if (equals == std::string::npos) return {};
    char* end = nullptr;
    const uint64_t device = std::strtoull(entry.c_str(), &end, 10);
    const uint64_t bytes = size_of(entry.substr(equals + 1));
    if (end != entry.c_str() + equals || equals == 0 || device >= device_count || bytes == 0) return {};
    limits[device] = bytes;
    any = true;
  }
  return any ? limits : std::vector<uint64_t>();
}

}  // namespace tranche::emulator::cuda
