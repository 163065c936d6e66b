// tranche doctor: what is in order on this server and what to do about the rest.
#include "cli/arguments.h"
#include "cli/daemon.h"
#include "cli/session.h"
#include "cli/table.h"
#include "cli/text.h"
#include "cli/verbs.h"

namespace tranche::cli {
namespace {

Style check_style(api::CheckStatus status) {
  switch (status) {
    case api::CheckStatus::ok:
      return Style::kGreen;
    case api::CheckStatus::warn:
      return Style::kYellow;
    case api::CheckStatus::fail:
      return Style::kRed;
  }
  return Style::kPlain;
}

// Words in lines of `width` cells, those after the first with `indent` blanks before them.
std::string wrapped(std::string_view text, size_t width, size_t indent) {
  if (width == 0) return std::string(text);
  std::string lines;
  size_t used = indent;
  while (!text.empty()) {
    const size_t end = text.find(' ');
    const std::string_view word = text.substr(0, end);
    const size_t cells = display_width(word);
    if (used > indent && used + 1 + cells > width) {
      lines += "\n" + std::string(indent, ' ');
      used = indent;
    } else if (used > indent) {
      lines += ' ';
      ++used;
    }
    lines += word;
    used += cells;
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return lines;
}

}  // namespace

Result<int> run_doctor(Session& session, const Arguments& arguments) {
  Daemon daemon(session);
  TRY_ASSIGN(const std::string json, daemon.get("/v1/doctor"));
  TRY_ASSIGN(const api::DoctorReport report, Daemon::decoded<api::DoctorReport>(json));
  bool failed = false;
  for (const api::DoctorCheck& check : report.checks)
    failed = failed || check.status == api::CheckStatus::fail;
  if (arguments.has("json")) {
    session.print_json(json);
    return failed ? 1 : 0;
  }
  for (const api::DoctorCheck& check : report.checks) {
    constexpr size_t kStatusWidth = 6;
    std::string status(to_string(check.status));
    const size_t padding = kStatusWidth - std::min(kStatusWidth, status.size());
    session.print(
        styled(session.look(), check_style(check.status), status) + std::string(padding, ' ') +
        wrapped(printable(check.name) + ": " + printable(check.detail), session.look().width, kStatusWidth) +
        "\n");
    if (check.help.empty()) continue;
    session.print(std::string(kStatusWidth, ' ') +
                  wrapped(printable(check.help), session.look().width, kStatusWidth) + "\n");
  }
  return failed ? 1 : 0;
}

}  // namespace tranche::cli
