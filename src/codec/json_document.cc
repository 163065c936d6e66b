#include "codec/json_document.h"

#include <algorithm>
#include <charconv>

#include "base/utf8.h"
#include "codec/limits.h"

namespace tranche::json {
namespace {

// Where the parser stopped, for people; line and column from 1. `position` may be the text's size.
std::string malformed(std::string_view text, size_t position) {
  const std::string_view before = text.substr(0, position);
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const size_t line_start = before.rfind('\n') + 1;  // npos + 1 is 0
  const std::string place =
      "line " + std::to_string(line) + ", column " + std::to_string(position - line_start + 1);
  if (position >= text.size()) return place + ": the JSON text ends too early";
  return place + ": not valid JSON at " + shown(text.substr(position, 20));
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool is_plain(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte >= 0x20 && byte < 0x80 && c != '"' && c != '\\';
}

void append_utf8(std::string& out, uint32_t code) {
  const auto put = [&](uint32_t byte) { out += static_cast<char>(static_cast<unsigned char>(byte)); };
  if (code < 0x80) return put(code);
  if (code < 0x800) {
    put(0xC0 | (code >> 6));
    return put(0x80 | (code & 0x3F));
  }
  if (code < 0x10000) {
    put(0xE0 | (code >> 12));
  } else {
    put(0xF0 | (code >> 18));
    put(0x80 | ((code >> 12) & 0x3F));
  }
  put(0x80 | ((code >> 6) & 0x3F));
  put(0x80 | (code & 0x3F));
}

}  // namespace

// RFC 8259, with a stack of its own instead of recursion. Each step answers false to stop: `problem_` says
// why, or the text is malformed at `at_`.
class Builder {
 public:
  Builder(std::string_view text, Document& document) : text_(text), document_(document) {}

  bool build() {
    while (true) {
      bool opened = false;
      if (!take_value(&opened)) return false;
      if (opened) continue;
      bool complete = false;
      if (!close_what_ends(&complete)) return false;
      if (complete) return true;
    }
  }
  std::string error() const { return problem_.empty() ? malformed(text_, at_) : problem_; }

