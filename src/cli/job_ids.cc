#include "cli/job_ids.h"

#include <algorithm>
#include <set>

#include "base/quantity_text.h"
#include "cli/daemon.h"
#include "cli/option_error.h"
#include "cli/session.h"
#include "cli/text.h"
#include "codec/limits.h"

namespace tranche::cli {
namespace {

constexpr std::string_view kForms = "write a job as 7, 7_3, 7_[1-3], 7-9, @ or @-1";

struct NumberRange {
  int64_t first = 0;
  int64_t last = 0;
};

Result<NumberRange> parse_range(std::string_view text, int64_t low, int64_t high, std::string_view what) {
  const size_t dash = text.find('-');
  NumberRange range;
  TRY_ASSIGN(range.first, parse_integer(text.substr(0, dash), low, high, what));
  range.last = range.first;
  if (dash != std::string_view::npos) {
    TRY_ASSIGN(range.last, parse_integer(text.substr(dash + 1), low, high, what));
  }
  if (range.last < range.first) return invalid("the range " + in_quotes(text) + " is backwards");
  if (range.last - range.first >= static_cast<int64_t>(kReferencedJobsMax)) {
    return invalid("the range " + in_quotes(text) + " names more than " + std::to_string(kReferencedJobsMax) +
                   " jobs");
  }
  return range;
}

Result<JobReference> parse_recent(std::string_view text) {
  JobReference reference{.kind = JobReference::Kind::kRecent};
  if (text == "@") return reference;
  if (!text.starts_with("@-")) return invalid(in_quotes(text) + " is not a job; " + std::string(kForms));
  TRY_ASSIGN(const int64_t back, parse_integer(text.substr(2), 1, 10'000, "the number behind @-"));
  reference.back = static_cast<uint32_t>(back);
  return reference;
}

Result<void> add_elements(std::string_view array, std::string_view indices,
                          std::vector<JobReference>& references) {
  TRY_ASSIGN(const int64_t job, parse_integer(array, 1, limits::kIdMax, "a job's id"));
  const bool bracketed = indices.starts_with('[') && indices.ends_with(']') && indices.size() > 2;
  if (bracketed) indices = indices.substr(1, indices.size() - 2);
  if (!bracketed && indices.find_first_of("-[]") != std::string_view::npos) {
    return invalid("write several elements of an array as " + std::string(array) + "_[1-3]");
  }
  for (const std::string& part : split(indices, ',')) {
    TRY_ASSIGN(const NumberRange range, parse_range(part, 0, limits::kArrayIndexMax, "an array index"));
    for (int64_t index = range.first; index <= range.last; ++index) {
      references.push_back({.kind = JobReference::Kind::kElement,
                            .job = static_cast<uint64_t>(job),
                            .index = static_cast<uint32_t>(index)});
    }
  }
  return {};
}

// Commas that are not within brackets.
std::vector<std::string> split_list(std::string_view text) {
  std::vector<std::string> parts(1);
  int depth = 0;
  for (const char c : text) {
    depth += c == '[' ? 1 : c == ']' ? -1 : 0;
    if (c == ',' && depth == 0) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

std::string job_target(uint64_t job) { return "/v1/jobs/" + std::to_string(job); }

// What a job was submitted as: an array's elements were one submission.
uint64_t submission(const api::JobSummary& job) {
  return job.array ? job.array->first.value() : job.job.value();
}

bool is_element_of(const api::JobSummary& job, uint64_t first) {
  return job.array && job.array->first.value() == first;
}

class Finder {
 public:
  Finder(Daemon& daemon, const Session& session, BareArray bare)
      : daemon_(daemon), session_(session), bare_(bare) {}

  Result<void> find(const JobReference& reference) {
    switch (reference.kind) {
      case JobReference::Kind::kJob:
        return find_submission(reference.job);
      case JobReference::Kind::kElement:
        return find_element(reference.job, reference.index);
      case JobReference::Kind::kRecent: {
        TRY_ASSIGN(const uint64_t job, recent_submission(reference.back));
        return find_submission(job);
      }
    }
    return {};
  }

  std::vector<api::JobDetail> take() { return std::move(found_); }
  // Ids of arrays that were found as one.
  const std::set<uint64_t>& arrays() const { return arrays_; }

 private:
  Result<api::JobDetail> get(uint64_t job) { return daemon_.get_as<api::JobDetail>(job_target(job)); }

  void add(api::JobDetail job) {
    const bool known = std::any_of(found_.begin(), found_.end(),
                                   [&](const api::JobDetail& other) { return other.job == job.job; });
    if (!known) found_.push_back(std::move(job));
  }

  Result<void> find_submission(uint64_t id) {
    TRY_ASSIGN(api::JobDetail job, get(id));
    const bool whole_array = bare_ == BareArray::kWhole && is_element_of(job, id);
    if (bare_ == BareArray::kAsOne && is_element_of(job, id)) arrays_.insert(id);
    add(std::move(job));
    // Elements have consecutive ids from the array's own.
    for (uint64_t next = id + 1; whole_array && next < id + kReferencedJobsMax; ++next) {
      Result<api::JobDetail> element = get(next);
      if (!element && element.error().code() != ErrorCode::not_found) return fail(std::move(element).error());
      if (!element || !is_element_of(*element, id)) break;
      add(std::move(*element));
    }
    return {};
  }

  // Elements have ascending ids and ascending indices, so the one at `index` lies at most index - first index
  // behind the first one; without gaps exactly there, otherwise it is found by halving.
  Result<void> find_element(uint64_t array, uint32_t index) {
    const std::string shown = std::to_string(array) + "_" + std::to_string(index);
    TRY_ASSIGN(api::JobDetail first, get(array));
    if (!is_element_of(first, array)) {
      return fail(ErrorCode::not_found,
                  "job " + std::to_string(array) + " is not an array; 'tranche ls' lists yours");
    }
    if (first.array->index == index) {
      add(std::move(first));
      return {};
    }
    uint64_t low = array + 1;
    uint64_t high = index > first.array->index ? array + (index - first.array->index) : array;
    uint64_t guess = high;
    while (low <= high) {
      Result<api::JobDetail> element = get(guess);
      if (!element && element.error().code() != ErrorCode::not_found) return fail(std::move(element).error());
      const bool beyond = !element || !is_element_of(*element, array) || element->array->index > index;
      if (!beyond && element->array->index == index) {
        add(std::move(*element));
        return {};
      }
      if (beyond) {
        high = guess - 1;
      } else {
        low = guess + 1;
      }
      guess = low + (high - low) / 2;
    }
    return fail(ErrorCode::not_found, "there is no element " + shown + "; 'tranche ls --all' lists yours");
  }

  // The caller's submissions, newest first: those that live and those that ended.
  Result<uint64_t> recent_submission(uint32_t back) {
    std::vector<uint64_t> ids;
    std::string live = "/v1/jobs";
    add_query(live, "user", session_.user());
    TRY(collect(live, SIZE_MAX, ids));
    std::string ended = "/v1/history";
    add_query(ended, "user", session_.user());
    add_query(ended, "limit", "100");
    TRY(collect(ended, back + 1, ids));
    std::sort(ids.begin(), ids.end(), std::greater<>());
    ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
    if (back < ids.size()) return ids[back];
    return fail(ErrorCode::not_found, ids.empty() ? "you have submitted no job yet"
                                                  : "you have submitted only " + std::to_string(ids.size()) +
                                                        " jobs that are still known");
  }

  // Follows the cursors until `enough` different submissions are there.
  Result<void> collect(const std::string& target, size_t enough, std::vector<uint64_t>& ids) {
    std::vector<uint64_t> mine;
    std::string page = target;
    for (size_t pages = 0; pages < 1'000; ++pages) {
      TRY_ASSIGN(const api::JobList list, daemon_.get_as<api::JobList>(page));
      for (const api::JobSummary& job : list.jobs) {
        const uint64_t id = submission(job);
        if (mine.empty() || mine.back() != id) mine.push_back(id);
      }
      if (!list.next_cursor || mine.size() >= enough) break;
      page = target;
      add_query(page, "cursor", *list.next_cursor);
    }
    ids.insert(ids.end(), mine.begin(), mine.end());
    return {};
  }

  Daemon& daemon_;
  const Session& session_;
  BareArray bare_;
  std::vector<api::JobDetail> found_;
  std::set<uint64_t> arrays_;
};

Result<void> find_all(Finder& finder, std::span<const std::string> words) {
  std::vector<JobReference> references;
  for (const std::string& word : words) {
    TRY_ASSIGN(const std::vector<JobReference> named, parse_job_references(word));
    references.insert(references.end(), named.begin(), named.end());
  }
  for (const JobReference& reference : references) TRY(finder.find(reference));
  return {};
}

}  // namespace

Result<std::vector<JobReference>> parse_job_references(std::string_view text) {
  std::vector<JobReference> references;
  for (const std::string& part : split_list(text)) {
    const size_t underscore = part.find('_');
    if (part.empty())
      return invalid("a job's id is missing in " + in_quotes(text) + "; " + std::string(kForms));
    if (part.front() == '@') {
      TRY_ASSIGN(const JobReference recent, parse_recent(part));
      references.push_back(recent);
    } else if (part.find_first_not_of("0123456789_-[],") != std::string::npos) {
      return invalid(in_quotes(part) + " is not a job; " + std::string(kForms));
    } else if (underscore != std::string::npos) {
      const std::string_view view = part;
      TRY(add_elements(view.substr(0, underscore), view.substr(underscore + 1), references));
    } else {
      TRY_ASSIGN(const NumberRange range, parse_range(part, 1, limits::kIdMax, "a job's id"));
      for (int64_t id = range.first; id <= range.last; ++id) {
        references.push_back({.kind = JobReference::Kind::kJob, .job = static_cast<uint64_t>(id)});
      }
    }
    if (references.size() > kReferencedJobsMax) {
      return invalid("that names more than " + std::to_string(kReferencedJobsMax) + " jobs; do it in parts");
    }
  }
  return references;
}

Result<std::vector<api::JobDetail>> find_jobs(Daemon& daemon, const Session& session,
                                              std::span<const std::string> words, BareArray bare) {
  Finder finder(daemon, session, bare);
  TRY(find_all(finder, words));
  return finder.take();
}

Result<std::vector<JobTarget>> find_targets(Daemon& daemon, const Session& session,
                                            std::span<const std::string> words) {
  Finder finder(daemon, session, BareArray::kAsOne);
  TRY(find_all(finder, words));
  std::vector<JobTarget> targets;
  for (api::JobDetail& job : finder.take()) {
    const bool of_whole = job.array && finder.arrays().contains(job.array->first.value());
    if (of_whole && job.array->first != job.job) continue;
    targets.push_back({std::move(static_cast<api::JobSummary&>(job)), of_whole});
  }
  return targets;
}

void note_array(Session& session, std::span<const std::string> words, const api::JobSummary& job,
                std::string_view verb) {
  if (!job.array || job.job != job.array->first) return;
  const std::string bare = std::to_string(job.array->first.value());
  if (std::find(words.begin(), words.end(), bare) == words.end()) return;
  session.note("job " + bare + " is an array, of which this is element " + std::to_string(job.array->index) +
               "; of another one: tranche " + std::string(verb) + " " + bare + "_" +
               std::to_string(job.array->index + 1) + "\n");
}

Result<api::JobDetail> find_job(Daemon& daemon, const Session& session, const std::string& word) {
  TRY_ASSIGN(std::vector<api::JobDetail> jobs, find_jobs(daemon, session, {&word, 1}, BareArray::kFirst));
  if (jobs.size() != 1) return invalid(in_quotes(word) + " names several jobs; name one");
  return std::move(jobs.front());
}

}  // namespace tranche::cli
