// Every history is held against P1, P2, P3, P13, P16, P18, P19 and P20 at once. What the premises of a
// property exempt is counted: "exempt: ..." in the counts.
//
// The oracle is the ledger, which shares no code with the scheduler; P16 compares two runs of the scheduler.
#include <algorithm>
#include <utility>

#include "scheduler/history.h"
#include "scheduler/ledger.h"
#include "scheduler/property.h"
#include "scheduler/tell.h"

namespace tranche::scheduler::test {
namespace {

// Of every eight histories: plain and structured ones with everything in them, one without bounds of queues
// (P19 can decide most there), one calm one (the premises of P13), and of every 32 one with many machines.
enum class Kind { everything, no_limits, calm, many_nodes };

Kind kind_of(uint64_t seed) {
  if (seed % 32 == 16) return Kind::many_nodes;
  if (seed % 8 == 5) return Kind::calm;
  return seed % 8 >= 6 ? Kind::no_limits : Kind::everything;
}

HistoryRules rules_of(uint64_t seed) {
  HistoryRules rules;
  rules.events = 200;
  constexpr int64_t kArrivals[] = {60, 150, 240, 400};
  rules.mean_arrival_seconds = kArrivals[seed / 8 % 4];
  switch (kind_of(seed)) {
    case Kind::everything:
      break;
    case Kind::no_limits:
      rules.limits = false;
      break;
    case Kind::many_nodes:
      rules.many_nodes = true;
      rules.mean_arrival_seconds = 12;
      break;
    case Kind::calm:
      rules.one_user = rules.prompt_outcomes = true;
      rules.priorities = rules.faults = rules.cancels = rules.policy_changes = rules.quotas = rules.limits =
          false;
      rules.dependencies = rules.arrays = rules.not_preemptible = rules.structure = false;
      break;
  }
  return rules;
}

class Audit {
 public:
  Audit(Played& played, Counts& counts)
      : played_(played),
        counts_(counts),
        kind_(kind_of(played.seed)),
        rules_(rules_of(played.seed)),
        history_(played.seed, rules_) {
    history_.drop(played.dropped);
    history_.accepts = [this](const JobSpec& spec, const ArraySpec& array) {
      return scheduler_.check(spec, array).has_value();
    };
  }

  std::optional<Finding> run() {
    std::vector<EventPayload> opening = history_.opening();
    for (EventPayload& payload : opening) take(history_.opening_event(std::move(payload)));
    for (int i = 0; i < rules_.events && !finding_; ++i) take(history_.next(log_.back().second));
    if (!finding_) nothing_idles();
    if (!finding_) charges_are_what_is_held();
    if (!finding_) same_again();
    played_.inputs = history_.inputs();
    count();
    return std::move(finding_);
  }

 private:
  void found(const char* property, const std::string& what) {
    if (!finding_) finding_ = Finding{property, "event " + std::to_string(log_.size()) + ": " + what};
  }

  void take(const Event& event) {
    std::vector<Decision> decisions = scheduler_.step(event);
    ledger_.row(event, decisions);
    tell(event, decisions);
    log_.push_back({event, std::move(decisions)});
    if (!ledger_.violations.empty()) {
      const std::string& first = ledger_.violations.front();
      return found(first.substr(0, first.find(' ')).c_str(), first);
    }
    victims_are_minimal();
    if (kind_ == Kind::calm) head_keeps_its_time();
    if ((log_.size() + played_.seed) % 16 == 0) nothing_idles();
    if ((log_.size() + played_.seed) % 8 == 0) charges_are_what_is_held();
  }

  void count() {
    counts_.add("histories");
    counts_.add("events", log_.size());
    counts_.add("starts", ledger_.starts);
    counts_.add("evictions", ledger_.evictions);
    counts_.add("faults", static_cast<uint64_t>(history_.faults()));
    counts_.add("tasks that joined an elastic job", ledger_.joined);
    counts_.add("tasks that an elastic job gave up", ledger_.given);
    counts_.add("tasks bound to a domain, named nodes or joined GPUs", ledger_.placed);
    if (log_.size() < 200) counts_.add("histories of fewer than 200 events");
    if (history_.faults() == 0) counts_.add("histories without a fault");
    if (kind_ == Kind::many_nodes) counts_.add("histories of many nodes");
    if (kind_ != Kind::calm) counts_.add("exempt: P13: histories with faults, priorities or several users");
  }

