#include "codec/event_json.h"

#include <gtest/gtest.h>

#include <set>
#include <sstream>

#include "codec/policy_json.h"
#include "codec/random_values.h"
#include "codec/test_files.h"

namespace tranche {
namespace {

using json::RandomFiller;

std::string error_of(std::string_view row) {
  const auto decoded = decode_row(row);
  return decoded ? std::string("(decoded)") : decoded.error().message();
}

constexpr uint64_t kSeed = 20261130;

TEST(EventJson, RandomRowsComeBackAsTheyWere) {
  std::set<std::string> kinds;
  for (uint64_t i = 1; i <= 1000; ++i) {
    SCOPED_TRACE("seed " + std::to_string(kSeed + i));
    RandomFiller filler(kSeed + i);
    const JournalRow row = json::random_row(filler, i);
    kinds.emplace(event_kind(row.event.payload));
    const std::string text = encode_row(row.event, row.decisions);
    const auto decoded = decode_row(text);
    ASSERT_TRUE(decoded.has_value()) << decoded.error().message() << "\n" << text;
    ASSERT_EQ(*decoded, row) << text;
    const std::string spelt = encode_row(row.event, row.decisions, TimeSpelling::rfc3339);
    const auto decoded_spelt = decode_row(spelt);
    ASSERT_TRUE(decoded_spelt.has_value()) << decoded_spelt.error().message() << "\n" << spelt;
    ASSERT_EQ(*decoded_spelt, row) << spelt;
    const auto stored = decode_stored_row(store_row(row.event, row.decisions));
    ASSERT_TRUE(stored.has_value()) << stored.error().message();
    ASSERT_EQ(*stored, row);
  }
  EXPECT_EQ(kinds.size(), std::variant_size_v<EventPayload>);
}

TEST(EventJson, RandomPoliciesComeBackAsTheyWere) {
  for (uint64_t i = 0; i < 100; ++i) {
    SCOPED_TRACE("seed " + std::to_string(kSeed + i));
    const auto policy = RandomFiller(kSeed + i).make<Policy>();
    const auto decoded = decode_policy(encode_policy(policy));
    ASSERT_TRUE(decoded.has_value()) << decoded.error().message();
    ASSERT_EQ(*decoded, policy);
  }
}

TEST(EventJson, PageOfRows) {
  RandomFiller filler(kSeed);
  std::vector<JournalRow> rows;
  for (uint64_t i = 1; i <= 20; ++i) rows.push_back(json::random_row(filler, i));
  const auto decoded = decode_event_page(encode_event_page(rows));
  ASSERT_TRUE(decoded.has_value()) << decoded.error().message();
  EXPECT_EQ(*decoded, rows);
  EXPECT_FALSE(decode_event_page("[]").has_value());
  EXPECT_FALSE(decode_event_page(R"({"events":[{"seq":1}]})").has_value());
}

// The file was written by the first release of schema version 1. A difference means that old journals would
// be read otherwise: add a version and an upgrade step, never change the file.
TEST(EventJson, GoldenFileOfVersionOne) {
  std::istringstream lines(read_source_file("src/codec/testdata/journal-v1.jsonl"));
  std::set<std::string> kinds;
  size_t decisions = 0;
  for (std::string line; std::getline(lines, line);) {
    const auto row = decode_row(line);
    ASSERT_TRUE(row.has_value()) << row.error().message() << "\n" << line;
    EXPECT_EQ(encode_row(row->event, row->decisions), line);
    kinds.emplace(event_kind(row->event.payload));
    decisions += row->decisions.size();
  }
  constexpr size_t kKindsOfTheFirstRelease = 18;
  EXPECT_EQ(kinds.size(), kKindsOfTheFirstRelease);
  EXPECT_GE(decisions, std::variant_size_v<Decision>);
}

// Each example block of docs/journal.md is a row as the code writes it, and every kind has one.
TEST(EventJson, DocumentShowsEveryKindAsItIsWritten) {
  std::istringstream lines(read_source_file("docs/journal.md"));
  std::set<std::string> events;
  std::set<std::string> decisions;
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("{\"seq\":")) continue;
    const auto row = decode_row(line);
    ASSERT_TRUE(row.has_value()) << row.error().message() << "\n" << line;
    EXPECT_EQ(encode_row(row->event, row->decisions), line);
    events.emplace(event_kind(row->event.payload));
    for (const Decision& decision : row->decisions) decisions.emplace(decision_kind(decision));
  }
  EXPECT_EQ(events.size(), std::variant_size_v<EventPayload>);
  EXPECT_EQ(decisions.size(), std::variant_size_v<Decision>);
}

