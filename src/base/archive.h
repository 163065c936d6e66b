// Values as bytes and back: what a snapshot is written in. Canonical: equal values give equal bytes, and
// bytes that would not be written so are refused.
//
// A type takes part by one function beside it, found by its name, which names all its members in order:
//
//   template <class Archive, OfType<Slice> Value>
//   void archive_fields(Archive& archive, Value& value) {
//     auto& [gpu, kind, compute, memory] = value;   // a member more or less does not compile
//     archive(gpu, kind, compute, memory);
//   }
//
// Integers are LEB128 (signed ones zigzag), so that small numbers cost a byte; there is no floating point.
// The bytes name neither types nor members: whoever stores them stores a format number beside them.
//
// Errors: a reader that meets what cannot be gives zeros from there on and says so in finish(). It never
// reads beyond its bytes and takes no more memory than a small multiple of them.
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "base/units.h"

namespace tranche {

template <class Value, class Type>
concept OfType = std::same_as<std::remove_const_t<Value>, Type>;

// Enumerations without a spelling of their own say how far they go: the last value, by this.
template <class Enum>
struct LastOf;

class ArchiveWriter {
 public:
  static constexpr bool kReads = false;

  template <class... Values>
  void operator()(const Values&... values) {
    (put(values), ...);
  }
  // The same for elements whose type says nothing of itself: `each` names the members of one.
  template <class Values, class Each>
  void list(const Values& values, Each each) {
    put_unsigned(values.size());
    for (const auto& value : values) each(value);
  }
  const std::string& bytes() const { return bytes_; }
  std::string take() { return std::move(bytes_); }

 private:
  template <class Kind, class Representation>
  void put(const Id<Kind, Representation>& id) {
    put_unsigned(id.value());
  }
  template <class Unit>
  void put(const Quantity<Unit>& quantity) {
    put_signed(quantity.count());
  }
  void put(const Time& time) { put_signed(time.nanoseconds()); }
  void put(const std::string& text) {
    put_unsigned(text.size());
    bytes_ += text;
  }
  template <class A, class B>
  void put(const std::pair<A, B>& pair) {
    (*this)(pair.first, pair.second);
  }
  template <class Value>
  void put(const std::optional<Value>& value) {
    put(value.has_value());
    if (value) put(*value);
  }
  template <class Value>
  void put(const std::vector<Value>& values) {
    put_all(values);
  }
  template <class Value, size_t kCount>
  void put(const std::array<Value, kCount>& values) {
    for (const Value& value : values) put(value);
  }
  template <class Value>
  void put(const std::set<Value>& values) {
    put_all(values);
  }
  template <class Key, class Value>
  void put(const std::map<Key, Value>& values) {
    put_all(values);
  }
  template <class Value>
  void put(const Value& value) {
    if constexpr (std::same_as<Value, bool>) {
      bytes_ += value ? '\1' : '\0';
    } else if constexpr (std::is_enum_v<Value>) {
      bytes_ += static_cast<char>(value);
    } else if constexpr (std::unsigned_integral<Value>) {
      put_unsigned(value);
    } else if constexpr (std::signed_integral<Value>) {
      put_signed(value);
    } else {
      archive_fields(*this, value);
    }
  }
  template <class Values>
  void put_all(const Values& values) {
    put_unsigned(values.size());
    for (const auto& value : values) put(value);
  }
  void put_signed(int64_t value) {
    put_unsigned((static_cast<uint64_t>(value) << 1) ^ static_cast<uint64_t>(value >> 63));
  }
  void put_unsigned(uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>((value & 0x7f) | 0x80);
    bytes_ += static_cast<char>(value);
  }

  std::string bytes_;
};

class ArchiveReader {
 public:
  static constexpr bool kReads = true;

  // `bytes` outlive this.
  explicit ArchiveReader(std::string_view bytes) : rest_(bytes) {}

  template <class... Values>
  void operator()(Values&... values) {
    (get(values), ...);
  }
  template <class Value, class Each>
  void list(std::vector<Value>& values, Each each) {
    const uint64_t count = get_count();
    values.clear();
    for (uint64_t i = 0; i < count && !failed_; ++i) each(values.emplace_back());
  }
  bool failed() const { return failed_; }
  // What was read cannot be: everything from here on is zeros.
  void refuse() {
    failed_ = true;
    rest_ = {};
  }
  // Everything was read, and nothing was wrong.
  Result<void> finish() const {
    if (!failed_ && rest_.empty()) return {};
    return fail(ErrorCode::corrupt, "the bytes are not what this version writes");
  }

