#include "isolation/process_tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <cctype>
#include <charconv>
#include <cstdlib>

#include "isolation/file.h"

namespace tranche::isolation {
namespace {

// "4711 (a name) S 1 4711 4711 ...": the name may hold anything, so what follows its last parenthesis counts.
bool parse_stat(std::string_view text, TreeProcess& process) {
  constexpr int kParentField = 1;
  constexpr int kStartField = 19;
  const size_t close = text.rfind(')');
  if (close == std::string_view::npos || close + 2 >= text.size()) return false;
  text.remove_prefix(close + 2);
  process.state = text.front();
  for (int field = 0; field <= kStartField; ++field) {
    const size_t end = std::min(text.find(' '), text.size());
    if (field == kParentField) std::from_chars(text.data(), text.data() + end, process.parent);
    if (field == kStartField) {
      return std::from_chars(text.data(), text.data() + end, process.start_ticks).ec == std::errc();
    }
    if (end == text.size()) return false;
    text.remove_prefix(end + 1);
  }
  return false;
}

}  // namespace

ProcessTree ProcessTree::read() {
  ProcessTree tree;
  DIR* folder = ::opendir("/proc");
  if (folder == nullptr) return tree;
  while (const dirent* entry = ::readdir(folder)) {
    if (std::isdigit(static_cast<unsigned char>(entry->d_name[0])) == 0) continue;
    const auto text = read_text_at(::dirfd(folder), (std::string(entry->d_name) + "/stat").c_str());
    TreeProcess process;
    if (text && parse_stat(*text, process)) tree.processes_.emplace(std::atoi(entry->d_name), process);
  }
  ::closedir(folder);
  return tree;
}

std::optional<TreeProcess> ProcessTree::look(int pid) {
  const auto text = read_text_at(AT_FDCWD, ("/proc/" + std::to_string(pid) + "/stat").c_str());
  TreeProcess process;
  if (!text || !parse_stat(*text, process)) return std::nullopt;
  return process;
}

std::string started_with(int pid, std::string_view name) {
  const auto text = read_text_at(AT_FDCWD, ("/proc/" + std::to_string(pid) + "/environ").c_str());
  if (!text) return {};
  std::string_view rest = *text;
  while (!rest.empty()) {
    const std::string_view variable = rest.substr(0, rest.find('\0'));
    rest.remove_prefix(std::min(rest.size(), variable.size() + 1));
    if (variable.size() > name.size() && variable.starts_with(name) && variable[name.size()] == '=') {
      return std::string(variable.substr(name.size() + 1));
    }
  }
  return {};
}

// SigCgt of /proc/PID/status has bit n - 1 set for each signal n with a handler.
bool catches_signal(int pid, int signal) {
  const auto status = read_text_at(AT_FDCWD, ("/proc/" + std::to_string(pid) + "/status").c_str());
  constexpr std::string_view kField = "\nSigCgt:\t";
  const size_t at = status ? status->find(kField) : std::string::npos;
  if (at == std::string::npos) return false;
  uint64_t mask = 0;
  const char* const begin = status->data() + at + kField.size();
  std::from_chars(begin, status->data() + status->size(), mask, 16);
  return (mask >> (signal - 1) & 1) != 0;
}

}  // namespace tranche::isolation
