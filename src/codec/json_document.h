// A JSON text, checked and laid out flat: one vector of entries in the order of the text and one pool of
// characters. Our own parser: of 10,000 jobs it reads the list in a fraction of the time of the library that
// the tests hold it against (json_reference_test.cc). Nothing here recurses, whatever the nesting.
//
// Refused with line and column: malformed text, invalid UTF-8, nesting deeper than limits::kJsonDepth, and
// names that stand twice in one object. Numbers are integers of 64 bits; anything else keeps its spelling as
// a `decimal`, for the error of whoever expected an integer.
//
// Ownership: Value borrows its document. Threading: none.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace tranche::json {

enum class Kind : unsigned char { null, boolean, integer, decimal, text, array, object };

struct Entry {
  Kind kind = Kind::null;
  bool negative = false;   // integer: `number` is the two's complement of a negative value
  bool flag = false;       // boolean
  uint32_t end = 0;        // index of the entry after this one and all below it
  uint32_t children = 0;   // array, object
  uint32_t key_begin = 0;  // member of an object: its name, in the pool
  uint32_t key_size = 0;
  uint32_t text_begin = 0;  // text, decimal: its characters, in the pool
  uint32_t text_size = 0;
  uint64_t number = 0;  // integer
};

class Value;

class Document {
 public:
  // `code` is the code of errors: corrupt for the journal, invalid_argument for requests.
  static Result<Document> parse(std::string_view text, ErrorCode code);
  Value root() const;

 private:
  friend class Value;
  friend class Builder;
  std::vector<Entry> entries_;
  std::string pool_;
};

class Value {
 public:
  Value(const Document& document, uint32_t index) : document_(&document), index_(index) {}

  Kind kind() const { return entry().kind; }
  bool flag() const { return entry().flag; }
  uint32_t size() const { return entry().children; }  // array, object
  std::string_view key() const { return pool(entry().key_begin, entry().key_size); }
  std::string_view text() const { return pool(entry().text_begin, entry().text_size); }
  // Whether it is an integer within [low, high]; if so, which.
  bool integer(int64_t low, int64_t high, int64_t* value) const;

  // Children: `for (Value v = first(), i = 0; i < size(); ++i, v = v.next())`; next() of the last one is not
  // to be looked at.
  Value first() const { return Value(*document_, index_ + 1); }
  Value next() const { return Value(*document_, entry().end); }

  // What it is, short and safe to print in an error: `"abc"`, `1.5`, `an object`.
  std::string describe() const;

 private:
  const Entry& entry() const { return document_->entries_[index_]; }
  std::string_view pool(uint32_t begin, uint32_t size) const {
    return std::string_view(document_->pool_).substr(begin, size);
  }
  const Document* document_;
  uint32_t index_;
};

inline Value Document::root() const { return Value(*this, 0); }

// Text from outside, safe to print in an error: quoted, at most 60 bytes, what is not printable as '?'.
std::string shown(std::string_view text);

}  // namespace tranche::json
