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

std::string row_text(const JournalRow& row, bool json) {
  if (!json) return event_text(row);
  return encode_row(row.event, row.decisions, TimeSpelling::rfc3339) + "\n";
}

// Prints all rows behind `since`, page by page; returns the last one's seq.
Result<uint64_t> print_pages(Session& session, Daemon& daemon, uint64_t since, bool json) {
  while (true) {
    TRY_ASSIGN(const std::string page, daemon.get("/v1/events?since=" + std::to_string(since)));
    TRY_ASSIGN(const std::vector<JournalRow> rows, decode_event_page(page));
    const uint64_t before = since;
    for (const JournalRow& row : rows) {
      if (row.event.seq.value() <= since) continue;
      session.print(row_text(row, json));
      since = row.event.seq.value();
    }
    if (since == before) return since;
  }
}

Result<int> follow(Session& session, Daemon& daemon, uint64_t since, bool json) {
  session.flush();
  Error broken(ErrorCode::internal, "");
  const auto received = [&](const ServerSentEvent& event) {
    const Result<JournalRow> row = decode_row(event.data);
    if (!row) {
      broken = row.error().clone();
      return false;
    }
    session.print(row_text(*row, json));
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
  const bool json = arguments.has("json");
  Daemon daemon(session);
  TRY_ASSIGN(since, print_pages(session, daemon, since, json));
  return arguments.has("follow") ? follow(session, daemon, since, json) : 0;
}

}  // namespace tranche::cli
