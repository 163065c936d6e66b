// Properties over random histories (reference numbers P1..P21). Every failure names its seed;
// TRANCHE_SEED=N replays that one history, TRANCHE_HISTORIES=N sets how many are played.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "base/random.h"
#include "scheduler/facts_bytes.h"
#include "scheduler/history.h"
#include "scheduler/ledger.h"

namespace tranche::scheduler::test {
namespace {

uint64_t number_from_environment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}

// Calls `play(seed)` for each history until one fails.
template <class Play>
void for_each_history(uint64_t count, Play play) {
  const uint64_t only = number_from_environment("TRANCHE_SEED", 0);
  if (only != 0) return play(only);
  count = number_from_environment("TRANCHE_HISTORIES", count);
  for (uint64_t seed = 1; seed <= count; ++seed) {
    play(seed);
    if (::testing::Test::HasFailure()) {
      std::printf("history of seed %llu failed; replay it with TRANCHE_SEED=%llu\n",
                  static_cast<unsigned long long>(seed), static_cast<unsigned long long>(seed));
      return;
    }
  }
}

// One history played to its end; `after(event, decisions)` sees every row.
template <class After>
void play(History& history, Scheduler& scheduler, int events, After after) {
  history.accepts = [&](const JobSpec& spec, const ArraySpec& array) {
    return scheduler.check(spec, array).has_value();
  };
  std::vector<Decision> decisions;
  for (EventPayload& payload : history.opening()) {
    const Event event = history.opening_event(std::move(payload));
    decisions = scheduler.step(event);
    after(event, decisions);
  }
  for (int i = 0; i < events && !::testing::Test::HasFailure(); ++i) {
    const Event event = history.next(decisions);
    decisions = scheduler.step(event);
    after(event, decisions);
  }
}

std::string all(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

std::string described(const JobSpec& spec) {
  const GpuRequest& gpu = spec.task.gpu;
  return std::to_string(spec.tasks_min) + ".." + std::to_string(spec.tasks_max) + " tasks of " +
         std::to_string(gpu.count) + " x " + std::string(to_string(gpu.kind)) + " " + gpu.type + " " +
         std::to_string(gpu.compute.count()) + " milli " + std::to_string(gpu.memory.count()) + " MiB, " +
         std::to_string(spec.task.cpu.count()) + " CPU, " + std::to_string(spec.task.memory.count()) +
         " MiB host, " + spec.queue + ", priority " + std::to_string(spec.priority) +
         (spec.elastic ? ", elastic" : "") + ", " + std::to_string(spec.groups.size()) + " groups, up to " +
         std::to_string(gpu.count_max) + " GPUs " + std::string(to_string(gpu.topology)) + ", required " +
         spec.topology.required + ", preferred " + spec.topology.preferred + ", " +
         std::to_string(spec.nodes.size()) + " nodes, delay " + std::to_string(spec.preemption_delay.count());
}

TEST(Properties, TheLedgerFindsNothingWrong) {  // P1, P2, P18, attempts, dependencies, limits
  uint64_t starts = 0, evictions = 0, faults = 0, joined = 0, given = 0, parted = 0, placed = 0;
  for_each_history(100, [&](uint64_t seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    HistoryRules rules;
    History history(seed, rules);
    Scheduler scheduler;
    Ledger ledger;
    play(history, scheduler, rules.events, [&](const Event& event, const std::vector<Decision>& decisions) {
      ledger.row(event, decisions);
      ASSERT_TRUE(ledger.violations.empty()) << all(ledger.violations);
    });
    starts += ledger.starts;
    evictions += ledger.evictions;
    joined += ledger.joined;
    given += ledger.given;
    parted += ledger.parted;
    placed += ledger.placed;
    faults += static_cast<uint64_t>(history.faults());
  });
  const auto print = [](const char* what, uint64_t count) {
    std::printf("%s: %llu\n", what, static_cast<unsigned long long>(count));
  };
  print("starts", starts);
  print("evictions", evictions);
  print("faults", faults);
  print("tasks that joined an elastic job that ran", joined);
  print("tasks that one gave up and went on", given);
  print("tasks of jobs whose tasks differ", parted);
  print("tasks bound to a domain, to named nodes or to joined GPUs", placed);
  if (std::getenv("TRANCHE_SEED") == nullptr) {
    EXPECT_GT(joined, 0u);
    EXPECT_GT(given, 0u);
    EXPECT_GT(parted, 0u);
    EXPECT_GT(placed, 0u);
  }
}

// What the jobs of a history wait for after every row, by kind; and how often the audit could not tell.
struct Waits {
  std::map<std::string, uint64_t> by_kind;
  uint64_t not_decidable = 0;
};

void expect_nothing_idles(uint64_t seed, Waits& waits) {
  SCOPED_TRACE("seed " + std::to_string(seed));
  HistoryRules rules;
  History history(seed, rules);
  Scheduler scheduler;
  Ledger ledger;
  play(history, scheduler, rules.events, [&](const Event& event, const std::vector<Decision>& decisions) {
    ledger.row(event, decisions);
    for (const JobId id : scheduler.waiting_order()) {
      const Proof proof = *scheduler.proof(id);
      ++waits.by_kind[std::string(to_string(proof.kind))];
      ASSERT_NE(proof.kind, ProofKind::none)
          << "job " << id.value() << " waits for nothing: " << described(ledger.jobs.at(id).spec) << " after "
          << event_kind(event.payload);
      // Exempt: bounds of queues and arrays, and what is kept for a named job.
      if (proof.kind == ProofKind::limit || proof.kind == ProofKind::quota ||
          proof.kind == ProofKind::reserved) {
        continue;
      }
      const JobSpec& spec = ledger.jobs.at(id).spec;
      const auto fits = ledger.fits(spec, spec.tasks_min);
      if (!fits) ++waits.not_decidable;
      ASSERT_FALSE(fits.value_or(false))
          << "job " << id.value() << " fits and waits: " << scheduler.why(id)->reason << " "
          << described(spec);
    }
  });
}

TEST(Properties, NothingIdlesWhileAJobThatMayUseItWaits) {  // P3
  Waits waits;
  for_each_history(12, [&](uint64_t seed) { expect_nothing_idles(seed, waits); });
  for (const auto& [kind, count] : waits.by_kind)
    std::printf("%s: %llu\n", kind.c_str(), static_cast<unsigned long long>(count));
  std::printf("not decidable: %llu\n", static_cast<unsigned long long>(waits.not_decidable));
}

TEST(Properties, TheSameEventsGiveTheSameDecisionsAndRestoreIsNoRestart) {  // P16
  for_each_history(25, [&](uint64_t seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    HistoryRules rules;
    History history(seed, rules);
    Scheduler scheduler;
    Scheduler again;
    Scheduler restored;
    std::vector<std::pair<Event, std::vector<Decision>>> log;
    play(history, scheduler, rules.events, [&](const Event& event, const std::vector<Decision>& decisions) {
      ASSERT_EQ(again.step(event), decisions);
      restored.restore(event, decisions);
      ASSERT_EQ(scheduler.state_hash(), again.state_hash());
      ASSERT_EQ(scheduler.state_hash(), restored.state_hash());
      log.push_back({event, decisions});
    });
    // Restored up to some row, then stepped: nobody can tell.
    const size_t restart = static_cast<size_t>(seed * 37 % log.size());
    Scheduler late;
    for (size_t i = 0; i < log.size(); ++i) {
      if (i < restart) {
        late.restore(log[i].first, log[i].second);
      } else {
        ASSERT_EQ(late.step(log[i].first), log[i].second) << "row " << i << " after a restart at " << restart;
      }
    }
    ASSERT_EQ(late.state_hash(), scheduler.state_hash());
  });
}

// A restart through a snapshot, at random moments: the same events give the same decisions, and nobody can
// tell.
TEST(Properties, TheSameEventsGiveTheSameDecisionsThroughSnapshots) {  // P16
  uint64_t snapshots = 0, rows = 0, bytes = 0;
  for_each_history(25, [&](uint64_t seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    HistoryRules rules;
    History history(seed, rules);
    Random random(seed * 1'000'003);
    Scheduler scheduler;  // never restarted
    Scheduler deciding;   // goes on through snapshots
    Scheduler restored;   // what was recorded is put back, through snapshots too
    play(history, scheduler, rules.events, [&](const Event& event, const std::vector<Decision>& decisions) {
      ASSERT_EQ(deciding.step(event), decisions) << "event " << event.seq.value();
      restored.restore(event, decisions);
      ASSERT_EQ(deciding.state_hash(), scheduler.state_hash());
      ASSERT_EQ(restored.state_hash(), scheduler.state_hash());
      ++rows;
      if (!random.chance(1, 12)) return;
      const std::string saved = scheduler.save();
      ASSERT_EQ(deciding.save(), saved);
      ASSERT_EQ(restored.save(), saved);
      for (Scheduler* each : {&deciding, &restored}) {
        auto loaded = Scheduler::load(saved);
        ASSERT_TRUE(loaded) << loaded.error().message();
        ASSERT_EQ(loaded->state_hash(), scheduler.state_hash());
        ASSERT_EQ(loaded->save(), saved);
        ASSERT_EQ(facts_of(loaded->dump()), facts_of(scheduler.dump()));
        *each = std::move(*loaded);
      }
      ++snapshots;
      bytes += saved.size();
    });
  });
  std::printf("%llu events, %llu snapshots of %llu bytes on average\n", static_cast<unsigned long long>(rows),
              static_cast<unsigned long long>(snapshots),
              static_cast<unsigned long long>(bytes / std::max<uint64_t>(snapshots, 1)));
}

TEST(Properties, TheHeadStartsByTheTimeThatItWasPromised) {  // P13
  uint64_t promises = 0;
  for_each_history(30, [&](uint64_t seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    HistoryRules rules;
    rules.one_user = true;
    rules.priorities = rules.faults = rules.cancels = rules.policy_changes = rules.quotas = rules.limits =
        false;
    rules.dependencies = rules.arrays = rules.not_preemptible = false;
    rules.structure = false;
    rules.prompt_outcomes = true;
    rules.events = 220;
    History history(seed, rules);
    Scheduler scheduler;
    std::map<JobId, Time> promised;
    play(history, scheduler, rules.events, [&](const Event& event, const std::vector<Decision>& decisions) {
      for (const Decision& decision : decisions) {
        const auto* start = std::get_if<Start>(&decision);
        if (start == nullptr || !promised.contains(start->task.job)) continue;
        ASSERT_LE(event.time, promised[start->task.job] + kMillisecond)
            << "job " << start->task.job.value() << ": " << described(*scheduler.job(start->task.job)->spec);
      }
      for (const auto& [job, time] : promised) {
        if (scheduler.has_job(job) && !scheduler.job(job)->started.is_set()) {
          ASSERT_LE(event.time, time + kMillisecond)
              << "job " << job.value() << " still waits: " << scheduler.why(job)->reason << " "
              << described(*scheduler.job(job)->spec);
        }
      }
      const auto order = scheduler.waiting_order();
      if (order.empty() || promised.contains(order.front())) return;
      const Forecast forecast = *scheduler.forecast(order.front());
      if (!forecast.known) return;
      ++promises;
      promised[order.front()] = forecast.start;
    });
  });
  std::printf("%llu promises kept\n", static_cast<unsigned long long>(promises));
}

TEST(Properties, VictimsAreMinimal) {  // P19
  uint64_t checked = 0;
  uint64_t exempt = 0;
  uint64_t not_decidable = 0;
  for_each_history(50, [&](uint64_t seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    HistoryRules rules;
    rules.limits = rules.faults = false;
    rules.mean_arrival_seconds = 40;
    History history(seed, rules);
    Scheduler scheduler;
    Ledger ledger;
    bool quiet = true;  // nothing was leaving and nothing was promised before this row
    play(history, scheduler, rules.events, [&](const Event& event, const std::vector<Decision>& decisions) {
      ledger.row(event, decisions);
      std::map<JobId, Ledger::Tasks> victims;
      bool only_stops = true;
      for (const Decision& decision : decisions) {
        const auto* stop = std::get_if<Stop>(&decision);
        if (stop != nullptr && stop->beneficiary.is_set()) victims[stop->beneficiary].insert(stop->task);
        if (stop == nullptr || !stop->beneficiary.is_set()) only_stops = false;
      }
      quiet = quiet && !std::holds_alternative<TaskExited>(event.payload);
      if (quiet && only_stops && victims.size() == 1) {
        const auto& [beneficiary, taken] = *victims.begin();
        const auto& taker = ledger.jobs.at(beneficiary);
        // What a job that grows takes is one task more.
        const uint32_t needed = taker.phase == Ledger::Phase::active ? 1 : taker.spec.tasks_min;
        const bool grows_in_a_domain = taker.phase == Ledger::Phase::active && taker.spec.topology.is_set();
        const auto together = grows_in_a_domain ? std::nullopt : ledger.fits(taker.spec, needed, taken);
        if (!together) ++not_decidable;
        if (together) {
          ++checked;
          ASSERT_TRUE(*together) << "the beneficiary does not fit after all: " << described(taker.spec);
        }
        std::map<JobId, Ledger::Tasks> of_job;
        for (const TaskKey& task : taken) of_job[task.job].insert(task);
        for (const auto& [spared, tasks] : of_job) {
          Ledger::Tasks fewer = taken;
          // Of an elastic job that goes on, the one that is the last to go might have stayed.
          const auto& victim = ledger.jobs.at(spared);
          const bool goes_on = victim.spec.elastic && victim.live.size() > tasks.size();
          if (victim.spec.elastic && !goes_on && tasks.size() > victim.spec.tasks_min) continue;
          if (goes_on) {
            fewer.erase(*tasks.begin());
          } else {
            for (const TaskKey& task : tasks) fewer.erase(task);
          }
          ASSERT_FALSE(together && ledger.fits(taker.spec, needed, fewer).value_or(false))
              << "job " << spared.value() << " need not go for " << described(taker.spec);
        }
      } else if (!victims.empty()) {
        ++exempt;
      }
      quiet = true;
      for (const auto& [id, gpu] : ledger.gpus) {
        for (const auto& [key, held] : gpu.held) {
          const auto& job = ledger.jobs.at(key.job);
          if (!job.live.contains(key.rank) || job.live.at(key.rank).task != key || !job.told_to_stop.empty())
            quiet = false;
        }
      }
    });
  });
  std::printf("%llu evictions checked, %llu exempt (others were under way), %llu not decidable (parts)\n",
              static_cast<unsigned long long>(checked), static_cast<unsigned long long>(exempt),
              static_cast<unsigned long long>(not_decidable));
}

}  // namespace
}  // namespace tranche::scheduler::test
