#include "machine/notice.h"

#include <algorithm>

#include "base/json_writer.h"
#include "base/quantity_text.h"
#include "base/utf8.h"

namespace tranche::machine {
namespace {

Notice notice_at(const JournalRow& row, Notice::Kind kind) {
  Notice notice;
  notice.seq = row.event.seq;
  notice.time = row.event.time;
  notice.kind = kind;
  return notice;
}

bool is_worth_an_alert(Health health) { return health != Health::ok; }

const char* event_word(const Notice& notice) {
  switch (notice.kind) {
    case Notice::Kind::kStarted:
      return "job_started";
    case Notice::Kind::kEnded:
      return "job_ended";
    case Notice::Kind::kAlert:
      return "alert";
  }
  return "";
}

bool is_later(const JobRecord& a, const JobRecord& b) {
  return a.ended != b.ended ? a.ended > b.ended : a.id > b.id;
}

// Whether an element of the job's array had started before it.
bool had_started_before(const JobTable& jobs, const JobRecord& job) {
  for (uint64_t i = 0; i < job.array_count; ++i) {
    const JobRecord* element = jobs.find(JobId(job.array.value() + i));
    if (element == nullptr || element->id == job.id) continue;
    if (element->attempt > 1 || (element->started.is_set() && element->started < job.started)) return true;
  }
  return false;
}

std::string end_text(const api::JobSummary& job) {
  std::string text(to_string(job.state));
  if (job.exit_code && *job.exit_code != 0) text += ", exit code " + std::to_string(*job.exit_code);
  if (job.signal) text += ", signal " + std::to_string(*job.signal);
  return text;
}

}  // namespace

std::string Notice::id() const {
  return std::to_string(seq.value()) +
         (kind == Kind::kAlert ? "-gpu" + std::to_string(gpu.value()) : "-job" + std::to_string(job.value()));
}

std::vector<Notice> notices_of(const JournalRow& row) {
  std::vector<Notice> notices;
  if (const auto* started = std::get_if<TaskStarted>(&row.event.payload)) {
    if (started->task.rank == 0) {
      notices.push_back(notice_at(row, Notice::Kind::kStarted));
      notices.back().job = started->task.job;
    }
  } else if (const auto* health = std::get_if<HealthChanged>(&row.event.payload)) {
    if (is_worth_an_alert(health->health)) {
      notices.push_back(notice_at(row, Notice::Kind::kAlert));
      notices.back().gpu = health->gpu;
      notices.back().text = std::string(to_string(health->health)) + ": " + health->reason;
    }
  } else if (const auto* drained = std::get_if<GpuDrained>(&row.event.payload)) {
    notices.push_back(notice_at(row, Notice::Kind::kAlert));
    notices.back().gpu = drained->gpu;
    notices.back().text = "drained by " + drained->by + ": " + drained->reason;
  }
  for (const Decision& decision : row.decisions) {
    const auto* end = std::get_if<End>(&decision);
    if (end == nullptr) continue;
    notices.push_back(notice_at(row, Notice::Kind::kEnded));
    notices.back().job = end->job;
    notices.back().failed = end->state != JobState::completed;
  }
  return notices;
}

bool asks_for(const std::vector<api::NoticeKind>& asked, const Notice& notice) {
  return std::any_of(asked.begin(), asked.end(), [&](api::NoticeKind kind) {
    switch (kind) {
      case api::NoticeKind::started:
        return notice.kind == Notice::Kind::kStarted;
      case api::NoticeKind::ended:
        return notice.kind == Notice::Kind::kEnded;
      case api::NoticeKind::failed:
        return notice.kind == Notice::Kind::kEnded && notice.failed;
    }
    return false;
  });
}

bool WholeArrays::is_of_the_whole(const JobTable& jobs, Notice& notice) {
  const JobRecord* job = jobs.find(notice.job);
  if (job == nullptr || !job->array.is_set()) return job != nullptr;
  if (known_.size() >= kArraysMax) known_.clear();
  Known& known = known_[job->array.value()];
  if (notice.kind == Notice::Kind::kStarted) {
    if (known.has_started) return false;
    known.has_started = true;
    return !had_started_before(jobs, *job);
  }
  while (known.ended < job->array_count) {
    const JobRecord* element = jobs.find(JobId(job->array.value() + known.ended));
    if (element != nullptr && !is_final(element->state)) return false;
    ++known.ended;
    if (element == nullptr) continue;
    if (element->state != JobState::completed) known.failed = true;
    const JobRecord* last = jobs.find(known.last);
    if (last == nullptr || is_later(*element, *last)) known.last = element->id;
  }
  notice.failed = known.failed;
  return known.last == job->id;
}

std::string notice_json(const ViewSource& source, const Notice& notice) {
  std::string text = R"({"id":")" + notice.id() + R"(","event":")" + event_word(notice) + R"(","time":")" +
                     format_time(notice.time) + R"(","node":)";
  append_json_string(text, source.gpus.node_name());
  if (notice.kind == Notice::Kind::kAlert) {
    const Gpu* gpu = source.gpus.find(notice.gpu);
    if (gpu != nullptr) text += R"(,"gpu":)" + std::to_string(gpu->index);
    text += R"(,"text":)";
    append_json_string(text, notice.text);
  } else if (const JobRecord* job = source.engine.jobs().find(notice.job)) {
    Caller nobody;
    nobody.uid = UINT32_MAX;  // sees what everybody may
    text += R"(,"job":)" + api::encode(job_summary(source, *job, nobody, true));
  }
  return text + "}";
}

