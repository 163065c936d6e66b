// POST /v1/jobs/{id}/exec: a command inside a running job.
#include <fcntl.h>

#include <map>

#include "codec/sweep.h"
#include "linux/log.h"
#include "machine/api_server.h"
#include "machine/members.h"
#include "machine/task_facts.h"

namespace tranche::machine {
namespace {

const TaskEntry* find_running(const JobRecord& job, uint32_t rank) {
  for (const TaskEntry& task : job.tasks) {
    if (task.key.rank == rank && task.state == JobState::running) return &task;
  }
  return nullptr;
}

}  // namespace

// Not even operators: a command inside a job acts as its owner.
void ApiServer::exec(Call& call) {
  if (!call.request.wants_upgrade(kAttachProtocol)) {
    return call.responder.respond(
        Error(ErrorCode::invalid_argument,
              "a command inside a job needs `Upgrade: tranche-attach`: use `tranche exec`"));
  }
  auto request = api::decode<api::ExecRequest>(call.request.body);
  if (!request) return call.responder.respond(request.error());
  const JobRecord* job = find_job(call);
  if (job == nullptr) return;
  if (job->spec->owner.uid != call.caller.uid) {
    return deny(call, Denied::exec, "job", std::to_string(job->id.value()),
                "job " + job->display() + " belongs to " + job->spec->owner.user +
                    ": only the owner may run a command in it");
  }
  if (find_running(*job, request->rank) == nullptr) {
    const std::string what = request->rank == 0 ? "" : "task " + std::to_string(request->rank) + " of ";
    return call.responder.respond(
        Error(ErrorCode::conflict,
              what + "job " + job->display() + " does not run (" + std::string(to_string(job->state)) + ")"));
  }
  if (job->request) return exec_in(call, *job, *request, *job->request);
  auto shared = std::make_shared<Call>(std::move(call));
  parts_.engine.journal().read_payload(
      job->spec->payload_hash, [this, shared, id = job->id, request = *request](Result<std::string> content) {
        auto submitted = content ? api::decode<api::SubmitRequest>(*content)
                                 : Result<api::SubmitRequest>(fail(content.error().clone()));
        if (!submitted) return shared->responder.respond(submitted.error());
        exec_in(*shared, *parts_.engine.jobs().find(id), request, *submitted);
      });
}

void ApiServer::exec_in(Call& call, const JobRecord& job, const api::ExecRequest& request,
                        const api::SubmitRequest& submitted) {
  const TaskEntry* task = find_running(job, request.rank);
  const UserRecord* user = parts_.users.find(job.spec->owner.uid);
  if (task == nullptr || user == nullptr) {
    return call.responder.respond(Error(ErrorCode::conflict, "job " + job.display() + " has ended"));
  }
  // What the caller adds to the environment of the task comes before what Tranche says of it.
  std::map<std::string, std::string> variables(submitted.environment.begin(), submitted.environment.end());
  for (const auto& [name, value] : api::sweep_values(submitted.sweep, job.array_index))
    variables[name] = value;
  for (const auto& [name, value] : request.environment) variables[name] = value;
  LaunchPlan plan;
  plan.task = task->key;
  plan.owner = job.spec->owner;
  plan.directory = request.directory.value_or(submitted.directory);
  plan.arguments = request.argv;
  TaskFacts facts = task_facts(task->key, job, user, parts_.gpus, task->slices, submitted);
  if (job.spec->elastic) facts.members_file = members_file(parts_.config.run_dir, job.id);
  plan.environment = task_environment({variables.begin(), variables.end()}, facts);
  plan.umask = submitted.umask.value_or(022);
  const InteractiveSessions::Terminal size = terminal_size(call.request);
  plan.terminal = request.pty;
  plan.terminal_rows = size.rows;
  plan.terminal_columns = size.columns;
  log(LogLevel::info, "exec", {{"job", job.id.value()}, {"rank", request.rank}, {"user", call.caller.user}});
  (void)call.responder.upgrade(kAttachProtocol, {{"Tranche-Job", std::to_string(job.id.value())}},
                               [this, plan](UniqueFd client, const std::string&) {
                                 const auto kept =
                                     std::make_shared<UniqueFd>(::fcntl(client.get(), F_DUPFD_CLOEXEC, 3));
                                 parts_.tasks.exec(plan, std::move(client), [kept](Result<void> begun) {
                                   if (!begun) refuse_session(kept->get(), begun.error().message());
                                 });
                               });
}

}  // namespace tranche::machine
