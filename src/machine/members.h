// Which tasks of an elastic job are there: one small file for each such job, for its own tasks to read.
//
// The file is `<run-dir>/members/<job>`, replaced as a whole whenever it changes, and each change has a
// higher GENERATION: the number of the journal's row that it follows from. What it says is durable before it
// is said. A task that is being taken away is named in LEAVING, and in RANKS no more, before it is sent its
// TERM; one that joins is named when it runs. The contract for programs is docs/elastic.md.
//
// Threading: the reactor's thread. Errors: what cannot be written is logged; the job goes on with what it was
// told last.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>

#include "machine/engine.h"

namespace tranche::machine {

// Where the tasks of `job` find it.
std::string members_file(const std::string& run_dir, JobId job);

struct Membership {
  std::map<uint32_t, bool> ranks;  // whether it is leaving
  bool operator==(const Membership&) const = default;
};
// The file's text without its last line, the GENERATION.
std::string members_text(const JobSpec& spec, uint16_t port, const Membership& members);

class Members final : public StepObserver {
 public:
  Members(Engine& engine, std::string run_dir) : engine_(engine), run_dir_(std::move(run_dir)) {}

  // After a restart: what stands in the journal; files of jobs that are not there any more go.
  void resume();

  void on_step(const JournalRow&) override {}
  void on_durable(const JournalRow& row) override;

 private:
  const JobRecord* elastic(JobId job) const;
  void write(const JobRecord& job, EventSeq generation);
  void forget(JobId job);

  struct Job {
    Membership members;
    std::set<uint32_t> told_to_stop;  // ranks, also of tasks that have not started yet
    uint16_t port = 0;  // of the attempt that the rows so far have begun: the job table may be further
  };
  void take_event(const Event& event, std::set<JobId>& changed);
  void take_decision(const Decision& decision, std::set<JobId>& changed);

  Engine& engine_;
  std::string run_dir_;
  std::map<JobId, Job> jobs_;
};

}  // namespace tranche::machine
