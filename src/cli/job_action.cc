#include "cli/job_action.h"

#include <algorithm>
#include <set>

#include "cli/arguments.h"
#include "cli/daemon.h"
#include "cli/job_ids.h"
#include "cli/job_list.h"
#include "cli/job_text.h"
#include "cli/option_error.h"
#include "cli/session.h"

namespace tranche::cli {
namespace {

// An action of one request on a whole array, and what is said of its elements.
struct ArrayAction {
  std::string_view action;
  std::string_view unchanged;  // of those that it does not concern
};
constexpr ArrayAction kArrayActions[] = {
    {"cancel", "had ended already"}, {"hold", "run or have ended"}, {"release", "were not held"}};

const ArrayAction* array_action(std::string_view action) {
  for (const ArrayAction& one : kArrayActions) {
    if (one.action == action) return &one;
  }
  return nullptr;
}

Result<std::vector<JobTarget>> own_jobs(Daemon& daemon, const Session& session, bool by_array) {
  std::string target = "/v1/jobs";
  add_query(target, "user", session.user());
  TRY_ASSIGN(FetchedJobs fetched, fetch_jobs(daemon, target, SIZE_MAX));
  std::vector<JobTarget> targets;
  std::set<JobId> arrays;
  for (api::JobSummary& job : fetched.list.jobs) {
    const bool of_array = by_array && job.array;
    if (of_array && !arrays.insert(job.array->first).second) continue;
    targets.push_back({std::move(job), of_array});
  }
  return targets;
}

Result<std::vector<JobTarget>> chosen_jobs(Daemon& daemon, const Session& session, const Arguments& arguments,
                                           bool by_array) {
  if (arguments.has("me")) {
    if (!arguments.words.empty()) return invalid("--me names all your jobs; leave out the ids");
    return own_jobs(daemon, session, by_array);
  }
  if (arguments.words.empty())
    return invalid("name the jobs, such as 7, 7_3, 7-9 or @, or all of yours with --me");
  if (by_array) return find_targets(daemon, session, arguments.words);
  TRY_ASSIGN(std::vector<api::JobDetail> found,
             find_jobs(daemon, session, arguments.words, BareArray::kWhole));
  std::vector<JobTarget> targets;
  for (api::JobDetail& job : found) targets.push_back({std::move(static_cast<api::JobSummary&>(job)), false});
  return targets;
}

// A job that runs takes its time to end, up to its grace: until then it holds what it holds.
std::string what_became_of(const std::string& answer, std::string_view done) {
  const auto after = Daemon::decoded<api::JobSummary>(answer);
  if (!after || after->state != JobState::stopping) return std::string(done);
  return done == "requeued" ? "is being stopped, and waits again then" : "is being ended";
}

// "array 7: 1990 cancelled, 8 being ended, 2 had ended already".
std::string what_became_of_array(const api::ArrayChange& change, std::string_view done,
                                 std::string_view unchanged) {
  std::string text;
  const auto tell = [&text](uint32_t count, std::string_view what) {
    if (count == 0) return;
    text += (text.empty() ? " " : ", ") + std::to_string(count) + " " + std::string(what);
  };
  tell(change.changed, done);
  tell(change.stopping, "being ended");
  tell(change.unchanged, unchanged);
  return "array " + std::to_string(change.array.value()) + ":" + text;
}

std::string label(const JobTarget& target) {
  if (!target.whole_array) return job_label(target.job);
  return "array " + std::to_string(target.job.array->first.value());
}

// The sentence to print, of an answer that is no problem.
Result<std::string> sentence(const JobTarget& target, const std::string& answer, std::string_view action,
                             std::string_view done) {
  if (!target.whole_array) return job_label(target.job) + " " + what_became_of(answer, done);
  TRY_ASSIGN(const api::ArrayChange change, Daemon::decoded<api::ArrayChange>(answer));
  return what_became_of_array(change, done, array_action(action)->unchanged);
}

std::string request_target(const JobTarget& target, std::string_view action) {
  const uint64_t id = target.whole_array ? target.job.array->first.value() : target.job.job.value();
  return (target.whole_array ? "/v1/arrays/" : "/v1/jobs/") + std::to_string(id) + "/" + std::string(action);
}

}  // namespace

Result<int> act_on_jobs(Session& session, const Arguments& arguments, std::string_view action,
                        std::string_view done) {
  Daemon daemon(session);
  TRY_ASSIGN(std::vector<JobTarget> targets,
             chosen_jobs(daemon, session, arguments, array_action(action) != nullptr));
  // The last ones first: a slice that an ended job gives back goes to one that is not to run either
  // otherwise.
  std::sort(targets.begin(), targets.end(),
            [](const JobTarget& a, const JobTarget& b) { return a.job.job > b.job.job; });
  if (targets.empty()) session.note("you have no job that waits or runs\n");
  int worst = 0;
  for (const JobTarget& target : targets) {
    if (arguments.has("dry-run")) {
      session.print("would be " + std::string(done) + ": " + label(target) + "\n");
      continue;
    }
    const Result<std::string> answer = daemon.post(request_target(target, action));
    if (!answer) {
      session.warn(answer.error().message());
      worst = std::max(worst, exit_code(answer.error().code()));
      if (answer.error().code() == ErrorCode::unavailable) break;
    } else if (arguments.has("json")) {
      session.print_json(*answer);
    } else {
      TRY_ASSIGN(const std::string text, sentence(target, *answer, action, done));
      session.print(text + "\n");
    }
  }
  return worst;
}

}  // namespace tranche::cli
