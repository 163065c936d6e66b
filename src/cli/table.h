// Rows and columns for people: as wide as their content, narrowed to the terminal where one is, never
// wrapped: what has no room is shortened, then left out, then cut.
#pragma once

#include <cstdint>
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
  bool empty() const { return cells_.empty(); }

  // Lines with newlines; the title line first if `titles`.
  std::string render(const Look& look, bool titles = true) const;

 private:
  // Small, since a list may have 10,000 rows; the text lies in text_.
  struct ShownCell {
    size_t begin = 0;
    uint32_t size = 0;
    uint32_t width = 0;  // of it, on the terminal
    Style style = Style::kPlain;
  };
  // How wide each column is, 0: left out, and how much of it has room.
  struct Layout {
    std::vector<size_t> width;
    size_t shown = 0;  // columns that have any room
  };
  std::string_view text_of(const ShownCell& cell) const {
    return std::string_view(text_).substr(cell.begin, cell.size);
  }
  Layout layout(const Look& look, bool titles) const;
  bool leave_one_out(std::vector<size_t>& widths) const;
  void append_titles(std::string& out, const Look& look, const Layout& layout) const;
  void append_row(std::string& out, const Look& look, const Layout& layout, const ShownCell* row) const;

  std::vector<Column> columns_;
  std::vector<ShownCell> cells_;  // row after row
  std::string text_;              // of all cells, printable
};

}  // namespace tranche::cli
