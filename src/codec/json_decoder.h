// Reads described structs from a Document, checking every bound. Used by the .cc files of this room only.
//
// The first problem ends the reading; its sentence starts with the path of the field, put together on the way
// up.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "codec/json_document.h"
#include "codec/json_fields.h"
#include "codec/nearest_name.h"

namespace tranche::json {

enum class UnknownFields : unsigned char { refuse, ignore };
// Whether a time may be an integer of nanoseconds as well: in the journal, not in the API.
enum class TimeForms : unsigned char { text_only, text_or_nanoseconds };

struct Strictness {
  UnknownFields unknown = UnknownFields::refuse;
  TimeForms times = TimeForms::text_only;
  std::string_view unknown_advice = "";  // appended to the sentence about an unknown field
};

class Decoder {
 public:
  explicit Decoder(Strictness strictness) : strictness_(strictness) {}

  template <class Type, class Rule>
  bool read(Value value, Type& out, const Rule& rule);
  // The members of an object but for `kind_name`, which the caller has looked at ("" if none).
  template <class Type>
  bool read_object(Value value, Type& out, std::string_view kind_name = "");

  bool refuse(std::string problem) {
    problem_ = std::move(problem);
    return false;
  }
  // On the way up: the problem is in this member or element.
  bool in_member(std::string_view name) {
    path_.insert(0, path_.empty() || path_.front() == '[' ? std::string(name) : std::string(name) + ".");
    return false;
  }
  bool in_element(size_t index) {
    const std::string step = "[" + std::to_string(index) + "]";
    path_.insert(0, path_.empty() || path_.front() == '[' ? step : step + ".");
    return false;
  }
  // "path: problem".
  std::string message() const { return path_.empty() ? problem_ : path_ + ": " + problem_; }
  const Strictness& strictness() const { return strictness_; }

 private:
  Strictness strictness_;
  std::string problem_;
  std::string path_;
};

// Collects the names of a description.
class NameLister {
 public:
  template <class Member, class Base, class Rule = Plain>
  void required(std::string_view name, Member Base::*, const Rule& = {}) {
    names.push_back(name);
  }
  template <class Member, class Base, class Rule = Plain>
  void defaulted(std::string_view name, Member Base::*, const Rule& = {}) {
    names.push_back(name);
  }
  template <class Member, class Base, class Rule = Plain>
  void optional(std::string_view name, Member Base::*, const Rule& = {}) {
    names.push_back(name);
  }
  template <class Member, class Base, class Rule = Plain>
  void when(std::string_view name, bool Base::*, Member Base::*, const Rule& = {}) {
    names.push_back(name);
  }
  std::vector<std::string_view> names;
};

// Finds members by name. Descriptions list fields in the order in which they are written, so the next member
// is nearly always the one that is wanted.
class MemberFinder {
 public:
  explicit MemberFinder(Value object) : object_(object), next_(object.first()) {}

  // The member, or false. Counts what it finds.
  bool find(std::string_view name, Value* member) {
    if (passed_ < object_.size() && next_.key() == name) {
      *member = next_;
      next_ = next_.next();
      ++passed_;
      ++found_;
      return true;
    }
    Value child = object_.first();
    for (uint32_t i = 0; i < object_.size(); ++i, child = child.next()) {
      if (child.key() != name) continue;
      *member = child;
      next_ = child.next();
      passed_ = i + 1;
      ++found_;
      return true;
    }
    return false;
  }
  bool found_all() const { return found_ == object_.size(); }

 private:
  Value object_;
  Value next_;
  uint32_t passed_ = 0;  // members before `next_`
  uint32_t found_ = 0;
};

// Refuses the first member that is not in `known`.
bool refuse_unknown(Decoder& decoder, Value object, std::span<const std::string_view> known);

template <class Object>
class FieldReader {
 public:
  FieldReader(Decoder& decoder, Value value, Object& object)
      : decoder_(decoder), finder_(value), value_(value), object_(object) {}

  template <class Member, class Base, class Rule = Plain>
  void required(std::string_view name, Member Base::*member, const Rule& rule = {}) {
    if constexpr (IsOptional<Member>::value) {
      take(name, member, rule);
    } else if (!take(name, member, rule) && ok_) {
      ok_ = decoder_.refuse("the field \"" + std::string(name) + "\" is missing");
    }
  }
  template <class Member, class Base, class Rule = Plain>
  void defaulted(std::string_view name, Member Base::*member, const Rule& rule = {}) {
    take(name, member, rule);
  }
  template <class Member, class Base, class Rule = Plain>
  void optional(std::string_view name, Member Base::*member, const Rule& rule = {}) {
    take(name, member, rule);
  }
  template <class Member, class Base, class Rule = Plain>
  void when(std::string_view name, bool Base::*present, Member Base::*member, const Rule& rule = {}) {
    object_.*present = take(name, member, rule);
  }
  void skip(std::string_view name) {
    Value ignored = value_;
    finder_.find(name, &ignored);
  }
  bool found_all() const { return finder_.found_all(); }
  bool ok() const { return ok_; }