  // P3, at states in which nothing is to be decided. Premises: no bound of a queue or array keeps it, nothing
  // is promised to somebody by name, it is neither held nor waiting for another job or a time.
  void nothing_idles() {
    for (const JobId id : scheduler_.waiting_order()) {
      const Proof proof = *scheduler_.proof(id);
      const JobSpec& spec = ledger_.jobs.at(id).spec;
      if (proof.kind == ProofKind::none) {
        return found("P3", "job " + std::to_string(id.value()) + " waits for nothing: " + described(spec));
      }
      if (proof.kind == ProofKind::limit || proof.kind == ProofKind::quota ||
          proof.kind == ProofKind::reserved) {
        if (proof.kind == ProofKind::reserved && !waits(proof.blockers)) {
          return found("P3", "job " + std::to_string(id.value()) +
                                 " is kept out for somebody who does not wait: " + *scheduler_.reason(id));
        }
        counts_.add("exempt: P3: " + std::string(to_string(proof.kind)));
        continue;
      }
      const auto fits = ledger_.fits(spec, spec.tasks_min);
      counts_.add(fits ? "P3: jobs that wait" : "exempt: P3: jobs whose parts the ledger cannot place");
      if (fits.value_or(false) && is_limited(spec.queue) && ledger_.anything_leaves()) {
        // It waits for those who have to go for a bound of its queue.
        counts_.add("exempt: P3: limit");
      } else if (fits.value_or(false)) {
        return found("P3", "job " + std::to_string(id.value()) +
                               " fits and waits: " + *scheduler_.reason(id) + " " + described(spec));
      }
    }
  }
  bool waits(const std::vector<JobId>& jobs) const {
    return !jobs.empty() && std::all_of(jobs.begin(), jobs.end(), [&](JobId job) {
      return ledger_.jobs.at(job).phase == Ledger::Phase::waiting || ledger_.jobs.at(job).spec.elastic;
    });
  }

  // P20: equal at every instant, so equal over any time.
  void charges_are_what_is_held() {
    const std::map<std::string, int64_t> held = ledger_.used_of_all();
    for (const QueueShare& share : scheduler_.shares()) {
      const auto entry = held.find(share.path);
      const int64_t used = entry == held.end() ? 0 : entry->second;
      counts_.add("P20: queues compared");
      if (share.used.count() != used) {
        return found("P20", share.path + " is charged " + std::to_string(share.used.count()) + " and holds " +
                                std::to_string(used));
      }
    }
  }

  // P13. The time at which the first in line fits if everybody runs to their limit, worked out when it became
  // the first. Premises (kind_of): nobody comes before it later, nothing fails.
  void head_keeps_its_time() {
    const auto& [event, decisions] = log_.back();
    for (const Decision& decision : decisions) {
      const auto* start = std::get_if<Start>(&decision);
      if (start == nullptr) continue;
      const auto promise = promised_.find(start->task.job);
      if (promise != promised_.end()) {
        promised_.erase(promise);
        counts_.add("P13: promises kept");
      }
      head_may_be_new_ = true;
    }
    for (const auto& [job, time] : promised_) {
      if (event.time <= time + kMillisecond) continue;
      return found("P13", "job " + std::to_string(job.value()) +
                              " waits longer than it was promised: " + described(ledger_.jobs.at(job).spec));
    }
    head_may_be_new_ = head_may_be_new_ || std::holds_alternative<JobSubmitted>(event.payload);
    if (!std::exchange(head_may_be_new_, false)) return;
    const auto order = scheduler_.waiting_order();
    if (order.empty() || promised_.contains(order.front())) return;
    const auto time = ledger_.earliest(ledger_.jobs.at(order.front()).spec);
    if (time) {
      promised_[order.front()] = *time;
    } else {
      counts_.add("exempt: P13: heads whose parts the ledger cannot place");
    }
  }

