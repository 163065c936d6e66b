// Trace files as they are published: text, plain or gzip, with a header line or columns by position.
//
// Everything is bounded and decoded without trust: a line or number that is none is an error with its line.
// Ownership: a table owns its text; cells are views into it. Threading: none.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace tranche::replay {

inline constexpr size_t kTraceBytesMax = size_t{1} << 30;

// The text of a file, unpacked if it is gzip. Errors: not_found, too_large, corrupt.
Result<std::string> read_trace_text(const std::string& path);

class TraceTable {
 public:
  // Comma-separated, the first line names the columns. No quoting: the traces that are read have none.
  static Result<TraceTable> read_csv(const std::string& path);
  // Columns between blanks, by position; lines that start with `comment` are left out (Standard Workload
  // Format).
  static Result<TraceTable> read_columns(const std::string& path, char comment);
  static Result<TraceTable> parse_csv(std::string text, std::string origin);
  static Result<TraceTable> parse_columns(std::string text, std::string origin, char comment);

  size_t rows() const { return lines_.size(); }
  // The position of a column, or an error that lists it as missing.
  Result<size_t> column(std::string_view name) const;
  bool has_column(std::string_view name) const { return column(name).has_value(); }

  // A missing cell is empty.
  std::string_view cell(size_t row, size_t column) const;
  // A whole number; "12.0" is one, an empty cell is `otherwise`. What is no number sets problem().
  int64_t integer(size_t row, size_t column, int64_t otherwise = 0) const;
  // A decimal in millionths.
  int64_t micro(size_t row, size_t column, int64_t otherwise = 0) const;
  // The first cell that was asked for as a number and is none.
  Result<void> check() const;

 private:
  void note(size_t row, size_t column) const;
  std::string text_;
  std::string origin_;
  std::vector<std::string> names_;
  std::vector<std::vector<std::pair<size_t, size_t>>> lines_;  // begin and size of each cell
  std::vector<size_t> numbers_;                                // line numbers
  mutable std::string problem_;
};

}  // namespace tranche::replay
