#include "cli/session.h"

#include <pwd.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <memory>

#include "base/quantity_text.h"
#include "cli/text.h"
#include "linux/files.h"

extern char** environ;  // POSIX: declared by no header without GNU extensions

namespace tranche::cli {
namespace {

constexpr size_t kFlushBytes = size_t{64} << 10;

std::string user_name(uid_t uid) {
  std::vector<char> buffer(4096);
  passwd entry{};
  passwd* found = nullptr;
  if (getpwuid_r(uid, &entry, buffer.data(), buffer.size(), &found) == 0 && found != nullptr)
    return found->pw_name;
  return std::to_string(uid);
}

std::string working_directory() {
  const std::unique_ptr<char, decltype(&free)> path(getcwd(nullptr, 0), &free);
  return path ? std::string(path.get()) : std::string();
}

size_t terminal_width() {
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return 80;
}

// Whoever exports COLUMNS to something that is no terminal, such as a pager, says how wide it is; 0: nobody
// did.
size_t told_width() {
  const char* columns = getenv("COLUMNS");
  const auto width = parse_integer(columns == nullptr ? "" : columns, 1, 10'000, "COLUMNS");
  return width ? static_cast<size_t>(*width) : 0;
}

bool variable_is_set(const char* name) {
  const char* value = getenv(name);
  return value != nullptr && *value != '\0';
}

Time wall_time() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return Time(int64_t{now.tv_sec} * kSecond.count() + now.tv_nsec);
}

}  // namespace

Session::Session(Setup setup) : setup_(std::move(setup)) {
  socket_path = variable("TRANCHE_HOST");
  if (socket_path.empty()) socket_path = variable("TRANCHE_SOCKET");
}

Session::~Session() { flush(); }

Session::Setup Session::current() {
  Setup setup;
  for (char** variable = environ; *variable != nullptr; ++variable) setup.environment.emplace_back(*variable);
  setup.directory = working_directory();
  setup.uid = geteuid();
  setup.now = wall_time();
  setup.error_is_terminal = isatty(STDERR_FILENO) == 1;
  if (isatty(STDOUT_FILENO) == 1) {
    const char* term = getenv("TERM");
    const bool dumb = term == nullptr || std::string_view(term) == "dumb";
    setup.look = {.colour = !dumb && !variable_is_set("NO_COLOR"), .width = terminal_width()};
  } else {
    setup.look.width = told_width();
  }
  return setup;
}

void Session::print(std::string_view text) {
  pending_ += text;
  if (pending_.size() >= kFlushBytes) flush();
}

void Session::print_json(std::string_view document) {
  while (document.ends_with('\n')) document.remove_suffix(1);
  print(safe_json(document));
  print("\n");
}

void Session::flush() {
  if (pending_.empty()) return;
  // A reader that went away (`tranche ls | head`) ends the program by SIGPIPE; a full disk is told at the
  // end.
  if (!output_lost_) {
    if (auto written = write_all(setup_.output, pending_); !written)
      output_lost_ = std::move(written).error();
  }
  pending_.clear();
}

void Session::warn(std::string_view sentence) {
  flush();
  (void)write_all(setup_.error, "tranche: " + std::string(sentence) + "\n");
}

void Session::note(std::string_view text) {
  if (quiet) return;
  flush();
  (void)write_all(setup_.error, text);
}

std::string Session::user() const { return setup_.user.empty() ? user_name(setup_.uid) : setup_.user; }

std::string Session::variable(std::string_view name) const {
  for (const std::string& entry : setup_.environment) {
    if (entry.size() > name.size() && entry[name.size()] == '=' && entry.starts_with(name)) {
      return entry.substr(name.size() + 1);
    }
  }
  return {};
}

}  // namespace tranche::cli
