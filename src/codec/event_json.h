// Events and decisions as versioned JSON: what stands in the journal, what `/v1/events` sends and what a
// trace file holds, one and the same. The schema with an example of every kind is docs/journal.md.
//
//   {"seq":5,"time":1789000000000000000,"kind":"job_held","version":1,"event":{"job":7,"by":"ada"},"decisions":[]}
//
// A field that is left out is empty, zero or false; it never means a default of the code that reads it, so an
// old row keeps its meaning when a default changes. Times are integer nanoseconds in the journal and RFC 3339
// in the API (integers of that size do not survive JavaScript and jq); decoding takes both.
//
// Threading: pure functions. Errors: corrupt, with the path of the field ("event.spec.task.gpu.count") and
// what was wrong; a version, kind or field that only a newer Tranche knows is named as such.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/decision.h"
#include "model/event.h"

namespace tranche {

// The version of the schema that is written. Readers accept every older one through upgrade_row().
inline constexpr uint32_t kEventSchemaVersion = 1;

enum class TimeSpelling : unsigned char { nanoseconds, rfc3339 };

struct JournalRow {
  Event event;
  std::vector<Decision> decisions;
  bool operator==(const JournalRow&) const = default;
};

// --- columns: the journal's table stores seq, time, kind, version, event, decisions ----------------------
// Both append to `output`, so that a writer can keep one buffer.
void append_event(std::string& output, const EventPayload& payload,
                  TimeSpelling spelling = TimeSpelling::nanoseconds);
void append_decisions(std::string& output, std::span<const Decision> decisions,
                      TimeSpelling spelling = TimeSpelling::nanoseconds);

// A row as it is stored, not yet understood.
struct StoredRow {
  uint64_t seq = 0;
  int64_t time = 0;  // nanoseconds since the epoch
  std::string kind;
  uint32_t version = kEventSchemaVersion;
  std::string event;      // JSON object
  std::string decisions;  // JSON array
  bool operator==(const StoredRow&) const = default;
};

StoredRow store_row(const Event& event, std::span<const Decision> decisions);
Result<JournalRow> decode_stored_row(const StoredRow& row);

// Rewrites a row of an older version into kEventSchemaVersion, one version a step; refuses a newer one. Each
// step is a pure function with golden files in testdata/. Version 1 is the first: it changes nothing.
// decode_stored_row() and decode_row() call it.
Result<StoredRow> upgrade_row(StoredRow row);

// --- one row as one JSON object
// -----------------------------------------------------------------------------
void append_row(std::string& output, const Event& event, std::span<const Decision> decisions,
                TimeSpelling spelling = TimeSpelling::nanoseconds);
std::string encode_row(const Event& event, std::span<const Decision> decisions,
                       TimeSpelling spelling = TimeSpelling::nanoseconds);
Result<JournalRow> decode_row(std::string_view json);

// --- a page of rows, the answer of GET /v1/events: {"events":[row...]}, times as RFC 3339 -----------------
std::string encode_event_page(std::span<const JournalRow> rows);
Result<std::vector<JournalRow>> decode_event_page(std::string_view json);

}  // namespace tranche
