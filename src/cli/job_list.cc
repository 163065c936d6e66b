#include "cli/job_list.h"

#include <future>
#include <iterator>

#include "cli/daemon.h"
#include "cli/job_text.h"
#include "codec/job_rows.h"

namespace tranche::cli {

Result<FetchedJobs> fetch_jobs(Daemon& daemon, const std::string& target, size_t enough) {
  FetchedJobs fetched;
  TRY_ASSIGN(fetched.json, daemon.get(target));
  TRY_ASSIGN(fetched.list, Daemon::decoded<api::JobList>(fetched.json));
  std::vector<api::JobSummary>& jobs = fetched.list.jobs;
  if (!fetched.list.next_cursor || jobs.size() >= enough) return fetched;
  constexpr size_t kPagesMax = 10'000;
  for (size_t pages = 1; pages < kPagesMax && fetched.list.next_cursor && jobs.size() < enough; ++pages) {
    std::string next = target;
    add_query(next, "cursor", *fetched.list.next_cursor);
    TRY_ASSIGN(api::JobList page, daemon.get_as<api::JobList>(next));
    jobs.insert(jobs.end(), std::make_move_iterator(page.jobs.begin()),
                std::make_move_iterator(page.jobs.end()));
    fetched.list.next_cursor = std::move(page.next_cursor);
  }
  if (jobs.size() > enough) jobs.resize(enough);
  fetched.json = api::encode(fetched.list);
  return fetched;
}

namespace {

// Few enough that the daemon's loop turns between pages, many enough that a page's round trip does not show.
constexpr const char* kRowsPerPage = "2000";
constexpr size_t kRowPagesMax = 100'000;

Table empty_job_table() {
  return Table({{.title = "ID", .right = true},
                {.title = "NAME", .width_min = 6},
                {.title = "USER", .width_min = 6},
                {.title = "QUEUE", .width_min = 14, .leaves = 5},
                {.title = "CLASS", .width_min = 9, .leaves = 6},
                {.title = "STATE", .width_min = 7},
                {.title = "GPU", .width_min = 4, .leaves = 1},
                {.title = "GPUS", .width_min = 4, .leaves = 3},
                {.title = "TIME", .right = true, .leaves = 2},
                {.title = "LIMIT", .right = true, .leaves = 4},
                {.title = "REASON", .width_min = 10}});
}

void add_job(Table& table, const api::JobSummary& job, uid_t me, Time now) {
  table.add({{job.display},
             {job.name.value_or("-")},
             {job.user},
             {job.queue},
             {std::string(to_string(job.job_class))},
             {std::string(to_string(job.state)), state_style(job.state)},
             {gpu_text(job)},
             {indices_text(job.gpus)},
             {elapsed_text(job, now)},
             {duration_text(job.time_limit)},
             {with_local_times(job.reason.value_or(""))}},
            job.uid == me ? Style::kBold : Style::kPlain);
}

Result<HttpReply> ask_for_page(Daemon& daemon, const std::string& target) {
  return daemon.get_reply(target, {{"Accept", std::string(api::kJobRowsType) + ", application/json"}});
}

bool holds_rows(const HttpReply& reply) {
  const std::string* type = reply.header("Content-Type");
  return type != nullptr && type->starts_with(api::kJobRowsType);
}

}  // namespace

// The daemon makes the next page while the last one is read: with 10,000 jobs either takes as long as the
// other.
Result<Table> fetch_job_table(Daemon& daemon, const std::string& target, uid_t me, Time now) {
  Table table = empty_job_table();
  std::string first = target;
  add_query(first, "limit", kRowsPerPage);
  const auto page_after = [&first](const std::string& cursor) {
    std::string page = first;
    add_query(page, "cursor", cursor);
    return page;
  };
  TRY_ASSIGN(HttpReply reply, ask_for_page(daemon, first));
  for (size_t pages = 1;; ++pages) {
    std::string cursor;
    // One thread at a time asks the daemon. Going out of scope waits for it.
    std::future<Result<HttpReply>> next;
    if (holds_rows(reply)) {
      if (const std::string* found = reply.header("Tranche-Next-Cursor")) cursor = *found;
      if (!cursor.empty())
        next = std::async(std::launch::async, [&] { return ask_for_page(daemon, page_after(cursor)); });
      const auto read =
          api::read_job_rows(reply.body, [&](const api::JobSummary& job) { add_job(table, job, me, now); });
      if (!read) return fail(Error(read.error().clone()).with_context("cannot read the daemon's answer"));
    } else {
      // A daemon from before there were rows.
      TRY_ASSIGN(const api::JobList page, Daemon::decoded<api::JobList>(reply.body));
      for (const api::JobSummary& job : page.jobs) add_job(table, job, me, now);
      cursor = page.next_cursor.value_or("");
    }
    if (cursor.empty() || pages == kRowPagesMax) return table;
    TRY_ASSIGN(reply, next.valid() ? next.get() : ask_for_page(daemon, page_after(cursor)));
  }
}

Table job_table(const std::vector<api::JobSummary>& jobs, uid_t me, Time now) {
  Table table = empty_job_table();
  for (const api::JobSummary& job : jobs) add_job(table, job, me, now);
  return table;
}

}  // namespace tranche::cli