 private:
  static constexpr size_t kReservedMost = 1024;  // the rest grows with what is really there

  template <class Kind, class Representation>
  void get(Id<Kind, Representation>& id) {
    id = Id<Kind, Representation>(get_unsigned<Representation>());
  }
  template <class Unit>
  void get(Quantity<Unit>& quantity) {
    quantity = Quantity<Unit>(get_signed<int64_t>());
  }
  void get(Time& time) { time = Time(get_signed<int64_t>()); }
  void get(std::string& text) {
    const uint64_t size = get_count();
    text.assign(rest_.substr(0, size));
    rest_.remove_prefix(text.size());
  }
  template <class A, class B>
  void get(std::pair<A, B>& pair) {
    (*this)(pair.first, pair.second);
  }
  template <class Value>
  void get(std::optional<Value>& value) {
    bool has_value = false;
    get(has_value);
    value.reset();
    if (has_value) get(value.emplace());
  }
  template <class Value>
  void get(std::vector<Value>& values) {
    const uint64_t count = get_count();
    values.clear();
    values.reserve(std::min<uint64_t>(count, kReservedMost));
    for (uint64_t i = 0; i < count && !failed_; ++i) get(values.emplace_back());
  }
  template <class Value, size_t kCount>
  void get(std::array<Value, kCount>& values) {
    for (Value& value : values) get(value);
  }
  template <class Value>
  void get(std::set<Value>& values) {
    values.clear();
    const uint64_t count = get_count();
    for (uint64_t i = 0; i < count && !failed_; ++i) {
      Value value{};
      get(value);
      if (!values.empty() && !(*values.rbegin() < value)) return refuse();
      values.insert(values.end(), std::move(value));
    }
  }
  template <class Key, class Value>
  void get(std::map<Key, Value>& values) {
    values.clear();
    const uint64_t count = get_count();
    for (uint64_t i = 0; i < count && !failed_; ++i) {
      Key key{};
      get(key);
      if (!values.empty() && !(values.rbegin()->first < key)) return refuse();
      get(values.emplace_hint(values.end(), std::move(key), Value{})->second);
    }
  }
  template <class Value>
  void get(Value& value) {
    if constexpr (std::same_as<Value, bool>) {
      value = get_byte(1) != 0;
    } else if constexpr (std::is_enum_v<Value>) {
      value = get_enum<Value>();
    } else if constexpr (std::unsigned_integral<Value>) {
      value = get_unsigned<Value>();
    } else if constexpr (std::signed_integral<Value>) {
      value = get_signed<Value>();
    } else {
      archive_fields(*this, value);
    }
  }

  template <class Enum>
  Enum get_enum() {
    if constexpr (requires(Enum value) { to_string(value); }) {
      const auto value = static_cast<Enum>(get_byte(UINT8_MAX));
      if (to_string(value) != "?") return value;
      refuse();
      return Enum{};
    } else {
      return static_cast<Enum>(get_byte(static_cast<uint8_t>(LastOf<Enum>::value)));
    }
  }
  uint8_t get_byte(uint8_t most) {
    const uint8_t byte = rest_.empty() ? 0 : static_cast<uint8_t>(rest_.front());
    if (rest_.empty() || byte > most) {
      refuse();
      return 0;
    }
    rest_.remove_prefix(1);
    return byte;
  }
  // Of elements that take a byte each, at least.
  uint64_t get_count() {
    const auto count = get_unsigned<uint64_t>();
    if (count <= rest_.size()) return count;
    refuse();
    return 0;
  }
  template <class Integer>
  Integer get_unsigned() {
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      const uint64_t byte = get_byte(UINT8_MAX);
      const uint64_t bits = byte & 0x7f;
      // No bits beyond the 64th, and no leading zeros but in a lone zero.
      if ((shift == 63 && bits > 1) || (byte == 0 && shift > 0)) break;
      value |= bits << shift;
      if ((byte & 0x80) != 0) continue;
      if (value > std::numeric_limits<Integer>::max()) break;
      return static_cast<Integer>(value);
    }
    refuse();
    return 0;
  }
  template <class Integer>
  Integer get_signed() {
    const auto coded = get_unsigned<uint64_t>();
    const auto value = static_cast<int64_t>((coded >> 1) ^ (~(coded & 1) + 1));
    if (value >= std::numeric_limits<Integer>::min() && value <= std::numeric_limits<Integer>::max())
      return static_cast<Integer>(value);
    refuse();
    return 0;
  }

  std::string_view rest_;
  bool failed_ = false;
};

}  // namespace tranche
