// Every reason that the scheduler gives over random histories is accepted by a checker that counts room anew,
// and no reason that was tampered with is. TRANCHE_SEED=N replays one history, TRANCHE_HISTORIES=N sets how
// many.
#include "proof/checker.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>

#include "scheduler/history.h"

namespace tranche::proof {
namespace {

using scheduler::Scheduler;
using scheduler::test::History;
using scheduler::test::HistoryRules;

uint64_t number_from_environment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}

// `look` sees the scheduler after every fourth row.
template <class Look>
void play(uint64_t seed, Look look) {
  HistoryRules rules;
  History history(seed, rules);
  Scheduler scheduler;
  history.accepts = [&](const JobSpec& spec, const ArraySpec& array) {
    return scheduler.check(spec, array).has_value();
  };
  std::vector<Decision> decisions;
  for (EventPayload& payload : history.opening())
    decisions = scheduler.step(history.opening_event(std::move(payload)));
  for (int i = 0; i < rules.events && !::testing::Test::HasFailure(); ++i) {
    decisions = scheduler.step(history.next(decisions));
    if (i % 4 == 0) look(scheduler);
  }
}

template <class Look>
void for_each_history(uint64_t count, Look look) {
  const uint64_t only = number_from_environment("TRANCHE_SEED", 0);
  if (only != 0) return play(only, look);
  const uint64_t histories = number_from_environment("TRANCHE_HISTORIES", count);
  for (uint64_t seed = 1; seed <= histories && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed) + "; TRANCHE_SEED=" + std::to_string(seed) + " replays it");
    play(seed, look);
  }
}

std::string text_of(const JobSpec& spec) {
  const GpuRequest& gpu = spec.task.gpu;
  return std::to_string(spec.tasks_min) + " tasks of " + std::to_string(gpu.count) + " x " +
         std::string(to_string(gpu.kind)) + " " + gpu.type + " " + std::to_string(gpu.compute.count()) +
         " milli " + std::to_string(gpu.memory.count()) + " MiB, " + std::to_string(spec.task.cpu.count()) +
         " CPU, " + std::to_string(spec.task.memory.count()) + " MiB host" +
         (spec.elastic ? ", elastic" : "") + ", joined " + std::string(to_string(gpu.topology)) +
         ", required " + spec.topology.required + ", " + std::to_string(spec.nodes.size()) + " nodes";
}

std::string text_of(const Proof& proof) {
  std::string text = std::string(to_string(proof.kind)) + " (" + std::string(to_string(proof.resource)) +
                     ") of job " + std::to_string(proof.job.value()) + " queue '" + proof.queue +
                     "' needed " + std::to_string(proof.needed) + " available " +
                     std::to_string(proof.available) + " used " + std::to_string(proof.used) + " bound " +
                     std::to_string(proof.bound) + " blockers";
  for (const JobId blocker : proof.blockers) text += " " + std::to_string(blocker.value());
  text += " gpus";
  for (const GpuId gpu : proof.gpus) text += " " + std::to_string(gpu.value());
  return text;
}

// The one exemption, of jobs with different tasks.
bool is_undecided(const JobFact& job, const Result<void>& verdict) {
  return !verdict && verdict.error().code() == ErrorCode::not_available_yet && !job.spec->groups.empty();
}

TEST(ProofChecker, AcceptsEveryReasonOfTheScheduler) {
  std::map<std::string, uint64_t> accepted;
  uint64_t undecided = 0;
  for_each_history(40, [&](const Scheduler& scheduler) {
    const StateDump dump = scheduler.dump();
    for (const JobFact& job : dump.jobs) {
      if (job.state != JobState::pending && job.state != JobState::held) continue;
      const Proof proof = *scheduler.proof(job.job);
      const auto good = check(dump, proof);
      if (is_undecided(job, good)) {
        ++undecided;
        continue;
      }
      ASSERT_TRUE(good) << good.error().message() << ": " << text_of(proof) << " \""
                        << *scheduler.reason(job.job) << "\"; " << text_of(*job.spec);
      ++accepted[std::string(to_string(proof.kind)) +
                 (proof.resource == BoundResource::gpu ? ""
                                                       : " of " + std::string(to_string(proof.resource)))];
    }
  });
  std::printf("undecided, since the job's tasks differ: %llu\n", static_cast<unsigned long long>(undecided));
  for (const auto& [kind, count] : accepted)
    std::printf("%s: %llu accepted\n", kind.c_str(), static_cast<unsigned long long>(count));
}

