#include "machine/api_server.h"
#include "machine/doctor.h"
#include "machine/fences.h"
#include "machine/share_watch.h"

namespace tranche::machine {

void ApiServer::status(Call& call) {
  const scheduler::Scheduler& scheduler = parts_.engine.scheduler();
  api::StatusReport report;
  report.version = TRANCHE_VERSION;
  report.started = started_;
  report.gpus = static_cast<uint32_t>(scheduler.gpus().size());
  const JobTable& jobs = parts_.engine.jobs();
  report.jobs_waiting = jobs.count(JobState::pending) + jobs.count(JobState::held);
  for (const JobState state :
       {JobState::starting, JobState::running, JobState::suspended, JobState::stopping}) {
    report.jobs_running += jobs.count(state);
  }
  report.journal_seq = parts_.engine.last_seq().value();
  // Over every job and GPU: not for a page that asks each second.
  const std::string* hash = call.request.query_value("state_hash");
  if (hash != nullptr && *hash == "true") report.state_hash = scheduler.state_hash();
  report.mode = parts_.observation != nullptr ? "observe" : parts_.config.personal ? "personal" : "system";
  if (parts_.config.emulated == EmulatedNodes::yes) report.mode += ", emulated";
  const FractionFence fence = fraction_fence(parts_.config, parts_.gpus.driver_version());
  report.tiers = {whole_gpu_sentence(fence), "fractions: " + fence.sentence};
  call.responder.respond(json_response(200, api::encode(report)));
}

// A launcher that is there may still answer nobody, stopped or held up in the kernel: it is asked.
void ApiServer::doctor(Call& call) {
  constexpr Duration kPatience = 2 * kSecond;
  const uint64_t number = ++last_patient_;
  patients_.emplace(
      number, Patient{std::move(call.responder),
                      parts_.reactor.at(parts_.reactor.clock().since_boot() + kPatience, [this, number] {
                        diagnose(number, "asked, it said nothing for 2 s");
                      })});
  parts_.tasks.list([this, number](const Result<std::vector<TaskRecord>>& listed) {
    diagnose(number, listed ? "" : listed.error().message());
  });
}

void ApiServer::diagnose(uint64_t number, const std::string& launcher_trouble) {
  const auto found = patients_.find(number);
  if (found == patients_.end()) return;
  Patient patient = std::move(found->second);
  patients_.erase(found);
  auto report =
      examine(parts_.config, parts_.engine, parts_.gpus, launcher_trouble, parts_.engine.journal().trouble());
  report.checks.push_back(share_check(gpus_now()));
  if (!parts_.config.api.listen.empty())
    report.checks.push_back(certificate_check(parts_.config.api, parts_.reactor.clock().wall()));
  if (hooks_ != nullptr && !hooks_->is_empty()) report.checks.push_back(hooks_->examine());
  patient.responder.respond(json_response(200, api::encode(report)));
}

void ApiServer::check_config(Call& call) {
  ConfigPosition where;
  const auto config = parse_config_text(call.request.body, "configuration", &where);
  if (!config) {
    api::Problem problem = api::to_problem(config.error());
    if (where.line > 0) {
      problem.line = where.line;
      problem.column = where.column;
    }
    HttpResponse response = json_response(problem.status, api::encode(problem));
    response.content_type = "application/problem+json";
    return call.responder.respond(std::move(response));
  }
  api::PolicySummary summary;
  summary.queues = static_cast<uint32_t>(config->policy.queues.size());
  summary.changed = effective_policy(*config, parts_.gpus.driver_version(), parts_.engine.scheduler()) !=
                    parts_.engine.scheduler().policy();
  summary.sentences = explain_config(*config);
  call.responder.respond(json_response(200, api::encode(summary)));
}

void ApiServer::reload(Call& call) {
  if (!call.caller.is_operator) {
    return deny(call, Denied::reload, "thing", "configuration",
                "only operators may reload the configuration");
  }
  const auto summary = parts_.reload();
  if (!summary) return call.responder.respond(summary.error());
  call.responder.respond(json_response(200, api::encode(*summary)));
}

}  // namespace tranche::machine
