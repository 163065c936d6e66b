#include "codec/config_document.h"

#include <toml++/toml.h>

#include <charconv>
#include <cmath>

#include "codec/json_document.h"

namespace tranche::config {
namespace {

constexpr size_t kSourceBytesMax = size_t{1} << 20;
constexpr size_t kEntriesMax = 200'000;
constexpr size_t kLevelsMax = 8;

ConfigPosition position_of(const toml::source_region& region, const std::string& origin) {
  return {origin, region.begin.line, region.begin.column};
}

std::string shortest(double number) {
  if (std::isnan(number)) return "nan";
  if (std::isinf(number)) return number > 0 ? "inf" : "-inf";
  char buffer[400];  // the longest double in fixed notation has 309 digits before the point
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, number, std::chars_format::fixed).ptr;
  return std::string(buffer, end);
}

// The value of `node`, which is not a table.
void read_value(const toml::node& node, Entry* entry) {
  if (const auto* text = node.as_string()) {
    entry->kind = Kind::text;
    entry->text = text->get();
  } else if (const auto* integer = node.as_integer()) {
    entry->kind = Kind::integer;
    entry->integer = integer->get();
    entry->text = std::to_string(entry->integer);
  } else if (const auto* decimal = node.as_floating_point()) {
    entry->kind = Kind::decimal;
    entry->text = shortest(decimal->get());
  } else if (const auto* flag = node.as_boolean()) {
    entry->kind = Kind::boolean;
    entry->flag = flag->get();
    entry->text = entry->flag ? "true" : "false";
  } else if (const auto* list = node.as_array()) {
    entry->kind = Kind::list;
    entry->text = "a list";
    for (const toml::node& element : *list) {
      if (const auto* text_element = element.as_string()) {
        entry->list.push_back(text_element->get());
      } else {
        entry->kind = Kind::other;
        entry->text = "a list with something else than texts";
      }
    }
  } else {
    entry->kind = Kind::other;
    entry->text = "a date or time";
  }
}

class Flattener {
 public:
  Flattener(const std::string& origin, Document* document) : origin_(origin), document_(document) {}

  Result<void> add_table(const toml::table& table, const std::vector<std::string>& path,
                         ConfigPosition* where) {
    for (const auto& [key, node] : table) {
      Entry entry;
      entry.path = path;
      entry.path.emplace_back(key.str());
      entry.position = position_of(node.is_table() ? node.source() : key.source(), origin_);
      if (entry.path.size() > kLevelsMax || document_->entries.size() >= kEntriesMax) {
        *where = entry.position;
        return fail(ErrorCode::invalid_argument,
                    to_text(entry.position) + ": the configuration is too deep or too long here");
      }
      if (const toml::table* inner = node.as_table()) {
        entry.kind = Kind::table;
        entry.text = "a table";
        const std::vector<std::string> inner_path = entry.path;
        put(std::move(entry));
        TRY(add_table(*inner, inner_path, where));
      } else {
        read_value(node, &entry);
        put(std::move(entry));
      }
    }
    return {};
  }

 private:
  // An earlier file's value gives way; a table stays where it was.
  void put(Entry entry) {
    std::vector<Entry>& entries = document_->entries;
    const auto [found, is_new] = document_->by_path.emplace(entry.path, entries.size());
    if (is_new)
      entries.push_back(std::move(entry));
    else if (Entry& old = entries[found->second]; entry.kind != Kind::table || old.kind != Kind::table)
      old = std::move(entry);
  }

  const std::string& origin_;
  Document* document_;
};

}  // namespace

std::string to_text(const ConfigPosition& position) {
  if (position.line == 0) return position.origin;
  return position.origin + ":" + std::to_string(position.line) + ":" + std::to_string(position.column);
}

Result<void> merge_source(const ConfigSource& source, Document* document, ConfigPosition* where) {
  if (source.text.size() > kSourceBytesMax) {
    *where = {source.origin, 0, 0};
    return fail(ErrorCode::too_large, source.origin + ": a configuration file must be smaller than 1 MiB");
  }
  try {
    const toml::table table = toml::parse(std::string_view(source.text), std::string_view(source.origin));
    return Flattener(source.origin, document).add_table(table, {}, where);
  } catch (const toml::parse_error& error) {
    *where = position_of(error.source(), source.origin);
    return fail(ErrorCode::invalid_argument, to_text(*where) + ": " + std::string(error.description()));
  }
}

}  // namespace tranche::config
