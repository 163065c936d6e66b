// The second line behind the guard: what the driver says that each job's processes hold of a GPU, against
// what the job may hold and against what the arbiter has charged.
//
// Two findings: a job over its part, and a job that uses memory past the guard (more than is charged, or a
// process that the arbiter does not know), though within its part. What is done about them, in grades, is
// [watchdog] of the configuration: a line in the log after three looks, then the job is paused, then ended.
// A paused job continues by itself when it is not over any more. A GPU on which a job is over its part gets
// no new job meanwhile: what is promised there is not there. The clocks of
// grades go on over a restart of the daemon.
//
// No answer from the driver means that nothing is known: nothing is found, and what was found stays as it
// was. Threading: the reactor's thread.
#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/reactor.h"
#include "codec/api.h"
#include "codec/config.h"
#include "machine/engine.h"
#include "machine/gpu_drains.h"
#include "machine/task_host.h"

namespace tranche::machine {

struct OverShare {
  enum class Kind { over, unguarded };
  Kind kind = Kind::over;
  JobId job;
  uint32_t gpu = 0;  // index
  std::string user;
  std::string display;  // of the job, as users write it
  MiB held;
  MiB part;
  MiB promised;  // of the part, its guarantee
  MiB charged;
  bool is_counted = true;  // false: its programs go around the guard
};

// What drivers count beside what the guard can know.
inline constexpr MiB kShareSlack{256};

// Jobs that hold more than their part and the slack, or 2 % of the part if that is more; and jobs that hold
// as much more than is charged, or with a process that the guard did not register: of those, the ones that
// hold more than their guarantee are over, too, for they borrow where nobody can call it in.
std::vector<OverShare> over_shares(const api::GpuList& gpus);
std::string to_text(const OverShare& over);

// What doctor says of it.
api::DoctorCheck share_check(const api::GpuList& gpus);

// The clocks of grades, for the next run of the daemon: a line for each, job, GPU and nanoseconds since boot.
inline constexpr const char* kWatchdogNote = "watchdog";

class ShareWatch {
 public:
  struct Parts {
    Reactor& reactor;
    Engine& engine;
    TaskHost& host;
    GpuDrains& drains;
    const DaemonConfig& config;
  };
  // `earlier`: what the journal's note kWatchdogNote says, of a run in the same boot; "" otherwise.
  explicit ShareWatch(Parts parts, const std::string& earlier = "");

  void look(const api::GpuList& gpus);
  // "" if there is nothing to say of the job.
  std::string note(JobId job) const;

 private:
  static constexpr int kLooks = 3;  // in a row, before it is said: memory that comes and goes is no news

  struct Case {
    OverShare last;
    int looks = 0;
    Duration since;
    std::set<TaskKey> paused;
    bool ended = false;
  };
  using Key = std::pair<JobId, uint32_t>;

  void continue_paused();
  void keep_newcomers_away(const api::GpuList& gpus);
  void remember();
  void act(Case& found);
  void report(const Case& found) const;
  void pause(Case& found);
  void resume(const Case& found);
  std::vector<TaskKey> running_tasks(JobId job) const;

  Parts parts_;
  std::map<Key, Case> cases_;
  std::set<GpuId> closed_;
  std::map<Key, Duration> earlier_;  // of an earlier run: since when; until three looks have judged anew
  int looks_ = 0;
  std::string noted_;
  bool has_continued_ = false;
};

}  // namespace tranche::machine
