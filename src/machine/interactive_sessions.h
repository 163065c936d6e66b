// Clients that wait for their foreground job to start: progress lines out, hang-ups in, and at the start the
// socket goes to the job's shepherd (wire/attach.h), after which the daemon carries no byte.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "base/reactor.h"
#include "linux/unique_fd.h"
#include "machine/engine.h"

namespace tranche::machine {

class InteractiveSessions final : public StepObserver {
 public:
  struct Terminal {
    bool wanted = false;
    uint16_t rows = 0;
    uint16_t columns = 0;
  };
  struct Session {
    UniqueFd client;
    Terminal terminal;
  };

  InteractiveSessions(Reactor& reactor, Engine& engine);

  // A client for this job is on its way: its start waits for add(). If none comes, the job is cancelled.
  void expect(JobId job);
  // Called when the client of a job arrives, so that a start that waited for it can go on.
  void on_arrival(std::function<void(JobId)> arrived) { arrived_ = std::move(arrived); }
  // The client's socket, for a job that waits. A client that hangs up cancels its job.
  void add(JobId job, UniqueFd client, Terminal terminal);
  // Hands the session over: for the start of its job. The socket is closed if there is none.
  Session take(JobId job);
  // The job ended without ever having had its client: tells why, and closes.
  void end(JobId job, const std::string& reason);
  bool is_expected(JobId job) const { return expected_.contains(job); }

  void on_step(const JournalRow& row) override;
  void on_durable(const JournalRow&) override {}

 private:
  struct Waiting {
    Session session;
    std::string progress;  // last line sent
  };
  void look();  // for hang-ups, and whether the forecast has changed
  void tell(JobId job, Waiting& waiting);
  bool is_gone(const Waiting& waiting) const;

  Reactor& reactor_;
  Engine& engine_;
  void arm();
  void cancel(JobId job);

  std::map<JobId, Waiting> waiting_;
  std::map<JobId, Duration> expected_;  // until when
  std::function<void(JobId)> arrived_;
  Reactor::Handle timer_;
};

// The last frame of a session in which nothing ran: why.
void refuse_session(int socket, const std::string& reason);

}  // namespace tranche::machine
