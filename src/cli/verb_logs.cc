// tranche logs: what a job wrote. The path comes from the daemon, the bytes from the file: read as the
// caller, so nobody reads what he may not.
#include <sys/eventfd.h>
#include <unistd.h>

#include <memory>
#include <thread>

#include "base/quantity_text.h"
#include "cli/arguments.h"
#include "cli/daemon.h"
#include "cli/job_ids.h"
#include "cli/job_text.h"
#include "cli/job_wait.h"
#include "cli/log_file.h"
#include "cli/option_error.h"
#include "cli/session.h"
#include "cli/text.h"
#include "cli/verbs.h"
#include "linux/system_error.h"

namespace tranche::cli {
namespace {

constexpr int64_t kLinesMax = 1'000'000'000;

Result<std::string> log_path(const Session& session, const api::JobDetail& job, bool standard_error) {
  const std::optional<std::string>& path = standard_error ? job.stderr_path : job.stdout_path;
  if (path && !path->empty()) return *path;
  if (job.uid != session.setup().uid && !job.directory) {
    return fail(ErrorCode::denied, "the log of " + job_label(job) + " belongs to " + printable(job.user) +
                                       "; only its owner can read it");
  }
  return fail(ErrorCode::not_found, job_label(job) + " has no log: its output went to whoever ran it");
}

Result<void> follow(const Session& session, const api::JobDetail& job, const std::string& path,
                    UniqueFd file) {
  // Shared with the thread that waits for the end, which after an error here is left to end with the process.
  const auto ended = std::make_shared<UniqueFd>(eventfd(is_final(job.state) ? 1 : 0, EFD_CLOEXEC));
  if (!ended->is_open()) return fail(system_error("wait for the job's end"));
  if (!is_final(job.state)) {
    std::thread([ended, socket = session.socket_path, id = job.job] {
      (void)wait_for_job(socket, id);  // a daemon that stays away ends the following too
      const uint64_t one = 1;
      [[maybe_unused]] const ssize_t written = write(ended->get(), &one, sizeof one);
    }).detach();
  }
  return follow_log(path, std::move(file), ended->get(), session.setup().output);
}

}  // namespace

Result<int> run_logs(Session& session, const Arguments& arguments) {
  size_t lines = 0;
  if (const std::string* value = arguments.find("lines")) {
    TRY_OPTION(const int64_t count, "--lines", parse_integer(*value, 0, kLinesMax, "the number of lines"));
    lines = static_cast<size_t>(count);
  }
  Daemon daemon(session);
  TRY_ASSIGN(const api::JobDetail job, find_job(daemon, session, arguments.words.front()));
  note_array(session, arguments.words, job, "logs");
  TRY_ASSIGN(const std::string path, log_path(session, job, arguments.has("stderr")));
  session.flush();

  Result<UniqueFd> file = open_log(path);
  const bool missing = !file && file.error().code() == ErrorCode::not_found;
  if (!file && !missing) return fail(std::move(file).error());
  if (missing && is_final(job.state)) {
    return fail(ErrorCode::not_found, "the log " + printable(path) + " is gone, or the job never wrote one");
  }
  if (missing && !arguments.has("follow")) {
    return fail(ErrorCode::not_found, job_label(job) + " is " + std::string(to_string(job.state)) +
                                          " and has no log yet; -f waits for it");
  }
  if (file && arguments.has("lines")) {
    TRY_ASSIGN(const int64_t offset, last_lines_offset(file->get(), lines));
    lseek(file->get(), lines == 0 ? 0 : offset, lines == 0 ? SEEK_END : SEEK_SET);
  }
  if (arguments.has("follow")) {
    TRY(follow(session, job, path, missing ? UniqueFd() : std::move(*file)));
  } else {
    TRY(copy_to_end(file->get(), session.setup().output));
  }
  return 0;
}

}  // namespace tranche::cli
