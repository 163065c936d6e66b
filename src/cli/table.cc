#include "cli/table.h"

#include <algorithm>
#include <cstdint>

#include "base/assert.h"
#include "cli/text.h"

namespace tranche::cli {
namespace {

constexpr size_t kGap = 2;  // cells between columns

std::string_view style_code(Style style) {
  switch (style) {
    case Style::kPlain:
      return "";
    case Style::kBold:
      return "\x1b[1m";
    case Style::kDim:
      return "\x1b[2m";
    case Style::kGreen:
      return "\x1b[32m";
    case Style::kYellow:
      return "\x1b[33m";
    case Style::kRed:
      return "\x1b[31m";
  }
  return "";
}

size_t total_width(const std::vector<size_t>& widths) {
  size_t total = 0;
  for (const size_t width : widths) {
    if (width > 0) total += width + (total > 0 ? kGap : 0);
  }
  return total;
}

// The widest of the columns that may give way gives one cell, until all fit or none can.
std::vector<size_t> narrowed(const std::vector<Table::Column>& columns, std::vector<size_t> widths,
                             size_t room) {
  size_t total = total_width(widths);
  while (total > room) {
    size_t* widest = nullptr;
    for (size_t i = 0; i < columns.size(); ++i) {
      const bool may_shrink = columns[i].width_min > 0 && widths[i] > columns[i].width_min;
      if (may_shrink && (widest == nullptr || widths[i] > *widest)) widest = &widths[i];
    }
    if (widest == nullptr) break;
    --*widest;
    --total;
  }
  return widths;
}

void append_cell(std::string& line, const Look& look, const Table::Cell& cell, size_t width, bool right,
                 bool last) {
  const std::string text = fit_width(cell.text, width);
  const size_t padding = width - std::min(width, display_width(text));
  if (right) line.append(padding, ' ');
  line += styled(look, cell.style, text);
  if (!right && !last) line.append(padding, ' ');
  if (!last) line.append(kGap, ' ');
}

}  // namespace

std::string styled(const Look& look, Style style, std::string_view text) {
  if (!look.colour || style == Style::kPlain || text.empty()) return std::string(text);
  return std::string(style_code(style)) + std::string(text) + "\x1b[0m";
}

void Table::add(std::vector<Cell> cells, Style row_style) {
  TRANCHE_ASSERT(cells.size() == columns_.size());
  for (Cell& cell : cells) {
    cell.text = printable(cell.text);
    if (cell.style == Style::kPlain) cell.style = row_style;
  }
  rows_.push_back(std::move(cells));
}

std::vector<size_t> Table::widths(const Look& look, bool titles) const {
  std::vector<size_t> widths(columns_.size(), 0);
  for (size_t i = 0; i < columns_.size(); ++i) {
    if (titles) widths[i] = display_width(columns_[i].title);
    for (const std::vector<Cell>& row : rows_) widths[i] = std::max(widths[i], display_width(row[i].text));
  }
  if (look.width == 0) return widths;
  std::vector<size_t> narrow = narrowed(columns_, widths, look.width);
  while (total_width(narrow) > look.width && leave_one_out(widths)) {
    narrow = narrowed(columns_, widths, look.width);
  }
  return narrow;
}

// A column of no cells is not shown.
bool Table::leave_one_out(std::vector<size_t>& widths) const {
  size_t leaving = columns_.size();
  for (size_t i = 0; i < columns_.size(); ++i) {
    if (columns_[i].leaves == 0 || widths[i] == 0) continue;
    if (leaving == columns_.size() || columns_[i].leaves > columns_[leaving].leaves) leaving = i;
  }
  if (leaving == columns_.size()) return false;
  widths[leaving] = 0;
  return true;
}

std::string Table::render(const Look& look, bool titles) const {
  std::vector<size_t> width = widths(look, titles);
  const auto append_row = [&](std::string& out, const std::vector<Cell>& row) {
    size_t left = look.width == 0 ? SIZE_MAX : look.width;
    for (size_t i = 0; i < row.size() && left > 0; ++i) {
      if (width[i] == 0) continue;
      const size_t cells = std::min(width[i], left);
      const bool last = std::all_of(width.begin() + static_cast<ptrdiff_t>(i) + 1, width.end(),
                                    [](size_t next) { return next == 0; });
      append_cell(out, look, row[i], cells, columns_[i].right, last || cells + kGap >= left);
      left -= std::min(left, cells + kGap);
    }
    // Empty last cells leave no spaces behind, and no line is longer than the terminal.
    while (out.ends_with(' ')) out.pop_back();
    out += '\n';
  };
  std::string out;
  if (titles) {
    std::vector<Cell> row;
    for (const Column& column : columns_) row.push_back({column.title, Style::kDim});
    append_row(out, row);
  }
  for (const std::vector<Cell>& row : rows_) append_row(out, row);
  return out;
}

}  // namespace tranche::cli