  // P19. Premises: nothing was leaving and nothing promised before, one claimant, and nothing else decided.
  void victims_are_minimal() {
    const auto& [event, decisions] = log_.back();
    std::map<JobId, Ledger::Tasks> victims;
    bool only_stops = true;
    for (const Decision& decision : decisions) {
      const auto* stop = std::get_if<Stop>(&decision);
      if (stop != nullptr && stop->beneficiary.is_set()) victims[stop->beneficiary].insert(stop->task);
      if (stop == nullptr || !stop->beneficiary.is_set()) only_stops = false;
    }
    const bool was_quiet = quiet_ && !std::holds_alternative<TaskExited>(event.payload);
    if (!victims.empty()) {
      if (was_quiet && only_stops && victims.size() == 1) {
        all_are_needed(victims.begin()->first, victims.begin()->second);
      } else {
        counts_.add("exempt: P19: evictions beside others");
      }
    }
    quiet_ = !ledger_.anything_leaves();
  }
  void all_are_needed(JobId beneficiary, const Ledger::Tasks& taken) {
    const auto& taker = ledger_.jobs.at(beneficiary);
    const bool grows = taker.phase == Ledger::Phase::active;  // then it takes one task more
    const uint32_t needed = grows ? 1 : taker.spec.tasks_min;
    JobSpec wanted = taker.spec;
    // What joins tasks that run goes to GPUs of their type.
    if (grows && wanted.task.gpu.count > 0)
      wanted.task.gpu.type = ledger_.gpus.at(taker.live.begin()->second.slices.front().gpu).gpu.type;
    const auto together =
        grows && taker.spec.topology.is_set() ? std::nullopt : ledger_.fits(wanted, needed, taken);
    // Where a bound would be passed, those of its queue have to go, whatever the room.
    if (is_limited(taker.spec.queue)) return counts_.add("exempt: P19: evictions under a limit");
    if (!together) return counts_.add("exempt: P19: evictions for jobs whose parts the ledger cannot place");
    counts_.add("P19: evictions");
    if (!*together) return found("P19", "the beneficiary does not fit after all: " + described(taker.spec));
    std::map<JobId, Ledger::Tasks> of_job;
    for (const TaskKey& task : taken) of_job[task.job].insert(task);
    for (const auto& [spared, tasks] : of_job) {
      const auto& victim = ledger_.jobs.at(spared);
      const bool goes_on = victim.spec.elastic && victim.live.size() > tasks.size();
      // All of an elastic job: it would have been enough to leave the last of it, which is taken as one.
      if (victim.spec.elastic && !goes_on && tasks.size() > victim.spec.tasks_min) continue;
      Ledger::Tasks fewer = taken;
      if (goes_on) {
        fewer.erase(*tasks.begin());
      } else {
        for (const TaskKey& task : tasks) fewer.erase(task);
      }
      if (ledger_.fits(wanted, needed, fewer).value_or(false)) {
        return found("P19",
                     "job " + std::to_string(spared.value()) + " need not go for " + described(taker.spec));
      }
    }
  }

  bool is_limited(const std::string& path) const {
    return std::any_of(
        ledger_.policy.queues.begin(), ledger_.policy.queues.end(), [&](const QueuePolicy& queue) {
          const bool is_above = path.starts_with(queue.path + "/") || path == queue.path;
          return is_above && (queue.limit || queue.user_limit || queue.limit_cpu || queue.limit_memory);
        });
  }

  // P16: the same log again, restored up to some row, through a snapshot or not, and decided from there.
  void same_again() {
    // What is restored costs little, so most restarts are late ones; one of four decides all of it again.
    const size_t half = log_.size() / 2;
    const size_t restart = played_.seed % 4 == 0 ? 0 : half + static_cast<size_t>(played_.seed * 37 % half);
    Scheduler again;
    for (size_t i = 0; i < log_.size(); ++i) {
      const auto& [event, decisions] = log_[i];
      if (i == restart && played_.seed % 3 == 0) {
        auto loaded = Scheduler::load(again.save());
        if (!loaded) return found("P16", "its snapshot is not read: " + loaded.error().message());
        again = std::move(*loaded);
        counts_.add("P16: restarts through a snapshot");
      }
      if (i < restart) {
        again.restore(event, decisions);
      } else if (again.step(event) != decisions) {
        return found("P16", "row " + std::to_string(i + 1) + " is decided otherwise after a restart at " +
                                std::to_string(restart + 1));
      }
    }
    if (again.state_hash() != scheduler_.state_hash())
      return found("P16", "the state differs after a restart at " + std::to_string(restart + 1));
    if (again.shares() != scheduler_.shares())
      return found("P20", "the charges differ after a restart at " + std::to_string(restart + 1));
    counts_.add("P16: restarts");
    // A sum, so that the order in which histories are played does not matter.
    counts_.add("sum of the states' hashes", scheduler_.state_hash());
  }

  Played& played_;
  Counts& counts_;
  const Kind kind_;
  const HistoryRules rules_;
  History history_;
  Scheduler scheduler_;
  Ledger ledger_;
  std::vector<std::pair<Event, std::vector<Decision>>> log_;
  std::map<JobId, Time> promised_;
  bool head_may_be_new_ = false;
  bool quiet_ = true;
  std::optional<Finding> finding_;
};

}  // namespace

std::optional<Finding> audit_history(Played& played, Counts& counts) { return Audit(played, counts).run(); }

}  // namespace tranche::scheduler::test
