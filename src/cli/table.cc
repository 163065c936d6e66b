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

}  // namespace

std::string styled(const Look& look, Style style, std::string_view text) {
  if (!look.colour || style == Style::kPlain || text.empty()) return std::string(text);
  return std::string(style_code(style)) + std::string(text) + "\x1b[0m";
}

void Table::add(std::vector<Cell> cells, Style row_style) {
  TRANCHE_ASSERT(cells.size() == columns_.size());
  for (const Cell& cell : cells) {
    const size_t begin = text_.size();
    append_printable(text_, cell.text);
    const size_t size = text_.size() - begin;
    const size_t width = display_width(std::string_view(text_).substr(begin));
    cells_.push_back({begin, static_cast<uint32_t>(size), static_cast<uint32_t>(width),
                      cell.style == Style::kPlain ? row_style : cell.style});
  }
}

Table::Layout Table::layout(const Look& look, bool titles) const {
  Layout layout;
  std::vector<size_t> widths(columns_.size(), 0);
  for (size_t i = 0; i < columns_.size() && titles; ++i) widths[i] = display_width(columns_[i].title);
  for (size_t i = 0; i < cells_.size(); ++i) {
    size_t& width = widths[i % columns_.size()];
    width = std::max<size_t>(width, cells_[i].width);
  }
  layout.width = widths;
  if (look.width != 0) {
    layout.width = narrowed(columns_, widths, look.width);
    while (total_width(layout.width) > look.width && leave_one_out(widths)) {
      layout.width = narrowed(columns_, widths, look.width);
    }
  }
  // No line is longer than the terminal: the last column that has room may be cut.
  size_t left = look.width == 0 ? SIZE_MAX : look.width;
  for (size_t i = 0; i < columns_.size(); ++i) {
    size_t& width = layout.width[i];
    if (left == 0) width = 0;
    if (width == 0) continue;
    width = std::min(width, left);
    left -= std::min(left, width + kGap);
    layout.shown = i + 1;
  }
  return layout;
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

namespace {

void append_cell(std::string& out, const Look& look, Style style, std::string_view text) {
  if (look.colour && style != Style::kPlain) {
    out += styled(look, style, text);
  } else {
    out += text;
  }
}

// Empty last cells leave no spaces behind.
void end_line(std::string& out) {
  while (out.ends_with(' ')) out.pop_back();
  out += '\n';
}

}  // namespace

void Table::append_titles(std::string& out, const Look& look, const Layout& layout) const {
  Table titles(columns_);
  std::vector<Cell> row;
  for (const Column& column : columns_) row.push_back({column.title, Style::kDim});
  titles.add(std::move(row));
  titles.append_row(out, look, layout, titles.cells_.data());
}

void Table::append_row(std::string& out, const Look& look, const Layout& layout, const ShownCell* row) const {
  for (size_t i = 0; i < layout.shown; ++i) {
    const size_t width = layout.width[i];
    if (width == 0) continue;
    const bool last = i + 1 == layout.shown;
    const size_t padding = width - std::min<size_t>(width, row[i].width);
    if (columns_[i].right) out.append(padding, ' ');
    const std::string_view text = text_of(row[i]);
    if (row[i].width > width) {
      append_cell(out, look, row[i].style, fit_width(text, width));
    } else {
      append_cell(out, look, row[i].style, text);
    }
    if (!last) out.append((columns_[i].right ? 0 : padding) + kGap, ' ');
  }
  end_line(out);
}

std::string Table::render(const Look& look, bool titles) const {
  const Layout room = layout(look, titles);
  std::string out;
  out.reserve(text_.size() + cells_.size() * (kGap + 2));
  if (titles) append_titles(out, look, room);
  for (size_t i = 0; i < cells_.size(); i += columns_.size()) append_row(out, look, room, &cells_[i]);
  return out;
}

}  // namespace tranche::cli
