// The HTTP API v1: a table of routes, and for each a handler that knows who asks. The contract is
// api/openapi.yaml; handlers by topic are in api_jobs.cc, api_job_lists.cc, api_gpus.cc, api_queues.cc,
// api_events.cc and api_admin.cc.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "codec/config.h"
#include "linux/http_router.h"
#include "linux/http_server.h"
#include "linux/log_throttle.h"
#include "machine/caller.h"
#include "machine/gpu_manager.h"
#include "machine/hook_set.h"
#include "machine/interactive_sessions.h"
#include "machine/observation.h"
#include "machine/rate_limit.h"
#include "machine/task_host.h"
#include "machine/tokens.h"
#include "machine/views.h"

namespace tranche::machine {

class ApiServer final : public StepObserver {
 public:
  struct Parts {
    Reactor& reactor;
    Engine& engine;
    GpuManager& gpus;
    TaskHost& tasks;
    InteractiveSessions& sessions;
    UserDirectory& users;
    DaemonConfig& config;
    // Whether new jobs may be numbered (TaskRunner::has_reconciled).
    std::function<bool()> may_submit;
    // Reads the configuration anew and records the change; what it means, or why it was refused.
    std::function<Result<api::PolicySummary>()> reload;
    const Shares* shares = nullptr;
    const Observation* observation = nullptr;  // null: jobs are managed
  };
  explicit ApiServer(Parts parts);

  // The HttpServer's handler.
  void handle(HttpRequest request, Responder responder);

  // As `gpus` shows them now.
  api::GpuList gpus_now() const { return gpu_list(view_source()); }

  void on_step(const JournalRow& row) override;
  void on_durable(const JournalRow& row) override;

  // Who can be told of jobs; none until this is called. Outlives this.
  void set_hooks(const HookSet& hooks) { hooks_ = &hooks; }
  // Borrowed for the time of one call.
  ViewSource view_source() const;

  // Who may come from outside, with a token; nobody until this is called. Outlives this.
  void set_tokens(TokenStore& tokens) { tokens_ = &tokens; }

  // Restored from the journal: which submissions have been answered already.
  void remember(const IdempotencyKey& key, JobId job) { answered_[{key.uid, key.key}] = job; }

  struct Call {
    HttpRequest request;
    Responder responder;
    Caller caller;
    std::vector<std::string> parameters;  // of the route's pattern, in order
  };
  using Handler = void (ApiServer::*)(Call& call);
  static std::span<const HttpRoute<Handler>> routes();

 private:
  // api_jobs.cc
  void submit(Call& call);
  void run(Call& call);
  void show_job(Call& call);
  void why(Call& call);
  void cancel(Call& call);
  void hold(Call& call);
  void release(Call& call);
  void wait(Call& call);
  void attach(Call& call);
  // api_job_lists.cc
  Result<void> check_queue(const std::string& queue) const;
  void list_jobs(Call& call);
  void history(Call& call);
  // api_job_changes.cc
  void update(Call& call);
  void requeue(Call& call);
  // api_arrays.cc
  void cancel_array(Call& call);
  void hold_array(Call& call);
  void release_array(Call& call);
  // api_exec.cc
  void exec(Call& call);
  void exec_in(Call& call, const JobRecord& job, const api::ExecRequest& request,
               const api::SubmitRequest& submitted);
  // api_gpus.cc
  void gpus(Call& call);
  void drain(Call& call);
  void undrain(Call& call);
  void who(Call& call);
  // api_queues.cc
  void queues(Call& call);
  void share(Call& call);
  // api_events.cc
  void events(Call& call);
  // api_tokens.cc
  // Who asks with a token; an answered error if nobody may.
  std::optional<Caller> authenticate(const HttpRequest& request, Responder& responder);
  bool still_holds(uint64_t token) const;
  void create_token(Call& call);
  void list_tokens(Call& call);
  void revoke_token(Call& call);
  bool may_change_tokens(Call& call);
  // api_admin.cc
  void status(Call& call);
  void doctor(Call& call);
  void check_config(Call& call);
  void reload(Call& call);

  enum class Denied { attach, cancel, hold, release, drain, undrain, reload, update, requeue, exec, token };
  // A checked submission, ready to be recorded.
  struct Submission;
  Result<Submission> prepare_submission(Call& call, bool interactive);
  Result<void> check_parts(const JobSpec& spec) const;
  void dry_run(Call& call, const Submission& submission);
  void record_submission(Submission submission, std::function<void(JobId)> durable);
  void answer_submitted(Responder responder, JobId job);
  // The job of the route's first parameter, or an answered error.
  JobRecord* find_job(Call& call);
  // The same, and the caller may change it.
  JobRecord* find_job_to_change(Call& call, Denied verb);
  // Records it, and answers with the job when it is durable.
  void record_change(Call& call, JobId job, EventPayload payload, Engine::Attachment attachment);
  void rename(Call& call, const JobRecord& job, JobUpdated updated, const std::string& name);
  void change_job(Call& call, Denied verb, const std::function<Result<EventPayload>(const JobRecord&)>& make);
  // Whether an element in that state is changed at once, is being ended, or is left as it is.
  enum class ArrayEffect { changed, stopping, unchanged };
  void change_array(Call& call, Denied verb, ArrayEffect (*effect)(JobState),
                    const std::function<EventPayload(JobId first, uint32_t more)>& make, const char* nothing);
  void answer_job(Responder responder, JobId job, const Caller& caller);
  // Refuses, and notes who tried what on which `kind` of thing ("job", "gpu"): at most once a second for each
  // user and verb, with a count of those before.
  void deny(Call& call, Denied verb, const char* kind, const std::string& thing, std::string sentence);
  void arm_denial_sweep();
  void answer_waiters(JobId job);
  void send_backlog(std::shared_ptr<struct EventFollower> follower);

  struct Waiter {
    Responder responder;
    Caller caller;
    Reactor::Handle timeout;
  };

  // Who waits for what the launcher says of itself.
  struct Patient {
    Responder responder;
    Reactor::Handle timeout;
  };
  void diagnose(uint64_t number, const std::string& launcher_trouble);

  std::map<uint64_t, Patient> patients_;
  uint64_t last_patient_ = 0;
  Parts parts_;
  const HookSet* hooks_ = nullptr;
  TokenStore* tokens_ = nullptr;
  RateLimit failed_logins_{20, 3 * kSecond};          // by address
  RateLimit token_requests_{200, 20 * kMillisecond};  // by token
  RateLimit token_changes_{20, 6 * kSecond};          // by uid
  Time started_;
  std::map<std::pair<uint32_t, std::string>, JobId> answered_;  // idempotency keys
  // Repeats of submissions that are not durable yet: they are answered when the first one is.
  std::map<JobId, std::vector<Responder>> undurable_;
  LogThrottle denials_;
  Reactor::Handle denial_sweep_;
  std::multimap<JobId, std::shared_ptr<Waiter>> waiters_;
  std::vector<std::shared_ptr<struct EventFollower>> followers_;
};

// A JSON answer.
HttpResponse json_response(int status, std::string body);
// What a client that speaks wire/attach.h upgrades to.
inline constexpr std::string_view kAttachProtocol = "tranche-attach";
// "ROWSxCOLUMNS" of the client's terminal; zeroes, for the usual 24 x 80, if it does not say.
InteractiveSessions::Terminal terminal_size(const HttpRequest& request);
// "limit" of a query, within 1..1000.
Result<size_t> page_limit(const HttpRequest& request);

}  // namespace tranche::machine
