// The daemon's end of one sampler process: starts it, speaks its protocol, ends it. Never blocks.
//
// Threading: the reactor's. Ownership: destroying a SamplerLink closes the socket and kills the process; the
// process is reaped when the kernel lets it go, which for one stuck in the driver may be never
// (ProcessReaper).
#pragma once

#include <list>
#include <memory>
#include <string>
#include <vector>

#include "base/reactor.h"
#include "base/result.h"
#include "gpu/sampler_protocol.h"
#include "linux/unique_fd.h"

namespace tranche {

// Waits, without blocking, for processes that have been told to end.
class ProcessReaper {
 public:
  explicit ProcessReaper(Reactor& reactor) : reactor_(reactor) {}
  // Takes over `pid`, which has been sent SIGKILL; `pidfd` is its.
  void add(pid_t pid, UniqueFd pidfd);
  // How many have not gone yet.
  size_t waiting() const { return processes_.size(); }

 private:
  struct Process {
    pid_t pid;
    UniqueFd pidfd;
    Reactor::Handle watch;
  };
  Reactor& reactor_;
  std::list<Process> processes_;
};

class SamplerLink {
 public:
  class Observer {
   public:
    virtual void inventory_arrived(const sampler::Inventory& message) = 0;
    virtual void gpu_arrived(const sampler::Gpu& message) = 0;
    virtual void gpu_problem_arrived(const sampler::GpuProblem& message) = 0;
    virtual void mig_device_arrived(const sampler::MigDevice& message) = 0;
    virtual void inventory_ended() = 0;
    virtual void xid_arrived(const sampler::Xid& message) = 0;
    virtual void reading_arrived(const sampler::Reading& message) = 0;
    virtual void user_name_arrived(const sampler::UserName& message) = 0;
    virtual void progress_arrived(const sampler::Progress& message) = 0;
    // The process has ended or sent what is no message; nothing arrives after this.
    virtual void sampler_ended(const std::string& reason) = 0;

   protected:
    ~Observer() = default;
  };

  // Starts `program` with `arguments` and the socket. Its stdin is /dev/null, stdout and stderr are ours.
  static Result<std::unique_ptr<SamplerLink>> start(Reactor& reactor, ProcessReaper& reaper,
                                                    Observer& observer, const std::string& program,
                                                    std::vector<std::string> arguments);
  ~SamplerLink();

  // False if the sampler does not take it now (its socket is full or closed).
  bool request(sampler::Kind kind, uint64_t id, uint32_t gpu);
  // Nothing arrives any more; safe inside an Observer's call, where destroying the link is not.
  void silence() { silenced_ = true; }

 private:
  SamplerLink(Reactor& reactor, ProcessReaper& reaper, Observer& observer);
  void receive();
  bool dispatch(std::span<const std::byte> packet);

  Reactor& reactor_;
  ProcessReaper& reaper_;
  Observer& observer_;
  UniqueFd socket_;
  pid_t pid_ = 0;
  UniqueFd pidfd_;
  Reactor::Handle watch_;
  bool silenced_ = false;
  std::vector<std::byte> buffer_;
};

}  // namespace tranche
