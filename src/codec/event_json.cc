#include "codec/event_json.h"

#include <array>
#include <utility>

#include "codec/event_fields.h"
#include "codec/limits.h"
#include "codec/policy_json.h"

namespace tranche {
namespace {

using json::Decoder;
using json::Document;
using json::Encoder;
using json::Value;

constexpr std::string_view kNewerAdvice = ": a newer Tranche may have written it, read it with that one";
constexpr json::Strictness kJournalStrictness{.unknown = json::UnknownFields::refuse,
                                              .times = json::TimeForms::text_or_nanoseconds,
                                              .unknown_advice = kNewerAdvice};

// A table from a kind's name to what reads its payload, made from the model's list, so that a new kind cannot
// be forgotten here.
template <class Variant>
struct KindReader {
  std::string_view name;
  bool (*read)(Decoder&, Value, Variant&, std::string_view kind_name);
};

template <class Variant, class Alternative>
bool read_alternative(Decoder& decoder, Value value, Variant& out, std::string_view kind_name) {
  return decoder.read_object(value, out.template emplace<Alternative>(), kind_name);
}

constexpr KindReader<EventPayload> kEventReaders[] = {
#define TRANCHE_EVENT_READER(Type, name, category) {#name, read_alternative<EventPayload, Type>},
    TRANCHE_EVENT_KINDS(TRANCHE_EVENT_READER)
#undef TRANCHE_EVENT_READER
};

constexpr KindReader<Decision> kDecisionReaders[] = {
#define TRANCHE_DECISION_READER(Type, name) {#name, read_alternative<Decision, Type>},
    TRANCHE_DECISION_KINDS(TRANCHE_DECISION_READER)
#undef TRANCHE_DECISION_READER
};

template <class Variant, size_t kCount>
bool read_kind(Decoder& decoder, std::string_view kind, Value value, Variant& out,
               const KindReader<Variant> (&readers)[kCount], std::string_view kind_name) {
  for (const auto& reader : readers) {
    if (reader.name == kind) return reader.read(decoder, value, out, kind_name);
  }
  return decoder.refuse("the kind " + json::shown(kind) + " is not known" + std::string(kNewerAdvice));
}

void put_decision(Encoder& encoder, const Decision& decision) {
  encoder.begin_object();
  encoder.key("kind");
  encoder.text(decision_kind(decision));
  std::visit([&](const auto& alternative) { encoder.put_fields(alternative); }, decision);
  encoder.end_object();
}

void put_decisions(Encoder& encoder, std::span<const Decision> decisions) {
  encoder.begin_array();
  for (const Decision& decision : decisions) {
    encoder.separate();
    put_decision(encoder, decision);
  }
  encoder.end_array();
}

bool read_decision(Decoder& decoder, Value value, Decision& out) {
  if (value.kind() != json::Kind::object) return decoder.refuse("must be an object, not " + value.describe());
  json::MemberFinder finder(value);
  Value kind = value;
  if (!finder.find("kind", &kind) || kind.kind() != json::Kind::text) {
    return decoder.refuse("the field \"kind\" is missing or not text");
  }
  return read_kind(decoder, kind.text(), value, out, kDecisionReaders, "kind");
}

bool read_decisions(Decoder& decoder, Value value, std::vector<Decision>& out) {
  if (!json::detail::read_list_shape(decoder, value, limits::kDecisionsPerEvent)) return false;
  out.reserve(value.size());
  Value child = value.first();
  for (uint32_t i = 0; i < value.size(); ++i, child = child.next()) {
    if (!read_decision(decoder, child, out.emplace_back())) return decoder.in_element(i);
  }
  return true;
}

std::string newer_version(int64_t version) {
  return "the row has version " + std::to_string(version) + " and this Tranche reads up to version " +
         std::to_string(kEventSchemaVersion) + ": read it with the newer Tranche that wrote it";
}

// What stands before the payload of a row.
struct RowHead {
  uint64_t seq = 0;
  Time time;
  std::string kind;
  uint32_t version = 0;
};

bool read_member(Decoder& decoder, json::MemberFinder& finder, std::string_view name, Value* member) {
  return finder.find(name, member) || decoder.refuse("the field \"" + std::string(name) + "\" is missing");
}

template <class Type, class Rule>
bool read_member_as(Decoder& decoder, json::MemberFinder& finder, Value row, std::string_view name, Type& out,
                    const Rule& rule) {
  Value member = row;
  if (!read_member(decoder, finder, name, &member)) return false;
  return decoder.read(member, out, rule) || decoder.in_member(name);
}

bool read_row(Decoder& decoder, Value value, JournalRow& out) {
  if (value.kind() != json::Kind::object) return decoder.refuse("must be an object, not " + value.describe());
  json::MemberFinder finder(value);
  RowHead head;
  const bool head_read =
      read_member_as(decoder, finder, value, "seq", head.seq, json::kId) &&
      read_member_as(decoder, finder, value, "time", head.time, json::kTime) &&
      read_member_as(decoder, finder, value, "kind", head.kind, json::kName) &&
      read_member_as(decoder, finder, value, "version", head.version, json::Range{1, UINT32_MAX});
  if (!head_read) return false;
  if (head.version > kEventSchemaVersion) return decoder.refuse(newer_version(head.version));
  out.event.seq = EventSeq(head.seq);
  out.event.time = head.time;
  Value event = value;
  Value decisions = value;
  if (!read_member(decoder, finder, "event", &event)) return false;
  if (!read_kind(decoder, head.kind, event, out.event.payload, kEventReaders, ""))
    return decoder.in_member("event");
  if (!read_member(decoder, finder, "decisions", &decisions)) return false;
  if (!read_decisions(decoder, decisions, out.decisions)) return decoder.in_member("decisions");
  constexpr std::array<std::string_view, 6> kNames = {"seq", "time", "kind", "version", "event", "decisions"};
  return finder.found_all() || json::refuse_unknown(decoder, value, kNames);
}

void put_row(Encoder& encoder, const Event& event, std::span<const Decision> decisions) {
  encoder.begin_object();
  encoder.key("seq");
  encoder.integer(event.seq.value());
  encoder.key("time");
  encoder.put(event.time, json::kTime);
  encoder.key("kind");
  encoder.text(event_kind(event.payload));
  encoder.key("version");
  encoder.integer(uint64_t{kEventSchemaVersion});
  encoder.key("event");
  std::visit([&](const auto& alternative) { encoder.put(alternative, json::kPlain); }, event.payload);
  encoder.key("decisions");
  put_decisions(encoder, decisions);
  encoder.end_object();
}

tl::unexpected<Error> corrupt(const Decoder& decoder) { return fail(ErrorCode::corrupt, decoder.message()); }

}  // namespace

void append_event(std::string& output, const EventPayload& payload, TimeSpelling spelling) {
  Encoder encoder(output, spelling);
  std::visit([&](const auto& alternative) { encoder.put(alternative, json::kPlain); }, payload);
}

void append_decisions(std::string& output, std::span<const Decision> decisions, TimeSpelling spelling) {
  Encoder encoder(output, spelling);
  put_decisions(encoder, decisions);
}

void append_row(std::string& output, const Event& event, std::span<const Decision> decisions,
                TimeSpelling spelling) {
  Encoder encoder(output, spelling);
  put_row(encoder, event, decisions);
}

std::string encode_row(const Event& event, std::span<const Decision> decisions, TimeSpelling spelling) {
  std::string output;
  append_row(output, event, decisions, spelling);
  return output;
}

StoredRow store_row(const Event& event, std::span<const Decision> decisions) {
  StoredRow row;
  row.seq = event.seq.value();
  row.time = event.time.nanoseconds();
  row.kind = event_kind(event.payload);
  append_event(row.event, event.payload);
  append_decisions(row.decisions, decisions);
  return row;
}

Result<StoredRow> upgrade_row(StoredRow row) {
  if (row.version > kEventSchemaVersion) return fail(ErrorCode::corrupt, newer_version(row.version));
  if (row.version == 0)
    return fail(ErrorCode::corrupt, "the row has version 0, which never was: it is damaged");
  // The steps from an older version stand here, one `if (row.version == N) row = ...;` each.
  return row;
}

Result<JournalRow> decode_stored_row(const StoredRow& stored) {
  TRY_ASSIGN(const StoredRow row, upgrade_row(stored));
  if (row.seq == 0 || row.seq > static_cast<uint64_t>(limits::kIdMax) || row.time < 0) {
    return fail(ErrorCode::corrupt, "the row's seq or time is out of range: the journal is damaged");
  }
  TRY_ASSIGN(const Document event, Document::parse(row.event, ErrorCode::corrupt));
  TRY_ASSIGN(const Document decisions, Document::parse(row.decisions, ErrorCode::corrupt));
  JournalRow out;
  out.event.seq = EventSeq(row.seq);
  out.event.time = Time(row.time);
  Decoder decoder(kJournalStrictness);
  if (!read_kind(decoder, row.kind, event.root(), out.event.payload, kEventReaders, "")) {
    decoder.in_member("event");
    return corrupt(decoder);
  }
  if (!read_decisions(decoder, decisions.root(), out.decisions)) {
    decoder.in_member("decisions");
    return corrupt(decoder);
  }
  return out;
}

Result<JournalRow> decode_row(std::string_view text) {
  TRY_ASSIGN(const Document document, Document::parse(text, ErrorCode::corrupt));
  Decoder decoder(kJournalStrictness);
  JournalRow row;
  if (!read_row(decoder, document.root(), row)) return corrupt(decoder);
  return row;
}

std::string encode_event_page(std::span<const JournalRow> rows) {
  std::string output;
  Encoder encoder(output, TimeSpelling::rfc3339);
  encoder.begin_object();
  encoder.key("events");
  encoder.begin_array();
  for (const JournalRow& row : rows) {
    encoder.separate();
    put_row(encoder, row.event, row.decisions);
  }
  encoder.end_array();
  encoder.end_object();
  return output;
}

Result<std::vector<JournalRow>> decode_event_page(std::string_view text) {
  TRY_ASSIGN(const Document document, Document::parse(text, ErrorCode::corrupt));
  Decoder decoder(kJournalStrictness);
  const Value root = document.root();
  Value list = root;
  if (root.kind() != json::Kind::object || !json::MemberFinder(root).find("events", &list) ||
      list.kind() != json::Kind::array) {
    return fail(ErrorCode::corrupt, "the answer must be an object with a list \"events\"");
  }
  std::vector<JournalRow> rows;
  rows.reserve(list.size());
  Value child = list.first();
  for (uint32_t i = 0; i < list.size(); ++i, child = child.next()) {
    if (read_row(decoder, child, rows.emplace_back())) continue;
    decoder.in_element(i);
    decoder.in_member("events");
    return corrupt(decoder);
  }
  return rows;
}

std::string encode_policy(const Policy& policy) {
  std::string output;
  Encoder encoder(output, TimeSpelling::nanoseconds);
  encoder.put(policy, json::kPlain);
  return output;
}

Result<Policy> decode_policy(std::string_view text) {
  return json::decode_text<Policy>(text, ErrorCode::corrupt, kJournalStrictness);
}

}  // namespace tranche
