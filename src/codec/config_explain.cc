// What a policy means, in sentences.
#include <algorithm>
#include <cstring>

#include "base/quantity_text.h"
#include "codec/config.h"

namespace tranche {
namespace {

// "16 CPUs and 64G of memory"; "" if neither is bounded.
std::string host_text(std::optional<MilliCpu> cpu, std::optional<MiB> memory) {
  std::string text = cpu ? format_thousandths(cpu->count()) + " CPUs" : "";
  if (memory) text += (text.empty() ? "" : " and ") + format_memory(*memory) + " of memory";
  return text;
}

std::string explain_queue(const QueuePolicy& queue) {
  std::string sentence = "Queue " + queue.path;
  if (queue.quota && queue.quota->count() > 0) {
    sentence +=
        " is promised " + format_gpus(*queue.quota) + ", which nobody else can take while it uses them";
  } else {
    sentence += " is promised nothing";
  }
  sentence += queue.weight == 0 ? std::string("; of what is left it gets nothing, since its weight is 0")
                                : "; of what is left it gets shares in proportion to its weight of " +
                                      std::to_string(queue.weight);
  if (queue.priority != 0) {
    sentence +=
        queue.priority > 0 ? ", before queues of lower priority" : ", after queues of higher priority";
    sentence += " (its own is " + std::to_string(queue.priority) + ")";
  }
  sentence +=
      queue.limit ? ", and never more than " + format_gpus(*queue.limit) : std::string(", without a limit");
  const std::string processors = host_text(queue.quota_cpu, queue.quota_memory);
  if (!processors.empty()) sentence += "; its quota of the machine is " + processors;
  const std::string most = host_text(queue.limit_cpu, queue.limit_memory);
  if (!most.empty()) sentence += "; it uses at most " + most;
  if (queue.user_limit) sentence += "; each of its users holds at most " + format_gpus(*queue.user_limit);
  return sentence + ".";
}

// Children that are promised more than their parent is: allowed, since promises are kept from the whole
// machine, but rarely meant.
void explain_promises(const Policy& policy, const QueuePolicy& parent, std::vector<std::string>* sentences) {
  if (!parent.quota) return;
  MilliGpu promised;
  const std::string prefix = parent.path + "/";
  for (const QueuePolicy& queue : policy.queues) {
    const bool is_child =
        queue.path.starts_with(prefix) && queue.path.find('/', prefix.size()) == std::string::npos;
    if (is_child && queue.quota) promised += *queue.quota;
  }
  if (promised <= *parent.quota) return;
  sentences->push_back("Note: the queues below " + parent.path + " are promised " + format_gpus(promised) +
                       " together, more than the " + format_gpus(*parent.quota) + " of " + parent.path +
                       " itself.");
}

std::string explain_class(JobClass job_class, const ClassPolicy& policy) {
  return "Jobs of class " + std::string(to_string(job_class)) + " have priority " +
         std::to_string(policy.priority) +
         (policy.preemptible ? " and can be preempted"
                             : " and cannot be preempted, so they run only within quota") +
         "; their time limit is " + format_duration(policy.time_limit_default) +
         " unless they say otherwise, " + format_duration(policy.time_limit_max) + " at most.";
}

std::string explain_users(UsersShare rule) {
  switch (rule) {
    case UsersShare::always:
      return "Fractions of different users may be on one GPU.";
    case UsersShare::never:
      return "A GPU is shared by fractions of one user only.";
    case UsersShare::enforced:
      break;
  }
  return "Fractions of different users are on one GPU only where the driver itself holds each to its part.";
}

std::string signal_text(int signal) {
  const char* name = ::sigabbrev_np(signal);
  return name == nullptr ? std::to_string(signal) : "SIG" + std::string(name);
}

std::string explain_recall(const SharePolicy& share) {
  std::string sentence =
      "A job that borrows GPU memory which another one's guarantee needs gets nothing more at once";
  if (share.recall_signal != 0) sentence += ", is told by signal " + signal_text(share.recall_signal);
  switch (share.recall_end) {
    case RecallEnd::requeue:
      return sentence + ", and after " + format_duration(share.recall_grace) +
             " it is stopped and waits again.";
    case RecallEnd::cancel:
      return sentence + ", and after " + format_duration(share.recall_grace) + " it is ended.";
    case RecallEnd::never:
      break;
  }
  return sentence + ", and is never ended for it: the other one waits.";
}

std::vector<std::string> explain_watchdog(const WatchdogPolicy& watchdog) {
  const bool pauses = watchdog.pause_after > Duration{}, ends = watchdog.end_after > Duration{};
  std::string over = "A job that holds more of a GPU than its part is reported";
  if (pauses) over += ", paused after " + format_duration(watchdog.pause_after);
  if (ends) over += ", ended after " + format_duration(watchdog.end_after);
  if (!pauses && !ends) over += ", and nothing more";
  std::vector<std::string> sentences = {over + "."};
  switch (watchdog.unguarded) {
    case Unguarded::ignore:
      sentences.push_back("Memory that a job takes past the guard within its part is not looked at.");
      break;
    case Unguarded::report:
      sentences.push_back("Memory that a job takes past the guard within its part is reported.");
      break;
    case Unguarded::act:
      sentences.push_back("Memory that a job takes past the guard within its part is treated alike.");
      break;
  }
  constexpr std::string_view kForeign = "A user's process on a GPU outside of any job is ";
  switch (watchdog.foreign) {
    case Foreign::drain:
      sentences.push_back(std::string(kForeign) + "named, and the GPU gets no new job until it ends.");
      break;
    case Foreign::name:
      sentences.push_back(std::string(kForeign) + "named; the GPU gets new jobs all the same.");
      break;
    case Foreign::adopt:
      sentences.push_back(std::string(kForeign) +
                          "named; the GPU gets new jobs while what it holds was promised to nobody.");
      break;
    case Foreign::ignore:
      sentences.push_back(std::string(kForeign) + "ignored.");
      break;
  }
  return sentences;
}

}  // namespace

std::string format_gpus(MilliGpu amount) {
  return format_thousandths(amount.count()) + (amount.count() > 0 && amount <= kWholeGpu ? " GPU" : " GPUs");
}

std::vector<std::string> explain_config(const DaemonConfig& config) {
  std::vector<std::string> sentences;
  if (config.mode == DaemonMode::observe) {
    sentences.push_back(
        "Tranche only observes: it names who uses the GPUs and adds up their GPU hours; it takes no job, and "
        "keeps "
        "nobody from anything. What follows holds once daemon.mode is \"manage\".");
  }
  for (std::string& sentence : explain_policy(config.policy)) sentences.push_back(std::move(sentence));
  sentences.push_back(explain_users(config.users_share));
  sentences.push_back(explain_recall(config.share));
  for (std::string& sentence : explain_watchdog(config.watchdog)) sentences.push_back(std::move(sentence));
  for (const HookConfig& hook : config.hooks) {
    sentences.push_back("The hook " + hook.name + " is told of " +
                        (hook.all_jobs ? "all jobs" : "jobs that ask for it") +
                        (hook.alerts ? ", and when a GPU is in trouble" : "") +
                        (hook.secret_file.empty() ? ", unsigned." : ", signed."));
  }
  if (!config.mail.program.empty())
    sentences.push_back("Users get mail about jobs that ask for it, through " + config.mail.program + ".");
  sentences.push_back(config.api.listen.empty() ? "The daemon listens on its Unix socket only."
                                                : "The daemon listens at " + config.api.listen +
                                                      " too, with TLS, for whoever has a token.");
  return sentences;
}

std::vector<std::string> explain_policy(const Policy& policy) {
  std::vector<std::string> sentences;
  sentences.push_back("A job that names no queue goes to " + policy.default_queue +
                      "/USER, made when USER submits first.");
  for (const QueuePolicy& queue : policy.queues) {
    sentences.push_back(explain_queue(queue));
    explain_promises(policy, queue, &sentences);
  }
  for (size_t i = 0; i < kJobClassCount; ++i) {
    sentences.push_back(explain_class(static_cast<JobClass>(i), policy.classes[i]));
  }
  sentences.push_back(policy.usage_half_life.count() == 0
                          ? std::string("Past use does not count.")
                          : "Past use counts half after " + format_duration(policy.usage_half_life) +
                                ", a quarter after twice that, and so on.");
  sentences.push_back("Work beyond its queue's quota runs at least " +
                      format_duration(policy.minimum_runtime) + " before it can be reclaimed.");
  sentences.push_back("A job that must end has " + format_duration(policy.grace_default) +
                      " between TERM and KILL unless it says otherwise.");
  sentences.push_back(policy.backfill
                          ? "Small jobs may start ahead of a large one as long as they do not delay it."
                          : "No job starts ahead of the first one that waits.");
  if (policy.no_head_reservation)
    sentences.push_back(
        "No waiting job is promised a time: a large one may wait for ever behind small ones.");
  if (policy.backfill_order == BackfillOrder::shortest)
    sentences.push_back("Around a promise, the job that is expected to run shortest is tried first.");
  if (policy.placement == PlacementStrategy::spread)
    sentences.push_back("Jobs go to the machine with the most room.");
  if (policy.gpu_placement == PlacementStrategy::spread)
    sentences.push_back("Fractions go to the GPU with the most room.");
  if (policy.share_unit.count() > 1)
    sentences.push_back("Fair shares are whole multiples of " + format_gpus(policy.share_unit) + ".");
  if (policy.reclaim_surplus && *policy.reclaim_surplus != kWholeGpu)
    sentences.push_back("A queue is taken from when it is over its fair share by " +
                        format_gpus(*policy.reclaim_surplus) + ".");
  if (policy.consolidation_moves > 0)
    sentences.push_back("Up to " + std::to_string(policy.consolidation_moves) +
                        " running jobs may be started again elsewhere so that one that waits finds room.");
  if (policy.only_action != SchedulerAction::all)
    sentences.push_back("Only the action " + std::string(to_string(policy.only_action)) +
                        " is carried out: this is meant for tests.");
  sentences.push_back("A user has at most " + std::to_string(policy.jobs_per_user_max) +
                      " jobs that have not ended.");
  return sentences;
}

}  // namespace tranche