std::string mail_recipient(const JobRecord& job, const std::string& domain) {
  const std::string& user = job.spec->owner.user;
  const bool is_plain = !user.empty() && user[0] != '-' && std::all_of(user.begin(), user.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
  });
  if (!is_plain) return "";
  return domain.empty() ? user : user + "@" + domain;
}

// Only what cannot hold a line end stands in the head; the job's name is the owner's own text, in the body.
std::string notice_mail(const ViewSource& source, const Notice& notice, const std::string& from,
                        const std::string& recipient) {
  const JobRecord* job = source.engine.jobs().find(notice.job);
  if (job == nullptr) return "";
  Caller owner;
  owner.uid = job->spec->owner.uid;
  const api::JobSummary summary = job_summary(source, *job, owner, true);
  const bool started = notice.kind == Notice::Kind::kStarted;
  const std::string thing =
      job->array.is_set() ? "array " + std::to_string(job->array.value()) : "job " + job->display();
  const std::string what = started                ? "has started"
                           : !job->array.is_set() ? "has ended: " + end_text(summary)
                           : notice.failed        ? "has ended: not every element completed"
                                                  : "has ended: every element completed";
  std::string text =
      "From: " + from + "\nTo: " + recipient + "\nSubject: Tranche: " + thing + " " + what +
      "\nMessage-ID: <tranche." + notice.id() + "@" + printable_part(source.gpus.node_name(), 64) +
      ">\nMIME-Version: 1.0\nContent-Type: text/plain; charset=utf-8\nAuto-Submitted: auto-generated\n\n";
  text += thing + (summary.name ? " (" + *summary.name + ")" : "") + " " + what + ".\n\n";
  text += "Machine  " + source.gpus.node_name() + "\nQueue    " + summary.queue + "\n";
  if (summary.reason && !started) text += "Reason   " + *summary.reason + "\n";
  if (summary.started && summary.ended)
    text += "Ran      " +
            format_duration(
                Duration((*summary.ended - *summary.started).count() / kSecond.count() * kSecond.count())) +
            "\n";
  text += "\nMore: tranche show " +
          (job->array.is_set() ? std::to_string(job->array.value()) : job->display()) + "\n";
  return text;
}

}  // namespace tranche::machine
