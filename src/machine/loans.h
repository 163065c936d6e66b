// Memory that jobs borrow beyond their guarantees (`--gpu-mem 10G..20G`), and how it comes back when another
// job's guarantee needs it: who borrows gets nothing more at once (the arbiter sees to that), is told by a
// signal, and is stopped after a grace, as [share] of the configuration says. A task whose guarantee is lent
// out is prepared and does not execute before it is back, so it never meets out-of-memory for a borrower's
// sake; neither do the tasks that start with it.
//
// Which borrower owes how much is the arbiter's arithmetic (arbiter/board.h): the newest first. Without an
// answer of the arbiter nobody is ended and nothing is opened: a task that starts then would be refused its
// first byte. Threading: the reactor's thread.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "codec/config.h"
#include "machine/gpu_manager.h"
#include "machine/memory_arbiter.h"
#include "machine/task_host.h"

namespace tranche::machine {

class Loans {
 public:
  struct Parts {
    Reactor& reactor;
    Engine& engine;
    TaskHost& host;
    GpuManager& gpus;
    const DaemonConfig& config;
  };
  explicit Loans(Parts parts) : parts_(parts) {}

  // Whether a prepared task may execute now. False: it waits, and `go` (see on_open) is called for it when it
  // may. `arbiter_is_away`: it could be granted nothing, so it waits for an arbiter that knows it.
  bool may_go(const TaskKey& task, bool arbiter_is_away);
  void on_open(std::function<void(const TaskKey&)> go) { go_ = std::move(go); }

  // What the arbiter has now.
  void take(const std::vector<ShareUsage>& rows);
  void arbiter_is_silent();

  bool has_waiting() const { return !waiting_.empty(); }
  bool is_calling_in() const { return !recalls_.empty(); }
  // What there is to say of a job: what it waits for, or what it has to give back. "" if nothing.
  std::string note(JobId job) const;

 private:
  struct Waiting {
    // Of all tasks that start with it, and which GPUs (device_uuid_digits) they need.
    std::vector<std::pair<TaskKey, std::string>> parts;
    Duration since;  // the arbiter has answered
    bool must_be_registered = false;
  };
  struct Recall {
    Duration since;
    MiB owed;
    bool ended = false;
  };
  using RecallKey = std::pair<TaskKey, std::string>;

  bool may_be_borrowed(JobId job, GpuId gpu) const;
  bool is_open(const TaskKey& task, const Waiting& waiting, const std::vector<ShareUsage>& rows) const;
  void follow_recalls(const std::vector<ShareUsage>& rows);
  void open_waiting(const std::vector<ShareUsage>& rows);
  void begin(const RecallKey& key, const Recall& recall);
  void end_job(JobId job, const std::string& reason);
  std::vector<TaskKey> borrowers_on(const std::string& gpu) const;
  std::string owed_text(JobId job) const;
  std::string note_of_waiting(const Waiting& waiting) const;
  std::string gpu_text(const std::string& digits) const;
  std::string job_text(JobId job) const;
  std::string deadline_text(const Recall& recall) const;

  Parts parts_;
  std::function<void(const TaskKey&)> go_;
  std::map<TaskKey, Waiting> waiting_;
  std::map<RecallKey, Recall> recalls_;
  bool silent_ = false;
};

}  // namespace tranche::machine
