#include "cli/job_list.h"

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

// One page into `table`; the cursor of the next, or "" after the last.
Result<std::string> add_page(Daemon& daemon, const std::string& target, uid_t me, Time now, Table& table) {
  TRY_ASSIGN(const HttpReply reply,
             daemon.get_reply(target, {{"Accept", std::string(api::kJobRowsType) + ", application/json"}}));
  const std::string* type = reply.header("Content-Type");
  if (type != nullptr && type->starts_with(api::kJobRowsType)) {
    const auto read =
        api::read_job_rows(reply.body, [&](const api::JobSummary& job) { add_job(table, job, me, now); });
    if (!read) return fail(Error(read.error().clone()).with_context("cannot read the daemon's answer"));
    const std::string* cursor = reply.header("Tranche-Next-Cursor");
    return cursor == nullptr ? std::string() : *cursor;
  }
  // A daemon from before there were rows.
  TRY_ASSIGN(const api::JobList page, Daemon::decoded<api::JobList>(reply.body));
  for (const api::JobSummary& job : page.jobs) add_job(table, job, me, now);
  return page.next_cursor.value_or("");
}

}  // namespace

Result<Table> fetch_job_table(Daemon& daemon, const std::string& target, uid_t me, Time now) {
  Table table = empty_job_table();
  std::string page = target;
  add_query(page, "limit", kRowsPerPage);
  const std::string first = page;
  for (size_t pages = 0; pages < kRowPagesMax; ++pages) {
    TRY_ASSIGN(const std::string cursor, add_page(daemon, page, me, now, table));
    if (cursor.empty()) break;
    page = first;
    add_query(page, "cursor", cursor);
  }
  return table;
}

Table job_table(const std::vector<api::JobSummary>& jobs, uid_t me, Time now) {
  Table table = empty_job_table();
  for (const api::JobSummary& job : jobs) add_job(table, job, me, now);
  return table;
}

}  // namespace tranche::cli
