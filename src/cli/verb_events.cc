// tranche events: the journal, readable or as it is.
#include "base/quantity_text.h"
#include "cli/arguments.h"
#include "cli/daemon.h"
#include "cli/event_text.h"
#include "cli/option_error.h"
#include "cli/session.h"
#include "cli/verbs.h"
#include "codec/event_json.h"

namespace tranche::cli {
namespace {

class RowPrinter {
 public:
  RowPrinter(Session& session, bool json) : session_(session), json_(json) {}

  void print(const JournalRow& row) {
    session_.print(json_ ? encode_row(row.event, row.decisions, TimeSpelling::rfc3339) + "\n"
                         : event_text(row, gpus_));
  }

 private:
  Session& session_;
  bool json_;
  GpuNames gpus_;
};

// Prints all rows behind `since`, page by page; returns the last one's seq.
Result<uint64_t> print_pages(RowPrinter& printer, Daemon& daemon, uint64_t since) {
  while (true) {
    TRY_ASSIGN(const std::string page, daemon.get("/v1/events?since=" + std::to_string(since)));
    TRY_ASSIGN(const std::vector<JournalRow> rows, decode_event_page(page));
    const uint64_t before = since;
    for (const JournalRow& row : rows) {
      if (row.event.seq.value() <= since) continue;
      printer.print(row);
      since = row.event.seq.value();
    }
    if (since == before) return since;
  }
}

Result<int> follow(Session& session, RowPrinter& printer, Daemon& daemon, uint64_t since) {
  session.flush();
  Error broken(ErrorCode::internal, "");
  const auto received = [&](const ServerSentEvent& event) {
    const Result<JournalRow> row = decode_row(event.data);
    if (!row) {
      broken = row.error().clone();
      return false;
    }
    printer.print(*row);
    session.flush();
    return true;
  };
  const std::string target = "/v1/events?follow=true&since=" + std::to_string(since);
  TRY_ASSIGN(const HttpReply reply,
             daemon.http().stream(target, {{"Accept", "text/event-stream"}}, received));
  if (reply.status != 200) return fail(Daemon::error_of(reply));
  if (!broken.message().empty())
    return fail(std::move(broken).with_context("cannot read the daemon's event"));
  return fail(ErrorCode::unavailable, "the daemon has ended the stream; run it again to go on");
}

}  // namespace

Result<int> run_events(Session& session, const Arguments& arguments) {
  uint64_t since = 0;
  if (const std::string* value = arguments.find("since")) {
    TRY_OPTION(const int64_t seq, "--since", parse_integer(*value, 0, INT64_MAX, "the number of an event"));
    since = static_cast<uint64_t>(seq);
  }
  RowPrinter printer(session, arguments.has("json"));
  Daemon daemon(session);
  TRY_ASSIGN(since, print_pages(printer, daemon, since));
  return arguments.has("follow") ? follow(session, printer, daemon, since) : 0;
}

}  // namespace tranche::cli
