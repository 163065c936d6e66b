#include "base/quantity_text.h"
#include "codec/event_json.h"
#include "machine/api_server.h"

namespace tranche::machine {

// One client of GET /v1/events?follow=true: first what the journal has, then every row as it becomes durable.
struct EventFollower {
  EventStream stream;
  EventSeq sent;            // newest row sent
  uint64_t token = 0;       // of the caller
  bool catching_up = true;  // rows of the journal are still being read
  bool closed = false;
};

namespace {

constexpr size_t kRowsAtATime = 1000;

void send_row(EventFollower& follower, const JournalRow& row) {
  follower.stream.send(row.event.seq.value(), "event",
                       encode_row(row.event, row.decisions, TimeSpelling::rfc3339));
  follower.sent = row.event.seq;
}

Result<EventSeq> since_of(const HttpRequest& request) {
  const std::string* text = request.header("Last-Event-ID");
  if (text == nullptr) text = request.query_value("since");
  if (text == nullptr) return EventSeq();
  TRY_ASSIGN(const int64_t seq, parse_integer(*text, 0, INT64_MAX / 2, "event number"));
  return EventSeq(static_cast<uint64_t>(seq));
}

bool wants_stream(const HttpRequest& request) {
  const std::string* follow = request.query_value("follow");
  if (follow != nullptr) return *follow == "true";
  const std::string* accept = request.header("Accept");
  return accept != nullptr && accept->find("text/event-stream") != std::string::npos;
}

}  // namespace

void ApiServer::events(Call& call) {
  const auto since = since_of(call.request);
  if (!since) return call.responder.respond(since.error());
  const auto limit = page_limit(call.request);
  if (!limit) return call.responder.respond(limit.error());
  if (!wants_stream(call.request)) {
    auto responder = std::make_shared<Responder>(std::move(call.responder));
    parts_.engine.journal().read_rows(*since, *limit, [responder](Result<std::vector<JournalRow>> rows) {
      if (!rows) return responder->respond(rows.error());
      responder->respond(json_response(200, encode_event_page(*rows)));
    });
    return;
  }
  auto stream = call.responder.stream();
  if (!stream) return;
  auto follower = std::make_shared<EventFollower>();
  follower->stream = std::move(*stream);
  follower->sent = *since;
  follower->token = call.caller.token;
  follower->stream.on_close([this, weak = std::weak_ptr(follower)] {
    if (const auto gone = weak.lock()) {
      gone->closed = true;
      std::erase(followers_, gone);
    }
  });
  followers_.push_back(follower);
  send_backlog(follower);
}

void ApiServer::send_backlog(std::shared_ptr<EventFollower> follower) {
  parts_.engine.journal().read_rows(follower->sent, kRowsAtATime,
                                    [this, follower](Result<std::vector<JournalRow>> rows) {
                                      if (follower->closed || !rows) return;
                                      if (!still_holds(follower->token))
                                        return void(std::erase(followers_, follower));
                                      for (const JournalRow& row : *rows) send_row(*follower, row);
                                      // Rows that became durable meanwhile are read too: the journal's own
                                      // thread orders both.
                                      if (rows->empty()) {
                                        follower->catching_up = false;
                                      } else {
                                        send_backlog(follower);
                                      }
                                    });
}

void ApiServer::on_step(const JournalRow&) {}

void ApiServer::on_durable(const JournalRow& row) {
  for (const Decision& decision : row.decisions) {
    if (const auto* ended = std::get_if<End>(&decision)) answer_waiters(ended->job);
  }
  std::erase_if(followers_, [this](const auto& follower) { return !still_holds(follower->token); });
  for (const auto& follower : followers_) {
    if (!follower->catching_up && row.event.seq > follower->sent) send_row(*follower, row);
  }
}

}  // namespace tranche::machine
