// tranche-replay [--policy FILE] [--json] JOURNAL: replays a journal on virtual time for `tranche replay`.
//
// JOURNAL is the daemon's own file (journal.db, read only), its folder, or rows as `tranche events --json`
// prints them, plain or gzip. Three histories are measured alike: what was recorded, what the simulation
// makes of it under the policy that was recorded (its own error, so to say), and what it makes of it under
// FILE.
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "base/quantity_text.h"
#include "cli/job_text.h"
#include "cli/session.h"
#include "cli/table.h"
#include "cli/text.h"
#include "codec/config.h"
#include "linux/database.h"
#include "replay/recorded_history.h"
#include "replay/replay_report.h"
#include "replay/trace_file.h"

namespace tranche::cli {
namespace {

constexpr std::string_view kUsage = "write: tranche replay [--policy FILE] [--json] JOURNAL";
constexpr std::string_view kDatabaseMagic = "SQLite format 3";
constexpr size_t kUsersShown = 20;

struct Request {
  std::string journal;
  std::string policy;
  bool json = false;
};

Result<Request> parse(int count, char** words) {
  Request request;
  for (int i = 1; i < count; ++i) {
    const std::string_view word = words[i];
    if (word == "--json")
      request.json = true;
    else if (word == "--policy" && i + 1 < count)
      request.policy = words[++i];
    else if (request.journal.empty())
      request.journal = word;
    else
      return fail(ErrorCode::invalid_argument, std::string(kUsage));
  }
  if (request.journal.empty()) return fail(ErrorCode::invalid_argument, std::string(kUsage));
  return request;
}

Result<replay::RecordedHistory> read_database(const std::string& path) {
  Database::Options options;
  options.read_only = true;
  TRY_ASSIGN(Database database, Database::open(path, {}, options));
  TRY_ASSIGN(Statement rows,
             database.prepare("SELECT seq, time, kind, version, event, decisions FROM event ORDER BY seq"));
  replay::HistoryReader reader;
  while (true) {
    TRY_ASSIGN(const bool there, rows.step());
    if (!there) return reader.finish();
    StoredRow stored;
    stored.seq = static_cast<uint64_t>(rows.column_int64(0));
    stored.time = rows.column_int64(1);
    stored.kind = rows.column_text(2);
    stored.version = static_cast<uint32_t>(rows.column_int64(3));
    stored.event = rows.column_text(4);
    stored.decisions = rows.column_text(5);
    const auto row = decode_stored_row(stored);
    if (!row)
      return fail(row.error().code(),
                  path + ", row " + std::to_string(stored.seq) + ": " + row.error().message());
    TRY(reader.take(*row));
  }
}

bool is_database(const std::string& path) {
  std::string begin(kDatabaseMagic.size(), '\0');
  std::ifstream file(path, std::ios::binary);
  file.read(begin.data(), static_cast<std::streamsize>(begin.size()));
  return begin == kDatabaseMagic;
}

Result<replay::RecordedHistory> read_history(std::string path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) path += "/journal.db";
  if (is_database(path)) return read_database(path);
  TRY_ASSIGN(const std::string text, replay::read_trace_text(path));
  return replay::read_history_lines(text);
}

std::string duration_text(int64_t microseconds) {
  return microseconds < 1000 ? "0s" : format_duration(Duration(microseconds / 1000 * kMillisecond.count()));
}

using Reports = std::vector<replay::ReplayReport>;

std::string totals_table(const Look& look, const Reports& reports) {
  std::vector<Table::Column> columns = {{"", false}};
  for (const replay::ReplayReport& report : reports) columns.push_back({printable(report.name), true});
  Table table(std::move(columns));
  const auto row = [&](std::string title, auto text) {
    std::vector<Table::Cell> cells = {{std::move(title)}};
    for (const replay::ReplayReport& report : reports) cells.push_back({text(report)});
    table.add(std::move(cells));
  };
  row("jobs", [](const auto& r) { return std::to_string(r.all.jobs); });
  row("started", [](const auto& r) { return std::to_string(r.all.started); });
  row("mean wait", [](const auto& r) { return duration_text(r.all.wait_mean_us); });
  row("median wait", [](const auto& r) { return duration_text(r.all.wait_median_us); });
  row("90 of 100 waited at most", [](const auto& r) { return duration_text(r.all.wait_p90_us); });
  row("99 of 100 waited at most", [](const auto& r) { return duration_text(r.all.wait_p99_us); });
  row("longest wait", [](const auto& r) { return duration_text(r.all.wait_max_us); });
  row("GPUs held", [](const auto& r) { return format_thousandths(r.held_permille * 100) + " %"; });
  row("GPU hours", [](const auto& r) { return format_thousandths(r.all.gpu_milli_hours); });
  row("preemptions", [](const auto& r) { return std::to_string(r.all.preemptions); });
  row("until the last one ended", [](const auto& r) { return duration_text(r.span_us); });
  row("refused at the door", [](const auto& r) { return std::to_string(r.refused); });
  return table.render(look);
}

std::string users_table(const Look& look, const Reports& reports) {
  std::vector<Table::Column> columns = {{"user", false}, {"jobs", true}};
  for (const replay::ReplayReport& report : reports)
    columns.push_back({"mean wait, " + printable(report.name), true});
  Table table(std::move(columns));
  size_t shown = 0;
  for (const auto& [user, summary] : reports.front().by_user) {
    if (++shown > kUsersShown) break;
    std::vector<Table::Cell> cells = {{printable(user)}, {std::to_string(summary.jobs)}};
    for (const replay::ReplayReport& report : reports) {
      const auto found = report.by_user.find(user);
      cells.push_back({found == report.by_user.end() ? "-" : duration_text(found->second.wait_mean_us)});
    }
    table.add(std::move(cells));
  }
  std::string text = table.render(look);
  if (reports.front().by_user.size() > kUsersShown)
    text += std::to_string(reports.front().by_user.size() - kUsersShown) + " more users: see --json\n";
  return text;
}

std::string caveats(const replay::RecordedHistory& history) {
  std::string text;
  const auto say = [&](uint64_t count, std::string_view what) {
    if (count > 0) text += std::to_string(count) + std::string(what) + "\n";
  };
  say(history.cancelled_running,
      " jobs were cancelled while they ran: taken to end by themselves after that work");
  say(history.unfinished, " jobs still ran when the record ends: taken to work just until then");
  say(history.unknown_work, " jobs never ran, or never to an end: taken to need their time limit");
  return text;
}

Result<int> run(Session& session, const Request& request) {
  TRY_ASSIGN(const replay::RecordedHistory history, read_history(request.journal));
  Reports reports = {replay::report_of("recorded", history.stories, history.totals)};
  const replay::SimulationResult same = replay::replay_history(history, nullptr, {});
  reports.push_back(replay::report_of("same policy", same.stories, same.totals));
  reports.back().refused = same.refused;
  std::vector<std::string> refusals;
  if (!request.policy.empty()) {
    TRY_ASSIGN(const DaemonConfig config, load_config(request.policy));
    const replay::SimulationResult other = replay::replay_history(history, &config.policy, {});
    reports.push_back(replay::report_of(request.policy, other.stories, other.totals));
    reports.back().refused = other.refused;
    refusals = other.refusals;
  }
  if (request.json) {
    session.print_json(replay::encode_reports(reports));
    return 0;
  }
  session.print(totals_table(session.look(), reports));
  session.print("\n" + users_table(session.look(), reports));
  const std::string notes = caveats(history);
  if (!notes.empty()) session.print("\n" + notes);
  for (const std::string& refusal : refusals) session.print("refused: " + printable(refusal) + "\n");
  return 0;
}

}  // namespace
}  // namespace tranche::cli

int main(int count, char** words) {
  using namespace tranche::cli;
  Session session(Session::current());
  auto request = parse(count, words);
  auto code =
      request ? run(session, *request) : tranche::Result<int>(tranche::fail(std::move(request).error()));
  if (code) return *code;
  session.warn(printable(code.error().message()));
  return exit_code(code.error().code());
}
