// Writes described structs as JSON, straight into a string. Used by the .cc files of this room only.
//
// Strings that are not valid UTF-8 become valid: each bad byte is written as U+FFFD.
#pragma once

#include <charconv>
#include <string>
#include <string_view>

#include "base/quantity_text.h"
#include "codec/event_json.h"
#include "codec/json_fields.h"

namespace tranche::json {

// Appends `text` with its quotes, escaped.
void append_text(std::string& output, std::string_view text);

// Times from here on (the year 2200) are spelt "never" in RFC 3339, and read back as kNever.
inline constexpr Time kLastSpelt{7'258'118'400'000'000'000};

class Encoder {
 public:
  Encoder(std::string& output, TimeSpelling spelling) : output_(output), spelling_(spelling) {}

  void begin_object() { output_ += '{'; }
  void end_object() { output_ += '}'; }
  void begin_array() { output_ += '['; }
  void end_array() { output_ += ']'; }
  // Before each element of an array: a value never ends in '['.
  void separate() {
    if (output_.back() != '[') output_ += ',';
  }
  // Before each member of an object. `name` needs no escape: it is a literal of ours.
  void key(std::string_view name) {
    if (output_.back() != '{') output_ += ',';
    output_ += '"';
    output_ += name;
    output_ += "\":";
  }
  void raw(std::string_view json) { output_ += json; }
  void text(std::string_view value) { append_text(output_, value); }
  void integer(int64_t value) { number(value); }
  void integer(uint64_t value) { number(value); }

  template <class Type, class Rule>
  void put(const Type& value, const Rule& rule);
  // The members of `object`, inside an object that has begun.
  template <class Type>
  void put_fields(const Type& object);

 private:
  template <class Integer>
  void number(Integer value) {
    char buffer[24];
    const auto end = std::to_chars(buffer, buffer + sizeof buffer, value).ptr;
    output_.append(buffer, end);
  }
  void put_time(Time time);

  std::string& output_;
  TimeSpelling spelling_;
};

template <class Object>
class FieldWriter {
 public:
  FieldWriter(Encoder& encoder, const Object& object) : encoder_(encoder), object_(object) {}

  template <class Member, class Base, class Rule = Plain>
  void required(std::string_view name, Member Base::*member, const Rule& rule = {}) {
    write(name, object_.*member, rule);
  }
  template <class Member, class Base, class Rule = Plain>
  void defaulted(std::string_view name, Member Base::*member, const Rule& rule = {}) {
    write(name, object_.*member, rule);
  }
  template <class Member, class Base, class Rule = Plain>
  void optional(std::string_view name, Member Base::*member, const Rule& rule = {}) {
    if (!is_empty(object_.*member)) write(name, object_.*member, rule);
  }
  template <class Member, class Base, class Rule = Plain>
  void when(std::string_view name, bool Base::*present, Member Base::*member, const Rule& rule = {}) {
    if (object_.*present) write(name, object_.*member, rule);
  }

 private:
  template <class Member, class Rule>
  void write(std::string_view name, const Member& value, const Rule& rule) {
    if constexpr (IsOptional<Member>::value) {
      if (value) write(name, *value, rule);
    } else {
      encoder_.key(name);
      encoder_.put(value, rule);
    }
  }

  Encoder& encoder_;
  const Object& object_;
};

template <class Type>
void Encoder::put_fields(const Type& object) {
  FieldWriter<Type> writer(*this, object);
  describe(writer, Of<Type>{});
}

namespace detail {

// One overload a rule; the overloads on Plain tell apart what a value is.
template <class Type>
void put_value(Encoder& encoder, const Type& value, const Plain&) {
  if constexpr (std::is_same_v<Type, bool>) {
    encoder.raw(value ? "true" : "false");
  } else if constexpr (std::is_enum_v<Type>) {
    encoder.text(to_string(value));
  } else if constexpr (HasCustom<Type>) {
    Custom<Type>::write(encoder, value);
  } else {
    encoder.begin_object();
    encoder.put_fields(value);
    encoder.end_object();
  }
}
template <class Type>
void put_value(Encoder& encoder, const Type& value, const Range&) {
  if constexpr (std::is_integral_v<Type>) {
    if constexpr (std::is_signed_v<Type>)
      encoder.integer(int64_t{value});
    else
      encoder.integer(uint64_t{value});
  } else if constexpr (requires { value.count(); }) {
    encoder.integer(value.count());
  } else {
    encoder.integer(uint64_t{value.value()});
  }
}
inline void put_value(Encoder& encoder, const std::string& value, const Text&) { encoder.text(value); }
template <class Element, class Rule>
void put_value(Encoder& encoder, const std::vector<Element>& values, const List<Rule>& rule) {
  encoder.begin_array();
  for (const Element& value : values) {
    encoder.separate();
    encoder.put(value, rule.element);
  }
  encoder.end_array();
}
void put_value(Encoder& encoder, const std::vector<std::pair<std::string, std::string>>& values, const Map&);
void put_value(Encoder& encoder, const Duration& value, const DurationText&);
void put_value(Encoder& encoder, const uint64_t& value, const Hex64&);

}  // namespace detail

template <class Type, class Rule>
void Encoder::put(const Type& value, const Rule& rule) {
  if constexpr (std::is_same_v<Rule, Timestamp>) {
    put_time(value);
  } else {
    detail::put_value(*this, value, rule);
  }
}

}  // namespace tranche::json
