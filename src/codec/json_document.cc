#include "codec/json_document.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "codec/limits.h"

namespace tranche::json {
namespace {

// Where the parser stopped, for people: both from 1. `position` counts the bytes read.
std::string line_and_column(std::string_view text, size_t position) {
  const std::string_view before = text.substr(0, std::min(position, text.size()));
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const size_t line_start = before.rfind('\n') == std::string_view::npos ? 0 : before.rfind('\n') + 1;
  const size_t column = std::max<size_t>(1, before.size() - line_start);
  return "line " + std::to_string(line) + ", column " + std::to_string(column);
}

}  // namespace

// Receives the parser's calls (nlohmann's SAX interface, whose names these are) and lays the nodes out. Each
// call answers false to stop.
class Builder {
 public:
  using number_integer_t = nlohmann::json::number_integer_t;
  using number_unsigned_t = nlohmann::json::number_unsigned_t;
  using number_float_t = nlohmann::json::number_float_t;
  using string_t = nlohmann::json::string_t;
  using binary_t = nlohmann::json::binary_t;

  explicit Builder(Document& document) : document_(document) {}

  const std::string& problem() const { return problem_; }
  size_t error_position() const { return error_position_; }

  bool null() { return add(Kind::null), true; }
  bool boolean(bool flag) {
    add(Kind::boolean).flag = flag;
    return true;
  }
  bool number_integer(number_integer_t number) {
    Entry& node = add(Kind::integer);
    node.negative = number < 0;
    node.number = static_cast<uint64_t>(number);
    return true;
  }
  bool number_unsigned(number_unsigned_t number) {
    add(Kind::integer).number = number;
    return true;
  }
  bool number_float(number_float_t, const string_t& spelling) {
    set_text(add(Kind::decimal), spelling);
    return true;
  }
  bool string(string_t& text) {
    set_text(add(Kind::text), text);
    return true;
  }
  bool binary(binary_t&) { return stop("binary value"); }
  bool start_object(size_t) { return begin(Kind::object); }
  bool start_array(size_t) { return begin(Kind::array); }
  bool end_array() { return end(); }
  bool end_object() {
    const uint32_t index = open_.back();
    const std::string_view twice = repeated_key(index);
    if (!twice.empty()) return stop("the name " + shown(twice) + " stands twice in one object");
    return end();
  }
  bool key(string_t& name) {
    key_begin_ = static_cast<uint32_t>(document_.pool_.size());
    key_size_ = static_cast<uint32_t>(name.size());
    document_.pool_ += name;
    return true;
  }
  bool parse_error(size_t position, const std::string& last_token, const nlohmann::detail::exception&) {
    error_position_ = position;
    problem_ = "not valid JSON near " + shown(last_token);
    return false;
  }

 private:
  bool stop(std::string problem) {
    problem_ = std::move(problem);
    return false;
  }

  Entry& add(Kind kind) {
    if (!open_.empty()) ++document_.nodes_[open_.back()].children;
    Entry& node = document_.nodes_.emplace_back();
    node.kind = kind;
    node.end = static_cast<uint32_t>(document_.nodes_.size());
    node.key_begin = key_begin_;
    node.key_size = key_size_;
    key_size_ = 0;
    return node;
  }

  void set_text(Entry& node, const std::string& text) {
    node.text_begin = static_cast<uint32_t>(document_.pool_.size());
    node.text_size = static_cast<uint32_t>(text.size());
    document_.pool_ += text;
  }

  bool begin(Kind kind) {
    if (open_.size() >= limits::kJsonDepth) {
      return stop("nested deeper than " + std::to_string(limits::kJsonDepth) + " levels");
    }
    add(kind);
    open_.push_back(static_cast<uint32_t>(document_.nodes_.size() - 1));
    return true;
  }

  bool end() {
    document_.nodes_[open_.back()].end = static_cast<uint32_t>(document_.nodes_.size());
    open_.pop_back();
    return true;
  }

  // A name that two members of the object share, or "". The object's node is not closed yet. An empty name is
  // never a field's, so that two of them are found as unknown later.
  std::string_view repeated_key(uint32_t index) const {
    const uint32_t count = document_.nodes_[index].children;
    const auto for_each_key = [&](auto&& visit) {
      uint32_t child = index + 1;
      for (uint32_t i = 0; i < count; ++i, child = document_.nodes_[child].end) {
        const Entry& node = document_.nodes_[child];
        visit(std::string_view(document_.pool_).substr(node.key_begin, node.key_size));
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

  Document& document_;
  std::vector<uint32_t> open_;  // objects and arrays that have begun
  uint32_t key_begin_ = 0;
  uint32_t key_size_ = 0;
  std::string problem_;
  size_t error_position_ = 0;
};

Result<Document> Document::parse(std::string_view text, ErrorCode code) {
  constexpr size_t kBytesMax = size_t{1} << 30;  // offsets are of 32 bits
  if (text.size() > kBytesMax) return fail(ErrorCode::too_large, "a JSON text of more than 1 GiB is not read");
  Document document;
  document.nodes_.reserve(text.size() / 12 + 1);
  document.pool_.reserve(text.size());
  Builder builder(document);
  if (nlohmann::json::sax_parse(text.data(), text.data() + text.size(), &builder)) return document;
  std::string message = builder.problem();
  if (builder.error_position() > 0 || text.empty()) {
    message = line_and_column(text, builder.error_position()) + ": " + message;
  }
  return fail(code, std::move(message));
}

bool Value::integer(int64_t low, int64_t high, int64_t* value) const {
  if (kind() != Kind::integer) return false;
  const Entry& n = node();
  if (!n.negative && n.number > static_cast<uint64_t>(INT64_MAX)) return false;
  const auto number = static_cast<int64_t>(n.number);
  if (number < low || number > high) return false;
  *value = number;
  return true;
}

std::string Value::describe() const {
  switch (kind()) {
    case Kind::null: return "null";
    case Kind::boolean: return flag() ? "true" : "false";
    case Kind::integer:
      return node().negative ? std::to_string(static_cast<int64_t>(node().number)) : std::to_string(node().number);
    case Kind::decimal: return std::string(text().substr(0, 40));
    case Kind::text: return shown(text());
    case Kind::array: return "a list";
    case Kind::object: return "an object";
  }
  return "?";
}

std::string shown(std::string_view text) {
  constexpr size_t kShown = 60;
  size_t size = std::min(text.size(), kShown);
  // Do not cut a UTF-8 sequence in two.
  while (size < text.size() && size > 0 && (static_cast<unsigned char>(text[size]) & 0xC0) == 0x80) --size;
  std::string out = "\"";
  for (const char c : text.substr(0, size)) {
    const auto byte = static_cast<unsigned char>(c);
    out += (byte < 0x20 || byte == 0x7f || c == '"') ? '?' : c;
  }
  if (size < text.size()) out += "...";
  return out + "\"";
}

}  // namespace tranche::json