 private:
  // Whether it stands there. What is left out is empty, whatever the struct starts with.
  template <class Member, class Base, class Rule>
  bool take(std::string_view name, Member Base::*member, const Rule& rule) {
    if (!ok_) return false;
    Value found = value_;
    if (!finder_.find(name, &found)) {
      object_.*member = Member{};
      return false;
    }
    bool good = false;
    if constexpr (IsOptional<Member>::value) {
      good = decoder_.read(found, (object_.*member).emplace(), rule);
    } else {
      good = decoder_.read(found, object_.*member, rule);
    }
    if (!good) ok_ = decoder_.in_member(name);
    return true;
  }

  Decoder& decoder_;
  MemberFinder finder_;
  Value value_;
  Object& object_;
  bool ok_ = true;
};

namespace detail {

bool read_bool(Decoder& decoder, Value value, bool& out);
bool read_integer(Decoder& decoder, Value value, int64_t low, int64_t high, int64_t* out);
bool read_text(Decoder& decoder, Value value, std::string& out, const Text& rule);
bool read_list_shape(Decoder& decoder, Value value, size_t count_max);
bool refuse_choice(Decoder& decoder, Value value, std::span<const std::string_view> choices);

// All texts of an enumeration, in order.
template <class Enum>
std::vector<std::string_view> enum_texts() {
  std::vector<std::string_view> texts;
  for (int i = 0; i < 256; ++i) {
    const std::string_view text = to_string(static_cast<Enum>(i));
    if (text == "?") break;
    texts.push_back(text);
  }
  return texts;
}

template <class Type>
bool read_value(Decoder& decoder, Value value, Type& out, const Plain&) {
  if constexpr (std::is_same_v<Type, bool>) {
    return read_bool(decoder, value, out);
  } else if constexpr (std::is_enum_v<Type>) {
    if (value.kind() == Kind::text) {
      if (const auto parsed = from_string<Type>(value.text())) {
        out = *parsed;
        return true;
      }
    }
    return refuse_choice(decoder, value, enum_texts<Type>());
  } else if constexpr (HasCustom<Type>) {
    return Custom<Type>::read(decoder, value, out);
  } else {
    return decoder.read_object(value, out);
  }
}
template <class Type>
bool read_value(Decoder& decoder, Value value, Type& out, const Range& rule) {
  int64_t number = 0;
  if (!read_integer(decoder, value, rule.low, rule.high, &number)) return false;
  if constexpr (std::is_integral_v<Type>)
    out = static_cast<Type>(number);
  else if constexpr (requires { out.count(); })
    out = Type(number);
  else
    out = Type(static_cast<decltype(out.value())>(number));
  return true;
}
inline bool read_value(Decoder& decoder, Value value, std::string& out, const Text& rule) {
  return read_text(decoder, value, out, rule);
}
template <class Element, class Rule>
bool read_value(Decoder& decoder, Value value, std::vector<Element>& out, const List<Rule>& rule) {
  if (!read_list_shape(decoder, value, rule.count_max)) return false;
  out.clear();
  out.reserve(value.size());
  Value child = value.first();
  for (uint32_t i = 0; i < value.size(); ++i, child = child.next()) {
    if (!decoder.read(child, out.emplace_back(), rule.element)) return decoder.in_element(i);
  }
  return true;
}
bool read_value(Decoder& decoder, Value value, std::vector<std::pair<std::string, std::string>>& out,
                const Map& rule);
bool read_value(Decoder& decoder, Value value, Time& out, const Timestamp& rule);
bool read_value(Decoder& decoder, Value value, Duration& out, const DurationText& rule);
bool read_value(Decoder& decoder, Value value, uint64_t& out, const Hex64& rule);

}  // namespace detail

template <class Type, class Rule>
bool Decoder::read(Value value, Type& out, const Rule& rule) {
  return detail::read_value(*this, value, out, rule);
}

template <class Type>
bool Decoder::read_object(Value value, Type& out, std::string_view kind_name) {
  if (value.kind() != Kind::object) return refuse("must be an object, not " + value.describe());
  FieldReader<Type> reader(*this, value, out);
  if (!kind_name.empty()) reader.skip(kind_name);
  // Before what is missing: a name spelt wrongly is both, and the wrong spelling is what helps.
  describe(reader, Of<Type>{});
  if (!reader.found_all() && strictness_.unknown == UnknownFields::refuse && (reader.ok() || path_.empty())) {
    NameLister lister;
    describe(lister, Of<Type>{});
    if (!kind_name.empty()) lister.names.push_back(kind_name);
    if (!refuse_unknown(*this, value, lister.names)) return false;
  }
  if (!reader.ok()) return false;
  if constexpr (HasCheck<Type>) {
    std::string problem = check_decoded(out);
    if (!problem.empty()) return refuse(std::move(problem));
  }
  return true;
}

// A whole text as one described value.
template <class Type>
Result<Type> decode_text(std::string_view text, ErrorCode code, Strictness strictness) {
  TRY_ASSIGN(const Document document, Document::parse(text, code));
  Decoder decoder(strictness);
  Type out{};
  if (!decoder.read(document.root(), out, kPlain)) return fail(code, decoder.message());
  return out;
}

}  // namespace tranche::json
