#include "emulator/cuda/visible_devices.h"

#include <algorithm>
#include <charconv>
#include <optional>

namespace tranche::emulator::cuda {
namespace {

uint64_t speed(const Board& board) {
  return uint64_t{board.multiprocessors} * board.cores_per_multiprocessor * board.clock_max_mhz;
}

std::string_view without_spaces(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

std::optional<uint32_t> by_uuid(const DeviceModel& model, const std::vector<uint32_t>& gpus,
                                std::string_view prefix) {
  std::optional<uint32_t> match;
  for (uint32_t gpu : gpus) {
    if (!std::string_view(model.identity(gpu).uuid_text.data()).starts_with(prefix)) continue;
    if (match.has_value()) return std::nullopt;
    match = gpu;
  }
  return match;
}

std::optional<uint32_t> by_entry(const DeviceModel& model, const std::vector<uint32_t>& gpus,
                                 std::string_view entry) {
  if (entry.starts_with("GPU-")) return by_uuid(model, gpus, entry);
  uint32_t index = 0;
  const auto parsed = std::from_chars(entry.data(), entry.data() + entry.size(), index);
  if (parsed.ec != std::errc() || parsed.ptr != entry.data() + entry.size()) return std::nullopt;
  return index < gpus.size() ? std::optional(gpus[index]) : std::nullopt;
}

}  // namespace

std::vector<uint32_t> order_devices(const DeviceModel& model, std::vector<uint32_t> gpus,
                                    std::string_view order) {
  if (order == "PCI_BUS_ID" || gpus.empty()) return gpus;
  const auto slower = [&](uint32_t a, uint32_t b) { return speed(model.board(a)) < speed(model.board(b)); };
  const auto fastest = std::max_element(gpus.begin(), gpus.end(), slower);
  std::rotate(gpus.begin(), fastest, fastest + 1);
  return gpus;
}

std::vector<uint32_t> select_devices(const DeviceModel& model, const std::vector<uint32_t>& gpus,
                                     std::string_view visible) {
  std::vector<uint32_t> selected;
  while (!visible.empty()) {
    const size_t comma = visible.find(',');
    const std::optional<uint32_t> gpu = by_entry(model, gpus, without_spaces(visible.substr(0, comma)));
    if (!gpu.has_value()) break;
    if (std::find(selected.begin(), selected.end(), *gpu) != selected.end()) return {};
    selected.push_back(*gpu);
    if (comma == std::string_view::npos) break;
    visible.remove_prefix(comma + 1);
  }
  return selected;
}

}  // namespace tranche::emulator::cuda
