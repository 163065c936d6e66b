// --notify: whom to tell of a job, and of what.
#include "cli/job_request.h"
#include "cli/option_error.h"
#include "cli/text.h"
#include "codec/limits.h"

namespace tranche::cli {
namespace {

// "end" and "begin" as Slurm's users write them.
std::optional<api::NoticeKind> notice_kind(std::string_view word) {
  if (word == "end") return api::NoticeKind::ended;
  if (word == "start" || word == "begin") return api::NoticeKind::started;
  if (word == "fail") return api::NoticeKind::failed;
  return from_string<api::NoticeKind>(word);
}

}  // namespace

Result<std::vector<api::NotifyRequest>> parse_notify(std::string_view text) {
  std::vector<api::NotifyRequest> notices;
  for (const std::string& word : split(text, ' ')) {
    if (word.empty()) continue;
    const size_t colon = word.find(':');
    api::NotifyRequest notice{word.substr(0, colon), {}};
    const std::string events = colon == std::string::npos ? "ended" : word.substr(colon + 1);
    for (const std::string& event : split(events, ',')) {
      const auto kind = notice_kind(event);
      if (!kind) return invalid("there are started, ended and failed, not " + in_quotes(event));
      notice.events.push_back(*kind);
    }
    if (notice.where.empty()) return invalid("write mail:ended, or the name of a hook in the place of mail");
    notices.push_back(std::move(notice));
  }
  if (notices.empty() || notices.size() > limits::kNotices)
    return invalid("name one to " + std::to_string(limits::kNotices) + " receivers, such as mail:ended");
  return notices;
}

}  // namespace tranche::cli
