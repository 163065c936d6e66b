// Parts of GPUs while they are in use: what the arbiter says is asked for once a second and more often while
// a start waits for it, the arbiter is told what each GPU has, and those who act on it are called: Loans and
// ShareWatch. Also settles whether users may share a GPU now, which depends on what holds parts here.
//
// No answer of the arbiter means that nothing is known: what depends on it is left out, and nobody is ended.
// Threading: the reactor's thread.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "codec/api.h"
#include "machine/loans.h"
#include "machine/share_watch.h"

namespace tranche::machine {

// What a task may use of each GPU that it shares, and what of it is promised: never more than the GPU has.
std::vector<MemoryShare> memory_shares(const JobSpec& spec, const std::vector<Slice>& slices,
                                       const GpuManager& gpus);

class Shares {
 public:
  struct Parts {
    Reactor& reactor;
    Engine& engine;
    TaskHost& host;
    GpuManager& gpus;
    GpuDrains& drains;
    MemoryArbiter& arbiter;
    const DaemonConfig& config;
  };
  // `watchdog`: see ShareWatch.
  explicit Shares(Parts parts, const std::string& watchdog = "");

  // From now on; `look` gives what `gpus` shows.
  void start(std::function<api::GpuList()> look);

  // See Loans.
  bool may_go(const TaskKey& task);
  void on_open(std::function<void(const TaskKey&)> go) { loans_.on_open(std::move(go)); }

  // What the arbiter said last of a task's part of a GPU; null: nothing.
  const ShareUsage* find(const TaskKey& task, const Gpu& gpu) const;
  // For who wants to change it.
  MemoryHeld held_by(JobId job) const;
  // What there is to say of a job beside its state; "" if nothing.
  std::string note(JobId job) const;

 private:
  void ask();
  void take(Result<std::vector<ShareUsage>> rows);
  void tell_boards();
  void settle_limits();
  void settle_policy();
  void arm();

  Parts parts_;
  Loans loans_;
  ShareWatch watch_;
  std::function<api::GpuList()> look_;
  std::vector<ShareUsage> rows_;  // by task
  Reactor::Handle again_;
  bool asking_ = false;
  bool ask_again_ = false;
  Duration looked_;
};

}  // namespace tranche::machine
