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
    session.print(styled(session.look(), check_style(check.status), status) + std::string(padding, ' ') +
                  printable(check.name) + ": " + printable(check.detail) + "\n");
    if (!check.help.empty()) session.print("      " + printable(check.help) + "\n");
  }
  return failed ? 1 : 0;
}

}  // namespace tranche::cli
