// Rows and columns for people: as wide as their content, narrowed to the terminal where one is, never
// wrapped: what has no room is shortened, then left out, then cut.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cli/session.h"

namespace tranche::cli {

enum class Style : unsigned char { kPlain, kBold, kDim, kGreen, kYellow, kRed };

// `text` between the codes of its style, or alone where colour is off.
std::string styled(const Look& look, Style style, std::string_view text);

class Table {
 public:
  struct Column {
    std::string title;
    bool right = false;    // numbers
    size_t width_min = 0;  // may be narrowed to this many cells when the terminal is too small; 0: never
    int leaves = 0;        // if that is not enough the column with the highest number is left out; 0: never
  };
  struct Cell {
    std::string text;  // passes printable()
    Style style = Style::kPlain;
  };

  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

  // One cell a column. A row's style holds for its plain cells.
  void add(std::vector<Cell> cells, Style row_style = Style::kPlain);
  bool empty() const { return rows_.empty(); }

  // Lines with newlines; the title line first if `titles`.
  std::string render(const Look& look, bool titles = true) const;

 private:
  std::vector<size_t> widths(const Look& look, bool titles) const;
  bool leave_one_out(std::vector<size_t>& widths) const;

  std::vector<Column> columns_;
  std::vector<std::vector<Cell>> rows_;
};

}  // namespace tranche::cli
