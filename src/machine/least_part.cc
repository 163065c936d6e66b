#include "machine/least_part.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <string_view>

#include "base/quantity_text.h"
#include "linux/files.h"

namespace tranche::machine {
namespace {

constexpr size_t kMaxContexts = 64 * 1024;

MiB rounded_up(uint64_t bytes) { return MiB(static_cast<int64_t>((bytes >> 20) + ((bytes & 0xfffff) != 0))); }

// "UUID BYTES", a line for each GPU; what is not so says nothing.
std::map<std::string, MiB, std::less<>> measured_contexts(const std::string& run_dir) {
  std::map<std::string, MiB, std::less<>> sizes;
  const auto text = read_file(run_dir + "/guard/contexts", kMaxContexts);
  std::string_view rest = text ? std::string_view(*text) : std::string_view();
  while (!rest.empty()) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    const size_t space = line.find(' ');
    uint64_t bytes = 0;
    if (space == std::string_view::npos) continue;
    const std::string_view digits = line.substr(space + 1);
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), bytes);
    if (error == std::errc() && end == digits.data() + digits.size())
      sizes.emplace(line.substr(0, space), rounded_up(bytes));
  }
  return sizes;
}

// What the user wrote without a unit counted as MiB.
std::string meant(const GpuRequest& request, MiB largest) {
  if (request.memory == MiB() || request.memory.count() > largest.count() >> 10) return ": ask for more";
  std::string size = std::to_string(request.memory.count()) + "G";
  if (request.memory_limit != MiB()) size += ".." + std::to_string(request.memory_limit.count()) + "G";
  return ": did you mean --gpu-mem " + size + "?";
}

}  // namespace

std::vector<MiB> context_sizes(const std::string& run_dir, const std::vector<const Gpu*>& gpus) {
  const auto measured = measured_contexts(run_dir);
  std::vector<MiB> sizes;
  for (const Gpu* gpu : gpus) {
    const auto found = measured.find(gpu->uuid);
    sizes.push_back(found == measured.end() ? kLeastContext : found->second);
  }
  return sizes;
}

Result<void> check_least_part(const GpuRequest& request, const std::vector<const Gpu*>& gpus,
                              const std::vector<MiB>& contexts) {
  if (request.kind != SliceKind::fraction || request.count == 0) return {};
  MiB largest, part, context;
  for (size_t i = 0; i < gpus.size(); ++i) {
    if (!accepts_type(request.type, gpus[i]->type)) continue;
    const MiB usable = gpus[i]->memory_usable;
    const MiB here = std::max(
        request.memory_limit,
        request.memory != MiB() ? request.memory : MiB(usable.count() * request.compute.count() / 1000));
    if (here >= contexts[i]) return {};
    largest = std::max(largest, usable);
    if (context == MiB() || contexts[i] < context) context = contexts[i], part = here;
  }
  if (context == MiB()) return {};  // of such GPUs there are none, which is for others to say
  return fail(ErrorCode::invalid_argument,
              "a part of " + format_memory(part) + " of a GPU is less than a context " +
                  (context == kLeastContext ? "takes anywhere (" + format_memory(context) + ")"
                                            : "of about " + format_memory(context) + " takes") +
                  ", so no program could start in it" + meant(request, largest));
}

}  // namespace tranche::machine