 private:
  bool stop(std::string problem) {
    problem_ = std::move(problem);
    return false;
  }
  void skip_space() {
    while (at_ < text_.size() &&
           (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t' || text_[at_] == '\r'))
      ++at_;
  }
  bool is_at(char c) const { return at_ < text_.size() && text_[at_] == c; }
  bool take_char(char c) {
    if (!is_at(c)) return false;
    ++at_;
    return true;
  }

  // One value, or the beginning of an object or array that is not empty (`opened`).
  bool take_value(bool* opened) {
    skip_space();
    if (at_ >= text_.size()) return false;
    switch (text_[at_]) {
      case '{':
        return open(Kind::object, '}', opened);
      case '[':
        return open(Kind::array, ']', opened);
      case '"': {
        Entry& entry = add(Kind::text);
        return take_text(&entry.text_begin, &entry.text_size);
      }
      case 't':
        return take_word("true", Kind::boolean, true);
      case 'f':
        return take_word("false", Kind::boolean, false);
      case 'n':
        return take_word("null", Kind::null, false);
      default:
        return take_number();
    }
  }

  bool open(Kind kind, char closing, bool* opened) {
    if (open_count_ >= limits::kJsonDepth) {
      return stop("nested deeper than " + std::to_string(limits::kJsonDepth) + " levels");
    }
    ++at_;
    add(kind);
    skip_space();
    if (take_char(closing)) return true;
    open_[open_count_++] = static_cast<uint32_t>(document_.entries_.size() - 1);
    *opened = true;
    return kind == Kind::array || take_key();
  }

  // After a value: the comma before the next one, or the ends of what is open. `complete`: the text has
  // ended.
  bool close_what_ends(bool* complete) {
    while (open_count_ > 0) {
      skip_space();
      Entry& container = document_.entries_[open_[open_count_ - 1]];
      const bool is_object = container.kind == Kind::object;
      if (take_char(',')) return !is_object || take_key();
      if (!take_char(is_object ? '}' : ']')) return false;
      container.end = static_cast<uint32_t>(document_.entries_.size());
      --open_count_;
      if (!is_object) continue;
      const std::string_view twice = repeated_key(open_[open_count_]);
      if (!twice.empty()) return stop("the name " + shown(twice) + " stands twice in one object");
    }
    skip_space();
    *complete = true;
    return at_ == text_.size();
  }

  bool take_key() {
    skip_space();
    if (!is_at('"') || !take_text(&key_begin_, &key_size_)) return false;
    skip_space();
    return take_char(':');
  }

  bool take_word(std::string_view word, Kind kind, bool flag) {
    if (text_.substr(at_, word.size()) != word) return false;
    at_ += word.size();
    add(kind).flag = flag;
    return true;
  }

  bool take_digits() {
    const size_t begin = at_;
    while (at_ < text_.size() && is_digit(text_[at_])) ++at_;
    return at_ > begin;
  }

  bool take_number() {
    const size_t begin = at_;
    const bool negative = take_char('-');
    const bool leading_zero = is_at('0');
    const size_t digits = at_;
    if (!take_digits() || (leading_zero && at_ > digits + 1)) return false;
    bool whole = true;
    if (take_char('.')) {
      whole = false;
      if (!take_digits()) return false;
    }
    if (take_char('e') || take_char('E')) {
      whole = false;
      if (!take_char('+')) take_char('-');
      if (!take_digits()) return false;
    }
    const std::string_view spelling = text_.substr(begin, at_ - begin);
    Entry& entry = add(Kind::integer);
    if (whole && read_integer(spelling, negative, &entry)) return true;
    entry.kind = Kind::decimal;
    entry.text_begin = static_cast<uint32_t>(document_.pool_.size());
    entry.text_size = static_cast<uint32_t>(spelling.size());
    document_.pool_ += spelling;
    return true;
  }

  static bool read_integer(std::string_view spelling, bool negative, Entry* entry) {
    const char* end = spelling.data() + spelling.size();
    if (!negative) return std::from_chars(spelling.data(), end, entry->number).ec == std::errc();
    int64_t number = 0;
    if (std::from_chars(spelling.data(), end, number).ec != std::errc()) return false;
    entry->negative = number < 0;
    entry->number = static_cast<uint64_t>(number);
    return true;
  }

  // A string, from its opening quote on, into the pool.
  bool take_text(uint32_t* begin, uint32_t* size) {
    std::string& pool = document_.pool_;
    *begin = static_cast<uint32_t>(pool.size());
    ++at_;
    while (at_ < text_.size()) {
      const size_t plain_begin = at_;
      while (at_ < text_.size() && is_plain(text_[at_])) ++at_;
      pool.append(text_, plain_begin, at_ - plain_begin);
      if (take_char('"')) {
        *size = static_cast<uint32_t>(pool.size() - *begin);
        return true;
      }
      if (at_ >= text_.size()) return false;
      if (text_[at_] == '\\') {
        if (!take_escape()) return false;
        continue;
      }
      const size_t length =
          static_cast<unsigned char>(text_[at_]) < 0x20 ? 0 : utf8_length(text_.substr(at_));
      if (length == 0) return false;
      pool.append(text_, at_, length);
      at_ += length;
    }
    return false;
  }

  bool take_escape() {
    constexpr std::string_view kLetters = "\"\\/bfnrt";
    constexpr std::string_view kMeanings = "\"\\/\b\f\n\r\t";
    if (at_ + 1 >= text_.size()) return false;
    if (const size_t letter = kLetters.find(text_[at_ + 1]); letter != std::string_view::npos) {
      document_.pool_ += kMeanings[letter];
      at_ += 2;
      return true;
    }
    uint32_t code = 0;
    if (!take_code_unit(&code)) return false;
    if (code >= 0xD800 && code <= 0xDBFF) {
      uint32_t low = 0;
      if (!take_code_unit(&low) || low < 0xDC00 || low > 0xDFFF) return false;
      code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    } else if (code >= 0xDC00 && code <= 0xDFFF) {
      return false;
    }
    append_utf8(document_.pool_, code);
    return true;
  }

  // "\uXXXX".
  bool take_code_unit(uint32_t* code) {
    if (text_.substr(at_, 2) != "\\u" || at_ + 6 > text_.size()) return false;
    const char* digits = text_.data() + at_ + 2;
    const auto [end, error] = std::from_chars(digits, digits + 4, *code, 16);
    if (error != std::errc() || end != digits + 4) return false;
    at_ += 6;
    return true;
  }

  Entry& add(Kind kind) {
    if (open_count_ > 0) ++document_.entries_[open_[open_count_ - 1]].children;
    Entry& entry = document_.entries_.emplace_back();
    entry.kind = kind;
    entry.end = static_cast<uint32_t>(document_.entries_.size());
    entry.key_begin = key_begin_;
    entry.key_size = key_size_;
    key_size_ = 0;
    return entry;
  }

  // A name that two members of the object share, or "". An empty name is never a field's, so
  // that two of them are found as unknown later.
  std::string_view repeated_key(uint32_t index) const {
    const uint32_t count = document_.entries_[index].children;
    const auto for_each_key = [&](auto&& visit) {
      uint32_t child = index + 1;
      for (uint32_t i = 0; i < count; ++i, child = document_.entries_[child].end) {
        const Entry& member = document_.entries_[child];
        visit(std::string_view(document_.pool_).substr(member.key_begin, member.key_size));
      }
    };
    constexpr uint32_t kFew = 32;
    if (count <= kFew) {
      std::string_view seen[kFew];
      uint32_t seen_count = 0;
      std::string_view twice;
      for_each_key([&](std::string_view name) {
        for (uint32_t i = 0; i < seen_count; ++i) {
          if (seen[i] == name) twice = name;
        }
        seen[seen_count++] = name;
      });
      return twice;
    }
    std::vector<std::string_view> names;
    names.reserve(count);
    for_each_key([&](std::string_view name) { names.push_back(name); });
    std::sort(names.begin(), names.end());
    const auto twice = std::adjacent_find(names.begin(), names.end());
    return twice == names.end() ? std::string_view() : *twice;
  }

  std::string_view text_;
  Document& document_;
  size_t at_ = 0;
  uint32_t open_[limits::kJsonDepth] = {};  // objects and arrays that have begun
  size_t open_count_ = 0;
  uint32_t key_begin_ = 0;  // the name that waits for its value
  uint32_t key_size_ = 0;
  std::string problem_;
};

Result<Document> Document::parse(std::string_view text, ErrorCode code) {
  constexpr size_t kBytesMax = size_t{1} << 30;  // offsets are of 32 bits
  if (text.size() > kBytesMax)
    return fail(ErrorCode::too_large, "a JSON text of more than 1 GiB is not read");
  Document document;
  document.entries_.reserve(text.size() / 12 + 1);
  document.pool_.reserve(text.size());
  Builder builder(text, document);
  if (!builder.build()) return fail(code, builder.error());
  return document;
}

bool Value::integer(int64_t low, int64_t high, int64_t* value) const {
  if (kind() != Kind::integer) return false;
  const Entry& n = entry();
  if (!n.negative && n.number > static_cast<uint64_t>(INT64_MAX)) return false;
  const auto number = static_cast<int64_t>(n.number);
  if (number < low || number > high) return false;
  *value = number;
  return true;
}

std::string Value::describe() const {
  switch (kind()) {
    case Kind::null:
      return "null";
    case Kind::boolean:
      return flag() ? "true" : "false";
    case Kind::integer:
      return entry().negative ? std::to_string(static_cast<int64_t>(entry().number))
                              : std::to_string(entry().number);
    case Kind::decimal:
      return std::string(text().substr(0, 40));
    case Kind::text:
      return shown(text());
    case Kind::array:
      return "a list";
    case Kind::object:
      return "an object";
  }
  return "?";
}

std::string shown(std::string_view text) {
  constexpr size_t kShown = 60;
  size_t size = std::min(text.size(), kShown);
  // Do not cut a UTF-8 sequence in two.
  while (size < text.size() && size > 0 && (static_cast<unsigned char>(text[size]) & 0xC0) == 0x80) --size;
  std::string out = "\"";
  const bool is_cut = size < text.size();
  text = text.substr(0, size);
  while (!text.empty()) {
    const Utf8Character character = first_character(text);
    const bool is_safe = character.is_valid && is_printable(character.point) && character.point != '"';
    out += is_safe ? text.substr(0, character.size) : std::string_view("?");
    text.remove_prefix(character.size);
  }
  if (is_cut) out += "...";
  return out + "\"";
}

}  // namespace tranche::json
