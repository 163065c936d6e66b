// The log: events with named values, no floating text.
//
//   log(LogLevel::warning, "connection_refused", {{"uid", uid}, {"limit", limit}});
//
// To the journal when it is what stderr goes to (fields TRANCHE_EVENT, TRANCHE_<KEY>), else one logfmt line
// on stderr: `time=... level=warning event=connection_refused uid=1000 limit=64`. Control characters are
// escaped, so what a user sent can neither forge a line nor drive a terminal; values are cut at 4 KiB. From
// any thread. Only composition roots and adapters log; everything else returns an Error.
#pragma once

#include <concepts>
#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>

#include "base/error.h"

namespace tranche {

enum class LogLevel { debug, info, notice, warning, error, critical };
std::string_view to_string(LogLevel level);

struct LogField {
  LogField(std::string_view name, std::string_view text) : key(name), value(text) {}
  LogField(std::string_view name, const char* text) : key(name), value(text) {}
  LogField(std::string_view name, const std::string& text) : key(name), value(text) {}
  LogField(std::string_view name, bool flag) : key(name), value(flag ? "true" : "false") {}
  LogField(std::string_view name, const Error& error) : key(name), value(error.message()) {}
  template <std::integral Integer>
  LogField(std::string_view name, Integer number) : key(name), value(std::to_string(number)) {}

  std::string_view key;
  std::string value;
};

void log(LogLevel level, std::string_view event, std::initializer_list<LogField> fields = {});

// What is below `level` is not logged; at first `info`. From any thread.
void set_log_level(LogLevel level);

// Sends lines (without time) to `sink` instead, for tests; an empty one restores the default. Before threads
// start.
void set_log_sink(std::function<void(LogLevel, std::string_view line)> sink);

// Appends `key=value` in logfmt, after a space if the line has a beginning: quoted where needed, control
// characters and invalid UTF-8 escaped.
void append_logfmt(std::string& line, std::string_view key, std::string_view value);

}  // namespace tranche
