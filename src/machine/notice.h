// What hooks and mail tell: facts out of rows of the journal.
//
// A notice's id is its row's number and its job's or GPU's, so that whoever hears it twice can know: it is
// sent at least once.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "codec/api.h"
#include "machine/journal.h"
#include "machine/views.h"

namespace tranche::machine {

struct Notice {
  enum class Kind : unsigned char { kStarted, kEnded, kAlert };
  EventSeq seq;
  Time time;
  Kind kind = Kind::kEnded;
  JobId job;            // of kStarted and kEnded
  GpuId gpu;            // of kAlert
  std::string text;     // of kAlert: a sentence
  bool failed = false;  // kEnded: otherwise than completed

  std::string id() const;  // "1704-job7", "1704-gpu2"
};

// In the order of the row. A job starts once an attempt: with its first task.
std::vector<Notice> notices_of(const JournalRow& row);

// Whether `asked`, of a job's own wishes, names this notice.
bool asks_for(const std::vector<api::NoticeKind>& asked, const Notice& notice);

// Wishes are for an array as a whole: it has started with its first element, and it has ended with its last.
// What was found of an array is remembered, so that all its notices together look at each element about once.
class WholeArrays {
 public:
  // Sets `failed` if any element failed. True for a job that is of no array.
  bool is_of_the_whole(const JobTable& jobs, Notice& notice);

 private:
  struct Known {
    bool has_started = false;
    uint64_t ended = 0;  // so many elements from the first on have ended, and nothing undoes that
    JobId last;          // the one that ended last; unset until all have ended
    bool failed = false;
  };
  static constexpr size_t kArraysMax = 10'000;
  std::map<uint64_t, Known> known_;  // by array
};

// {"id":...,"event":"job_ended","time":...,"node":...,"job":{...}} with what everybody may see of a job, or
// {"id":...,"event":"alert","gpu":2,"text":...}.
std::string notice_json(const ViewSource& source, const Notice& notice);

// A whole message, for the job's owner.
std::string notice_mail(const ViewSource& source, const Notice& notice, const std::string& from,
                        const std::string& recipient);
// Whom a mail about `job` goes to; "" if the name could not stand in a header.
std::string mail_recipient(const JobRecord& job, const std::string& domain);

}  // namespace tranche::machine
