#include "codec/job_rows.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "codec/api_fields.h"

namespace tranche::api {
namespace {

constexpr size_t kColumns = 1 + std::count(kJobRowsHeading.begin(), kJobRowsHeading.end(), '\t');

// --- writing ---------------------------------------------------------------------------------------------

constexpr bool is_special(char c) { return c == '\t' || c == '\n' || c == '\r' || c == '\\'; }

void append_text(std::string& output, std::string_view text) {
  while (true) {
    size_t plain = 0;
    while (plain < text.size() && !is_special(text[plain])) ++plain;
    output += text.substr(0, plain);
    if (plain == text.size()) return;
    output += '\\';
    const char special = text[plain];
    output += special == '\t' ? 't' : special == '\n' ? 'n' : special == '\r' ? 'r' : '\\';
    text.remove_prefix(plain + 1);
  }
}

template <class Integer>
void append_number(std::string& output, Integer value) {
  char buffer[24];
  output.append(buffer, std::to_chars(buffer, buffer + sizeof buffer, value).ptr);
}

void append_time(std::string& output, const std::optional<Time>& time) {
  if (time) append_number(output, time->nanoseconds());
}

// --- reading ---------------------------------------------------------------------------------------------

using Cells = std::array<std::string_view, kColumns>;

// The cells of `line`; those of columns that are newer than this program are left out.
bool split_line(std::string_view line, Cells& cells) {
  for (size_t i = 0; i < kColumns; ++i) {
    const size_t end = line.find('\t');
    if (end == std::string_view::npos && i + 1 < kColumns) return false;
    cells[i] = line.substr(0, end);
    if (end == std::string_view::npos) break;
    line.remove_prefix(end + 1);
  }
  return true;
}

bool read_text(std::string_view cell, std::string& text) {
  text.clear();
  while (true) {
    const size_t plain = std::min(cell.find('\\'), cell.size());
    text += cell.substr(0, plain);
    if (plain == cell.size()) return true;
    if (plain + 1 == cell.size()) return false;
    const char letter = cell[plain + 1];
    if (letter != 't' && letter != 'n' && letter != 'r' && letter != '\\') return false;
    text += letter == 't' ? '\t' : letter == 'n' ? '\n' : letter == 'r' ? '\r' : '\\';
    cell.remove_prefix(plain + 2);
  }
}

bool read_text(std::string_view cell, std::optional<std::string>& text) {
  if (cell.empty()) text.reset();
  return cell.empty() || read_text(cell, text ? *text : text.emplace());
}

template <class Integer>
bool read_number(std::string_view cell, Integer& value) {
  const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
  return error == std::errc() && end == cell.data() + cell.size();
}

bool read_time(std::string_view cell, std::optional<Time>& time) {
  int64_t nanoseconds = 0;
  time.reset();
  if (cell.empty()) return true;
  if (!read_number(cell, nanoseconds)) return false;
  time = Time(nanoseconds);
  return true;
}

template <class Enum>
bool read_enum(std::string_view cell, Enum& value) {
  const auto found = from_string<Enum>(cell);
  if (found) value = *found;
  return found.has_value();
}

bool read_indices(std::string_view cell, std::vector<uint32_t>& indices) {
  indices.clear();
  while (!cell.empty()) {
    const size_t end = std::min(cell.find(','), cell.size());
    if (!read_number(cell.substr(0, end), indices.emplace_back())) return false;
    cell.remove_prefix(std::min(end + 1, cell.size()));
  }
  return true;
}

// Requests are few and jobs are many: a text that was read before is not read again.
class GpuRequests {
 public:
  const GpuRequest* find(std::string_view cell) {
    for (const auto& [text, request] : known_) {
      if (text == cell) return &request;
    }
    std::string text;
    if (!read_text(cell, text)) return nullptr;
    auto request = json::decode_text<GpuRequest>(text, ErrorCode::invalid_argument,
                                                 json::Strictness{.unknown = json::UnknownFields::ignore});
    if (!request) return nullptr;
    if (known_.size() == kKnownMax) known_.pop_back();
    known_.insert(known_.begin(), {cell, std::move(*request)});
    return &known_.front().second;
  }

