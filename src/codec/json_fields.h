// How a struct is told to the codec, once for writing, reading, listing and random tests:
//
//   template <class Visitor>
//   void describe(Visitor& v, Of<TaskKey>) {
//     v.required("job", &TaskKey::job, kId);
//     v.required("rank", &TaskKey::rank, Range{0, limits::kTasksMax});
//   }
//
// A visitor has these members, each with (name, pointer to member, rule):
//   required   always written; an error if missing
//   defaulted  always written; empty (zero, "", false, first enumerator) if missing
//   optional   left out if empty; empty if missing
//   when       (name, pointer to a bool, pointer to member, rule) left out if the bool is false
// A std::optional member is left out if unset, whatever the call.
//
// A rule bounds a value and says how it is spelt. A struct may have `std::string check_decoded(const T&)`
// beside its description: what is wrong with a combination of fields, or "".
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/units.h"
#include "codec/limits.h"

namespace tranche::json {

template <class Type>
struct Of {};

// Booleans, enumerations, described structs.
struct Plain {};
inline constexpr Plain kPlain;

// Integers, quantities and ids; for Duration: nanoseconds.
struct Range {
  int64_t low;
  int64_t high;
};
inline constexpr Range kId{1, limits::kIdMax};
inline constexpr Range kSmallId{1, limits::kSmallIdMax};
inline constexpr Range kAnyCount{0, INT64_MAX};
inline constexpr Range kCount32{0, UINT32_MAX};
inline constexpr Range kNanoseconds{0, limits::kDurationNanosecondsMax};
inline constexpr Range kMemoryMib{0, limits::kMemoryMibMax};
inline constexpr Range kRetries{0, limits::kRetriesMax};
inline constexpr Range kSignalNumber{1, limits::kSignalMax};
inline constexpr Range kPriority{-limits::kPriorityMax, limits::kPriorityMax};

// A Time: integer nanoseconds or RFC 3339, as the coder is set.
struct Timestamp {};
inline constexpr Timestamp kTime;

// A Duration as text with a unit, exact: "90s".
struct DurationText {
  int64_t low;
  int64_t high;
};
inline constexpr DurationText kDurationText{0, limits::kDurationNanosecondsMax};

// 64 bits as 16 hex digits.
struct Hex64 {};

// line: no control characters; anything: no NUL.
enum class Content : unsigned char { line, anything };
struct Text {
  size_t bytes_max;
  Content content = Content::line;
  size_t bytes_min = 0;
};
inline constexpr Text kName{limits::kNameBytes};
inline constexpr Text kSentence{limits::kSentenceBytes};
inline constexpr Text kPath{limits::kPathBytes};
inline constexpr Text kQueuePath{limits::kQueuePathBytes};
inline constexpr Text kArgument{limits::kArgumentBytes, Content::anything};

template <class Rule>
struct List {
  size_t count_max;
  Rule element;
};
template <class Rule>
List(size_t, Rule) -> List<Rule>;

// vector<pair<string, string>> as an object, sorted by name when read.
struct Map {
  size_t count_max;
  Text name;
  Text value;
};

// Types with a spelling of their own specialise this with
//   static void write(Encoder&, const Type&);  static bool read(Decoder&, Value, Type&);
template <class Type>
struct Custom {
  static constexpr bool kAbsent = true;
};
template <class Type>
concept HasCustom = !requires {
  Custom<Type>::kAbsent;
};

template <class Type>
concept HasCheck = requires(const Type& value) {
  { check_decoded(value) } -> std::same_as<std::string>;
};

template <class Type>
struct IsOptional : std::false_type {};
template <class Type>
struct IsOptional<std::optional<Type>> : std::true_type {};

// What `optional` leaves out.
template <class Type>
bool is_empty(const Type& value) {
  return value == Type{};
}

}  // namespace tranche::json
