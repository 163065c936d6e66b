#include "replay/trace_file.h"

#include <zlib.h>

#include <memory>

#include "replay/json_input.h"

namespace tranche::replay {
namespace {

constexpr size_t kCellsMax = 256;

struct CloseGzip {
  void operator()(gzFile_s* file) const { gzclose(file); }
};

// Calls `use(line, number)` for each line, without its end.
template <class Use>
void for_each_line(std::string_view text, Use use) {
  size_t number = 0;
  for (size_t begin = 0; begin < text.size();) {
    size_t end = text.find('\n', begin);
    if (end == std::string_view::npos) end = text.size();
    std::string_view line = text.substr(begin, end - begin);
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    use(begin, line, ++number);
    begin = end + 1;
  }
}

}  // namespace

Result<std::string> read_trace_text(const std::string& path) {
  const std::unique_ptr<gzFile_s, CloseGzip> file(gzopen(path.c_str(), "rbe"));
  if (!file) return fail(ErrorCode::not_found, path + " cannot be read; check the name");
  std::string text;
  std::vector<char> block(size_t{1} << 18);
  while (true) {
    const int size = gzread(file.get(), block.data(), static_cast<unsigned>(block.size()));
    if (size < 0) return fail(ErrorCode::corrupt, path + " is damaged: it cannot be unpacked");
    if (size == 0) return text;
    text.append(block.data(), static_cast<size_t>(size));
    if (text.size() > kTraceBytesMax)
      return fail(ErrorCode::too_large, path + " has more than 1 GiB of text");
  }
}

Result<TraceTable> TraceTable::read_csv(const std::string& path) {
  TRY_ASSIGN(std::string text, read_trace_text(path));
  return parse_csv(std::move(text), path);
}

Result<TraceTable> TraceTable::read_columns(const std::string& path, char comment) {
  TRY_ASSIGN(std::string text, read_trace_text(path));
  return parse_columns(std::move(text), path, comment);
}

Result<TraceTable> TraceTable::parse_csv(std::string text, std::string origin) {
  TraceTable table;
  table.text_ = std::move(text);
  table.origin_ = std::move(origin);
  bool too_wide = false;
  for_each_line(table.text_, [&](size_t begin, std::string_view line, size_t number) {
    if (line.empty()) return;
    std::vector<std::pair<size_t, size_t>> cells;
    for (size_t at = 0; at <= line.size() && cells.size() <= kCellsMax;) {
      size_t end = line.find(',', at);
      if (end == std::string_view::npos) end = line.size();
      cells.emplace_back(begin + at, end - at);
      at = end + 1;
    }
    too_wide = too_wide || cells.size() > kCellsMax;
    if (number == 1) {
      for (const auto& [from, size] : cells) table.names_.push_back(table.text_.substr(from, size));
      return;
    }
    table.lines_.push_back(std::move(cells));
    table.numbers_.push_back(number);
  });
  if (too_wide) return fail(ErrorCode::corrupt, table.origin_ + " has a line of more than 256 columns");
  return table;
}

Result<TraceTable> TraceTable::parse_columns(std::string text, std::string origin, char comment) {
  TraceTable table;
  table.text_ = std::move(text);
  table.origin_ = std::move(origin);
  bool too_wide = false;
  for_each_line(table.text_, [&](size_t begin, std::string_view line, size_t number) {
    std::vector<std::pair<size_t, size_t>> cells;
    for (size_t at = line.find_first_not_of(" \t");
         at != std::string_view::npos && cells.size() <= kCellsMax;) {
      if (cells.empty() && line[at] == comment) return;
      size_t end = line.find_first_of(" \t", at);
      if (end == std::string_view::npos) end = line.size();
      cells.emplace_back(begin + at, end - at);
      at = line.find_first_not_of(" \t", end);
    }
    too_wide = too_wide || cells.size() > kCellsMax;
    if (cells.empty()) return;
    table.lines_.push_back(std::move(cells));
    table.numbers_.push_back(number);
  });
  if (too_wide) return fail(ErrorCode::corrupt, table.origin_ + " has a line of more than 256 columns");
  return table;
}

Result<size_t> TraceTable::column(std::string_view name) const {
  for (size_t i = 0; i < names_.size(); ++i) {
    if (names_[i] == name) return i;
  }
  return fail(ErrorCode::corrupt, origin_ + " has no column '" + std::string(name) + "'");
}

std::string_view TraceTable::cell(size_t row, size_t column) const {
  const auto& cells = lines_[row];
  if (column >= cells.size()) return {};
  return std::string_view(text_).substr(cells[column].first, cells[column].second);
}

void TraceTable::note(size_t row, size_t column) const {
  if (!problem_.empty()) return;
  problem_ = origin_ + ", line " + std::to_string(numbers_[row]) + ", column " + std::to_string(column + 1) +
             ": " + json::shown(cell(row, column)) + " is not a number";
}

int64_t TraceTable::micro(size_t row, size_t column, int64_t otherwise) const {
  const std::string_view text = cell(row, column);
  if (text.empty()) return otherwise;
  if (const auto value = parse_micro(text)) return *value;
  note(row, column);
  return otherwise;
}

int64_t TraceTable::integer(size_t row, size_t column, int64_t otherwise) const {
  if (cell(row, column).empty()) return otherwise;
  const int64_t value = micro(row, column, 0);
  if (value % kMicro != 0) note(row, column);
  return value / kMicro;
}

Result<void> TraceTable::check() const {
  if (problem_.empty()) return {};
  return fail(ErrorCode::corrupt, problem_);
}

}  // namespace tranche::replay
