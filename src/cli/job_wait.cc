#include "cli/job_wait.h"

#include <poll.h>
#include <time.h>

#include "cli/daemon.h"

namespace tranche::cli {
namespace {

constexpr Duration kRetryPause = 200 * kMillisecond;

Time boot_time() {
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  return Time(int64_t{now.tv_sec} * kSecond.count() + now.tv_nsec);
}

}  // namespace

Result<api::JobSummary> wait_for_job(const std::string& socket_path, JobId job) {
  // The daemon answers 504 before the client would take its silence for death.
  const std::string target = "/v1/jobs/" + std::to_string(job.value()) + "/wait?timeout=20s";
  Daemon daemon(socket_path, kMinute);
  Time lost_since;
  while (true) {
    Result<api::JobSummary> answer = daemon.get_as<api::JobSummary>(target);
    if (answer) return answer;
    const ErrorCode code = answer.error().code();
    if (code == ErrorCode::timed_out) {
      lost_since = Time();
      continue;
    }
    if (code != ErrorCode::unavailable) return answer;
    const Time now = boot_time();
    if (!lost_since.is_set()) lost_since = now;
    if (now - lost_since > kDaemonPatience) return answer;
    poll(nullptr, 0, static_cast<int>(kRetryPause.count() / kMillisecond.count()));
  }
}

}  // namespace tranche::cli