 private:
  static constexpr size_t kKnownMax = 16;
  std::vector<std::pair<std::string_view, GpuRequest>> known_;
};

bool read_row(std::string_view line, GpuRequests& requests, JobSummary& job) {
  Cells cells;
  if (!split_line(line, cells)) return false;
  size_t next = 0;
  const auto cell = [&] { return cells[next++]; };
  uint64_t id = 0;
  int64_t submitted = 0;
  int64_t time_limit = 0;
  if (!read_number(cell(), id) || !read_text(cell(), job.display) || !read_text(cell(), job.name) ||
      !read_text(cell(), job.user) || !read_number(cell(), job.uid) || !read_text(cell(), job.queue) ||
      !read_enum(cell(), job.job_class) || !read_enum(cell(), job.state) ||
      !read_number(cell(), job.priority)) {
    return false;
  }
  const GpuRequest* gpu = requests.find(cell());
  if (gpu == nullptr || !read_indices(cell(), job.gpus)) return false;
  const std::string_view tier = cell();
  job.tier.reset();
  if (!tier.empty() && !read_enum(tier, job.tier.emplace())) return false;
  if (!read_number(cell(), submitted) || !read_time(cell(), job.started) || !read_time(cell(), job.ended) ||
      !read_number(cell(), time_limit) || !read_number(cell(), job.attempt) ||
      !read_text(cell(), job.reason)) {
    return false;
  }
  job.job = JobId(id);
  job.gpu = *gpu;
  job.submitted = Time(submitted);
  job.time_limit = Duration(time_limit);
  return true;
}

}  // namespace

void JobRowWriter::append(std::string& output, const JobSummary& job) {
  const auto next = [&output] { output += '\t'; };
  append_number(output, job.job.value());
  next();
  append_text(output, job.display);
  next();
  append_text(output, job.name.value_or(""));
  next();
  append_text(output, job.user);
  next();
  append_number(output, job.uid);
  next();
  append_text(output, job.queue);
  next();
  output += to_string(job.job_class);
  next();
  output += to_string(job.state);
  next();
  append_number(output, job.priority);
  next();
  if (last_gpu_text_.empty() || !(last_gpu_ == job.gpu)) {
    std::string json;
    json::Encoder(json, TimeSpelling::rfc3339).put(job.gpu, json::kPlain);
    last_gpu_text_.clear();
    append_text(last_gpu_text_, json);
    last_gpu_ = job.gpu;
  }
  output += last_gpu_text_;
  next();
  for (size_t i = 0; i < job.gpus.size(); ++i) {
    if (i > 0) output += ',';
    append_number(output, job.gpus[i]);
  }
  next();
  if (job.tier) output += to_string(*job.tier);
  next();
  append_number(output, job.submitted.nanoseconds());
  next();
  append_time(output, job.started);
  next();
  append_time(output, job.ended);
  next();
  append_number(output, job.time_limit.count());
  next();
  append_number(output, job.attempt);
  next();
  append_text(output, job.reason.value_or(""));
  output += '\n';
}

void append_job_row(std::string& output, const JobSummary& job) { JobRowWriter().append(output, job); }

Result<void> read_job_rows(std::string_view text, const std::function<void(const JobSummary& job)>& take) {
  // A newer daemon's heading goes on behind ours.
  constexpr std::string_view kKnown = kJobRowsHeading.substr(0, kJobRowsHeading.size() - 1);
  const size_t heading = text.find('\n');
  if (heading == std::string_view::npos || !text.starts_with(kKnown) ||
      (heading > kKnown.size() && text[kKnown.size()] != '\t')) {
    return fail(ErrorCode::corrupt, "the list of jobs does not begin with the names of its columns");
  }
  text.remove_prefix(heading + 1);
  GpuRequests requests;
  JobSummary job;
  for (size_t line = 2; !text.empty(); ++line) {
    const size_t end = text.find('\n');
    if (end == std::string_view::npos || !read_row(text.substr(0, end), requests, job)) {
      return fail(ErrorCode::corrupt, "line " + std::to_string(line) + " of the list of jobs cannot be read");
    }
    take(job);
    text.remove_prefix(end + 1);
  }
  return {};
}

}  // namespace tranche::api
