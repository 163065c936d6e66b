// How people name jobs: 7, an array's element 7_3, its elements 7_[1-3,5], a range 7-9, a list 7,8, and @ for
// the last job that they submitted, @-1 for the one before.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "codec/api.h"

namespace tranche::cli {

class Daemon;
class Session;

inline constexpr size_t kReferencedJobsMax = 100'000;

struct JobReference {
  enum class Kind : unsigned char { kJob, kElement, kRecent };
  Kind kind = Kind::kJob;
  uint64_t job = 0;    // kJob; kElement: the array's first job
  uint32_t index = 0;  // kElement
  uint32_t back = 0;   // kRecent: 0 is the last one
  bool operator==(const JobReference&) const = default;
};

// One word into the jobs that it names, in its order.
Result<std::vector<JobReference>> parse_job_references(std::string_view text);

// What a bare array id means: its first element, every element of it, or the array as one thing, of which its
// first element is found.
enum class BareArray : unsigned char { kFirst, kWhole, kAsOne };

// All words into existing jobs, each once, in order. Asks the daemon about elements, arrays and @.
Result<std::vector<api::JobDetail>> find_jobs(Daemon& daemon, const Session& session,
                                              std::span<const std::string> words, BareArray bare);
// A job, or an array of which `job` is an element.
struct JobTarget {
  api::JobSummary job;
  bool whole_array = false;
};
// The same with arrays as they were named; elements of an array that is named as a whole are left out.
Result<std::vector<JobTarget>> find_targets(Daemon& daemon, const Session& session,
                                            std::span<const std::string> words);
// Tells whoever named a whole array where one job is meant that it is its first element which is shown.
void note_array(Session& session, std::span<const std::string> words, const api::JobSummary& job,
                std::string_view verb);
// Exactly one job.
Result<api::JobDetail> find_job(Daemon& daemon, const Session& session, const std::string& word);

}  // namespace tranche::cli