// Statements that cannot be true if `proof` is: another kind that excludes it, a figure, name or time that is
// off.
std::vector<Proof> tampered(const Proof& proof, const StateDump& dump) {
  std::vector<Proof> all;
  const auto add = [&](auto change) {
    Proof other = proof;
    change(other);
    if (!(other == proof)) all.push_back(std::move(other));
  };
  add([](Proof& p) { p.kind = ProofKind::none; });
  add([](Proof& p) { p.needed += 1'000'000; });
  add([](Proof& p) { p.available += 1; });
  add([](Proof& p) { p.used += 1; });
  add([](Proof& p) { p.used -= 1; });
  add([](Proof& p) { p.bound += 1; });
  for (const BoundResource resource : {BoundResource::gpu, BoundResource::cpu, BoundResource::memory})
    add([&](Proof& p) { p.resource = resource; });
  add([](Proof& p) { p.blockers.push_back(JobId(9'999'999)); });
  add([](Proof& p) { p.blockers.push_back(p.job); });
  add([](Proof& p) { p.gpus.push_back(GpuId(9'999)); });
  add([](Proof& p) { p.queue = "nowhere"; });
  add([](Proof& p) { p.job = JobId(9'999'999); });
  add([&](Proof& p) { p.until = p.until.is_set() ? p.until + kNanosecond : dump.now + kHour; });
  if (!proof.blockers.empty()) {
    add([](Proof& p) { p.blockers.erase(p.blockers.begin()); });
    add([](Proof& p) { p.blockers.pop_back(); });
    add([](Proof& p) { p.blockers.clear(); });
  }
  if (!proof.gpus.empty()) add([](Proof& p) { p.gpus.pop_back(); });
  for (const JobFact& job : dump.jobs) {
    const bool waits = job.state == JobState::pending || job.state == JobState::held;
    if (!waits) add([&](Proof& p) { p.job = job.job; });
  }
  // What fits now cannot be kept out by what is taken, and the other way round.
  const bool fits = proof.kind == ProofKind::reserved;
  const bool does_not_fit = proof.kind == ProofKind::busy || proof.kind == ProofKind::gang;
  if (does_not_fit) {
    for (const ProofKind kind : {ProofKind::reserved, ProofKind::never_fits, ProofKind::drained,
                                 ProofKind::held, ProofKind::dependency})
      add([&](Proof& p) { p.kind = kind; });
  }
  if (fits) {
    for (const ProofKind kind :
         {ProofKind::busy, ProofKind::gang, ProofKind::never_fits, ProofKind::drained, ProofKind::held})
      add([&](Proof& p) { p.kind = kind; });
  }
  return all;
}

TEST(ProofChecker, RejectsWhatWasTamperedWith) {
  uint64_t rejected = 0;
  std::map<std::string, uint64_t> of_kind;
  for_each_history(10, [&](const Scheduler& scheduler) {
    const StateDump dump = scheduler.dump();
    for (const JobFact& job : dump.jobs) {
      if (job.state != JobState::pending && job.state != JobState::held) continue;
      const Proof proof = *scheduler.proof(job.job);
      if (is_undecided(job, check(dump, proof))) continue;
      for (const Proof& other : tampered(proof, dump)) {
        ASSERT_FALSE(check(dump, other)) << "accepted: " << text_of(other) << " for " << text_of(proof);
        ++rejected;
        ++of_kind[std::string(to_string(proof.kind))];
      }
    }
  });
  for (const auto& [kind, count] : of_kind)
    std::printf("%s: %llu rejected\n", kind.c_str(), static_cast<unsigned long long>(count));
  if (std::getenv("TRANCHE_SEED") == nullptr) {
    EXPECT_GE(rejected, 1'000u);
  }
}

}  // namespace
}  // namespace tranche::proof
