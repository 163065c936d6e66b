#include "gpu/process_owner.h"

#include <charconv>
#include <string_view>

#include "linux/files.h"

namespace tranche {
namespace {

constexpr size_t kProcFileMax = 16'384;
constexpr int kStartTimeField = 22;  // proc(5), counted from 1

template <class Integer>
std::optional<Integer> number_at(std::string_view text) {
  Integer value = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  return parsed.ec == std::errc() ? std::optional(value) : std::nullopt;
}

std::optional<uint64_t> start_ticks(const std::string& directory) {
  const auto content = read_file(directory + "/stat", kProcFileMax);
  if (!content) return std::nullopt;
  // The name (field 2) may hold anything, so fields are counted from its last parenthesis.
  std::string_view rest = *content;
  const size_t name_end = rest.rfind(')');
  if (name_end == std::string_view::npos) return std::nullopt;
  rest.remove_prefix(name_end);
  for (int field = 2; field < kStartTimeField; ++field) {
    const size_t space = rest.find(' ');
    if (space == std::string_view::npos) return std::nullopt;
    rest.remove_prefix(space + 1);
  }
  return number_at<uint64_t>(rest);
}

std::optional<uid_t> real_uid(const std::string& directory) {
  constexpr std::string_view kLabel = "\nUid:\t";
  const auto content = read_file(directory + "/status", kProcFileMax);
  if (!content) return std::nullopt;
  // The first line holds the process's own name, in which newlines are escaped.
  const size_t label = content->find(kLabel);
  if (label == std::string::npos) return std::nullopt;
  return number_at<uid_t>(std::string_view(*content).substr(label + kLabel.size()));
}

}  // namespace

ProcessOwner read_process_owner(const std::string& proc_root, pid_t pid) {
  const std::string directory = proc_root + "/" + std::to_string(pid);
  ProcessOwner owner;
  owner.start_ticks = start_ticks(directory);
  owner.uid = real_uid(directory);
  if (start_ticks(directory) != owner.start_ticks) return {};  // the number has come to mean another process
  return owner;
}

}  // namespace tranche
