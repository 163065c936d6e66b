// GET /v1/jobs and /v1/history: pages of jobs, as JSON or as lines with tabs (codec/job_rows.h).
//
// A list of those that live costs by their number, however many have ended: the scheduler knows who lives.
#include "base/quantity_text.h"
#include "base/utf8.h"
#include "codec/job_rows.h"
#include "machine/api_server.h"

namespace tranche::machine {
namespace {

// Reasons are worked out for the first jobs of a page only: each looks at the queue before it.
constexpr size_t kReasonsPerPage = 200;

struct JobFilter {
  const std::string* user = nullptr;
  const std::string* queue = nullptr;
  std::optional<JobState> state;
  bool all = false;

  bool may_match_ended() const { return state ? is_final(*state) : all; }
  bool matches(const JobRecord& job) const {
    if (state ? job.state != *state : !all && is_final(job.state)) return false;
    if (user != nullptr && job.spec->owner.user != *user) return false;
    if (queue == nullptr) return true;
    const std::string& path = job.spec->queue;
    return path.starts_with(*queue) && (path.size() == queue->size() || path[queue->size()] == '/');
  }
};

Result<JobFilter> job_filter(const HttpRequest& request) {
  JobFilter filter;
  filter.user = request.query_value("user");
  filter.queue = request.query_value("queue");
  const std::string* all = request.query_value("all");
  filter.all = all != nullptr && *all == "true";
  if (const std::string* state = request.query_value("state")) {
    filter.state = from_string<JobState>(*state);
    if (!filter.state) {
      return fail(ErrorCode::invalid_argument,
                  "there is no state '" + printable_part(*state, 40) +
                      "': use pending, held, starting, running, suspended, stopping, completed, "
                      "failed, cancelled, timed_out, out_of_memory, node_failed or unknown");
    }
  }
  return filter;
}

bool wants_rows(const HttpRequest& request) {
  const std::string* accept = request.header("Accept");
  return accept != nullptr && accept->find(api::kJobRowsType) != std::string::npos;
}

// Takes jobs until the page is full, and says it in the form that was asked for.
class JobPage {
 public:
  JobPage(const HttpRequest& request, size_t limit) : as_rows_(wants_rows(request)), limit_(limit) {
    if (as_rows_) rows_ = api::kJobRowsHeading;
  }

  // False, and nothing taken, if the page is full.
  bool add(const ViewSource& source, const JobRecord& job, const Caller& caller) {
    if (count_ == limit_) {
      next_cursor_ = std::to_string(last_.value());
      return false;
    }
    api::JobSummary summary = job_summary(source, job, caller, count_ < kReasonsPerPage);
    if (as_rows_) {
      row_writer_.append(rows_, summary);
    } else {
      list_.jobs.push_back(std::move(summary));
    }
    last_ = job.id;
    ++count_;
    return true;
  }

  HttpResponse response() {
    if (!as_rows_) {
      list_.next_cursor = std::move(next_cursor_);
      return json_response(200, api::encode(list_));
    }
    HttpResponse response = json_response(200, std::move(rows_));
    response.content_type = api::kJobRowsType;
    if (next_cursor_) response.headers.push_back({"Tranche-Next-Cursor", *next_cursor_});
    return response;
  }

 private:
  bool as_rows_;
  size_t limit_;
  size_t count_ = 0;
  JobId last_;
  std::string rows_;
  api::JobRowWriter row_writer_;
  api::JobList list_;
  std::optional<std::string> next_cursor_;
};

Result<JobId> page_cursor(const HttpRequest& request) {
  const std::string* text = request.query_value("cursor");
  if (text == nullptr) return JobId();
  TRY_ASSIGN(const int64_t id, parse_integer(*text, 1, INT64_MAX / 2, "cursor"));
  return JobId(static_cast<uint64_t>(id));
}

}  // namespace

// A queue that nobody has and nobody had is a slip of the keyboard, not an empty list.
Result<void> ApiServer::check_queue(const std::string& queue) const {
  for (const QueueShare& share : parts_.engine.scheduler().shares()) {
    if (share.path == queue) return {};
  }
  for (const auto& [id, job] : parts_.engine.jobs().all()) {
    if (job.spec->queue == queue || job.spec->queue.starts_with(queue + "/")) return {};
  }
  return fail(ErrorCode::not_found,
              "there is no queue '" + printable_part(queue, 80) + "'; 'tranche queue' lists all");
}

void ApiServer::list_jobs(Call& call) {
  const auto filter = job_filter(call.request);
  if (!filter) return call.responder.respond(filter.error());
  if (filter->queue != nullptr) {
    if (const auto known = check_queue(*filter->queue); !known) return call.responder.respond(known.error());
  }
  const auto limit = page_limit(call.request);
  if (!limit) return call.responder.respond(limit.error());
  const auto cursor = page_cursor(call.request);
  if (!cursor) return call.responder.respond(cursor.error());
  const ViewSource source = view_source();
  JobPage page(call.request, *limit);
  const JobTable& table = parts_.engine.jobs();
  if (filter->may_match_ended()) {
    for (auto from = table.all().upper_bound(*cursor); from != table.all().end(); ++from) {
      if (filter->matches(from->second) && !page.add(source, from->second, call.caller)) break;
    }
  } else {
    const std::set<JobId>& live = table.live();
    for (auto id = live.upper_bound(*cursor); id != live.end(); ++id) {
      const JobRecord* job = table.find(*id);
      if (job != nullptr && filter->matches(*job) && !page.add(source, *job, call.caller)) break;
    }
  }
  call.responder.respond(page.response());
}

void ApiServer::history(Call& call) {
  Time since;
  if (const std::string* text = call.request.query_value("since")) {
    const auto time = parse_time(*text);
    if (!time) return call.responder.respond(time.error());
    since = *time;
  }
  const std::string* user = call.request.query_value("user");
  const auto limit = page_limit(call.request);
  if (!limit) return call.responder.respond(limit.error());
  const auto cursor = page_cursor(call.request);
  if (!cursor) return call.responder.respond(cursor.error());
  const ViewSource source = view_source();
  JobPage page(call.request, *limit);
  const auto& jobs = parts_.engine.jobs().all();
  auto from = cursor->is_set() ? jobs.lower_bound(*cursor) : jobs.end();
  while (from != jobs.begin()) {
    const JobRecord& job = (--from)->second;
    const bool wanted =
        is_final(job.state) && job.ended >= since && (user == nullptr || job.spec->owner.user == *user);
    if (wanted && !page.add(source, job, call.caller)) break;
  }
  call.responder.respond(page.response());
}

}  // namespace tranche::machine
