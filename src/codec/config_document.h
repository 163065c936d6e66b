// TOML as a flat list of entries with their positions. Only config_document.cc knows the parser behind it.
//
// Threading: pure. Errors: invalid_argument, "origin:line:column: what the parser says".
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "codec/config.h"

namespace tranche::config {

enum class Kind : unsigned char { table, text, integer, decimal, boolean, list, other };

// One value, or one table (which matters when it is empty).
struct Entry {
  std::vector<std::string> path;  // {"queue", "physics/vision", "quota"}
  Kind kind = Kind::other;
  std::string text;  // text; decimal: in shortest form, "nan", "inf"; other: what it is
  int64_t integer = 0;
  bool flag = false;
  std::vector<std::string> list;  // of texts only; anything else is `other`
  ConfigPosition position;
};

struct Document {
  std::vector<Entry> entries;                          // in the order in which their paths first stood
  std::map<std::vector<std::string>, size_t> by_path;  // index into `entries`
};

// Adds the entries of one source. A value whose path stands there already takes its place.
Result<void> merge_source(const ConfigSource& source, Document* document, ConfigPosition* where);

// "origin:line:column".
std::string to_text(const ConfigPosition& position);

}  // namespace tranche::config
