#include "linux/log.h"

#include <sys/stat.h>
#include <sys/uio.h>
#include <systemd/sd-journal.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <vector>

#include "base/json_writer.h"
#include "base/quantity_text.h"

namespace tranche {
namespace {

constexpr size_t kValueMax = 4096;

std::atomic<LogLevel> minimum_level{LogLevel::info};
std::function<void(LogLevel, std::string_view)> sink_for_tests;

// Priorities of syslog(3).
int priority_of(LogLevel level) {
  switch (level) {
    case LogLevel::debug:
      return 7;
    case LogLevel::info:
      return 6;
    case LogLevel::notice:
      return 5;
    case LogLevel::warning:
      return 4;
    case LogLevel::error:
      return 3;
    case LogLevel::critical:
      return 2;
  }
  return 6;
}

// Whether stderr is the journal itself: JOURNAL_STREAM names its device and inode (systemd.exec(5)).
bool stderr_is_journal() {
  static const bool answer = [] {
    const char* stream = std::getenv("JOURNAL_STREAM");
    struct stat status = {};
    if (stream == nullptr || ::fstat(STDERR_FILENO, &status) != 0) return false;
    return std::to_string(status.st_dev) + ":" + std::to_string(status.st_ino) == stream;
  }();
  return answer;
}

std::string journal_name(std::string_view key) {
  std::string name = "TRANCHE_";
  for (const char c : key) {
    const bool is_letter = (c >= 'a' && c <= 'z');
    const bool is_allowed = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z');
    name += is_letter ? static_cast<char>(c - 'a' + 'A') : is_allowed ? c : '_';
  }
  return name;
}

bool send_to_journal(LogLevel level, std::string_view event, const std::string& line,
                     std::initializer_list<LogField> fields) {
  std::vector<std::string> entries;
  entries.push_back("MESSAGE=" + line);
  entries.push_back("PRIORITY=" + std::to_string(priority_of(level)));
  entries.push_back("SYSLOG_IDENTIFIER=tranche");
  entries.push_back(journal_name("event") + "=" + std::string(event));
  for (const LogField& field : fields) {
    entries.push_back(journal_name(field.key) + "=" + field.value.substr(0, kValueMax));
  }
  std::vector<iovec> parts;
  for (std::string& entry : entries) parts.push_back({entry.data(), entry.size()});
  return ::sd_journal_sendv(parts.data(), static_cast<int>(parts.size())) >= 0;
}

void write_to_stderr(LogLevel level, const std::string& line) {
  std::string text;
  if (stderr_is_journal()) {
    text = "<" + std::to_string(priority_of(level)) + ">" + line;
  } else {
    timespec now = {};
    ::clock_gettime(CLOCK_REALTIME, &now);
    text = "time=" + format_time(Time(now.tv_sec * kSecond.count() + now.tv_nsec)) + " level=";
    text += to_string(level);
    text += " " + line;
  }
  text += '\n';
  // One write, so that lines of several threads and processes do not mix. There is nobody to tell of a
  // failure.
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
}

bool needs_quotes(std::string_view value) {
  if (value.empty()) return true;
  for (const char c : value) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte <= 0x20 || byte >= 0x7f || c == '"' || c == '=' || c == '\\') return true;
  }
  return false;
}

}  // namespace

std::string_view to_string(LogLevel level) {
  switch (level) {
    case LogLevel::debug:
      return "debug";
    case LogLevel::info:
      return "info";
    case LogLevel::notice:
      return "notice";
    case LogLevel::warning:
      return "warning";
    case LogLevel::error:
      return "error";
    case LogLevel::critical:
      return "critical";
  }
  return "info";
}

void append_logfmt(std::string& line, std::string_view key, std::string_view value) {
  if (!line.empty()) line += ' ';
  line += key;
  line += '=';
  const bool is_cut = value.size() > kValueMax;
  std::string shortened;
  if (is_cut) {
    shortened = std::string(value.substr(0, kValueMax)) + "...";
    value = shortened;
  }
  if (needs_quotes(value)) {
    append_json_string(line, value);
  } else {
    line += value;
  }
}

void log(LogLevel level, std::string_view event, std::initializer_list<LogField> fields) {
  if (level < minimum_level.load(std::memory_order_relaxed)) return;
  std::string line;
  append_logfmt(line, "event", event);
  for (const LogField& field : fields) append_logfmt(line, field.key, field.value);
  if (sink_for_tests) {
    sink_for_tests(level, line);
    return;
  }
  if (stderr_is_journal() && send_to_journal(level, event, line, fields)) return;
  write_to_stderr(level, line);
}

void set_log_level(LogLevel level) { minimum_level.store(level, std::memory_order_relaxed); }

void set_log_sink(std::function<void(LogLevel, std::string_view line)> sink) {
  sink_for_tests = std::move(sink);
}

}  // namespace tranche