TEST(EventJson, ReservedNamesOfTheDocumentAreNotInUse) {
  const std::string document = read_source_file("docs/journal.md");
  const size_t reserved = document.find("## Reserved");
  ASSERT_NE(reserved, std::string::npos);
  const std::string part = document.substr(reserved);
#define TRANCHE_CHECK_RESERVED(Type, name, category) \
  EXPECT_EQ(part.find("| `" #name "` |"), std::string::npos) << #name;
  TRANCHE_EVENT_KINDS(TRANCHE_CHECK_RESERVED)
#undef TRANCHE_CHECK_RESERVED
}

TEST(EventJson, ErrorsNameTheFieldAndTheReason) {
  EXPECT_EQ(
      error_of(
          R"({"seq":1,"time":2,"kind":"job_held","version":1,"event":{"job":0,"by":"a"},"decisions":[]})"),
      "event.job: must be a whole number from 1 to 9223372036854775807, not 0");
  EXPECT_EQ(error_of(R"({"seq":1,"time":2,"kind":"job_held","version":1,"event":{"job":7},"decisions":[]})"),
            "event: the field \"by\" is missing");
  EXPECT_EQ(
      error_of(
          R"({"seq":1,"time":2,"kind":"tick","version":1,"event":{},"decisions":[{"kind":"start","task":{"job":1,"rank":0,"attempt":1},"node":1,"slices":[{"gpu":1,"kind":"hole","compute_milli":1,"memory_mib":1}]}]})"),
      "decisions[0].slices[0].kind: must be one of whole, fraction, mig, not \"hole\"");
  EXPECT_EQ(error_of(R"({"seq":1,"time":1.5,"kind":"tick","version":1,"event":{},"decisions":[]})"),
            "time: must be a time like \"2026-11-30T18:00:00Z\" or nanoseconds since 1970, not 1.5");
  EXPECT_EQ(error_of(R"({"seq":1,"time":2,"kind":"tick","version":1,"event":{"a":1,"a":2},"decisions":[]})"),
            "the name \"a\" stands twice in one object");
}

TEST(EventJson, WhatOnlyANewerTrancheKnowsIsSaidSo) {
  EXPECT_EQ(error_of(R"({"seq":1,"time":2,"kind":"gpu_resized","version":1,"event":{},"decisions":[]})"),
            "event: the kind \"gpu_resized\" is not known: a newer Tranche may have written it, read it with "
            "that one");
  EXPECT_EQ(
      error_of(
          R"({"seq":1,"time":2,"kind":"job_held","version":1,"event":{"job":7,"by":"a","until":3},"decisions":[]})"),
      "event: the field \"until\" is not known; known are: job, by, more: a newer Tranche may have written "
      "it, "
      "read it with that one");
  const std::string newer =
      error_of(R"({"seq":1,"time":2,"kind":"tick","version":2,"event":{},"decisions":[]})");
  EXPECT_NE(newer.find("version 2"), std::string::npos) << newer;
  StoredRow row;
  row.version = 7;
  EXPECT_FALSE(upgrade_row(row).has_value());
  row.version = 0;
  EXPECT_FALSE(upgrade_row(row).has_value());
  row.version = 1;
  EXPECT_EQ(*upgrade_row(row), row);
}

TEST(EventJson, LeftOutFieldsAreEmptyWhateverTheCodesDefaults) {
  const auto row = decode_row(
      R"({"seq":1,"time":2,"kind":"job_submitted","version":1,"event":{"job":1,"spec":{"owner":{"uid":1,"gid":1,"user":"a"},"queue":"q/a","class":"inference","task":{"gpu":{"count":0},"cpu_milli":1},"tasks_min":1,"tasks_max":1,"time_limit_ns":5,"grace_ns":0}},"decisions":[]})");
  ASSERT_TRUE(row.has_value()) << row.error().message();
  EXPECT_FALSE(std::get<JobSubmitted>(row->event.payload).spec.preemptible);  // true in a fresh JobSpec
}

// Never a crash and never a wrong acceptance: every proper prefix is refused, every changed byte is answered.
TEST(EventJson, HostileRowsAreAnswered) {
  RandomFiller filler(kSeed);
  for (uint64_t i = 1; i <= 20; ++i) {
    const JournalRow row = json::random_row(filler, i);
    const std::string text = encode_row(row.event, row.decisions);
    const size_t step = std::max<size_t>(1, text.size() / 400);
    for (size_t size = 0; size < text.size(); size += step) {
      ASSERT_FALSE(decode_row(std::string_view(text).substr(0, size)).has_value()) << text.substr(0, size);
    }
    for (int change = 0; change < 200; ++change) {
      std::string changed = text;
      changed[filler.random.below(changed.size())] = static_cast<char>(filler.random.below(256));
      if (const auto decoded = decode_row(changed)) {
        ASSERT_TRUE(decode_row(encode_row(decoded->event, decoded->decisions)).has_value()) << changed;
      }
    }
  }
}

}  // namespace
}  // namespace tranche
