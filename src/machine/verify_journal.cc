#include "machine/verify_journal.h"

#include <algorithm>
#include <optional>

#include "base/manual_reactor.h"
#include "machine/journal.h"
#include "machine/snapshots.h"
#include "scheduler/scheduler.h"

namespace tranche::machine {
namespace {

constexpr size_t kDifferencesMax = 100;

// A scheduler that goes on from a snapshot when its row has come.
struct FromSnapshot {
  SnapshotVerdict verdict;
  std::optional<scheduler::Scheduler> scheduler;  // none: it is unreadable

  void take(const RecordedStep& step, const scheduler::Scheduler& restored) {
    if (!scheduler) return;
    const JournalRow& row = step.row;
    const uint64_t seq = row.event.seq.value();
    if (seq == verdict.seq) verdict.holds = scheduler->state_hash() == restored.state_hash();
    if (seq <= verdict.seq) return;
    if (step.scheduler_version != scheduler::kVersion) return scheduler->restore(row.event, row.decisions);
    if (scheduler->step(row.event) != row.decisions) verdict.holds = false;
  }
};

Result<std::vector<FromSnapshot>> read_snapshots(Journal& journal) {
  std::vector<FromSnapshot> snapshots;
  TRY_ASSIGN(const std::vector<EventSeq> seqs, journal.snapshots().list());
  for (const EventSeq seq : seqs) {
    FromSnapshot& from = snapshots.emplace_back();
    from.verdict.seq = seq.value();
    auto loaded = [&]() -> Result<scheduler::Scheduler> {
      TRY_ASSIGN(const std::string state, journal.snapshots().read(seq, SnapshotStore::Kind::state));
      TRY_ASSIGN(const SnapshotContent content, read_snapshot_content(seq, state));
      return scheduler::Scheduler::load(content.scheduler);
    }();
    if (loaded) {
      from.scheduler = std::move(*loaded);
    } else {
      from.verdict.unreadable = loaded.error().message();
    }
  }
  return snapshots;
}

}  // namespace

bool JournalVerdict::holds() const {
  return different.empty() && state_hash_recomputed == state_hash_restored &&
         std::all_of(snapshots.begin(), snapshots.end(),
                     [](const SnapshotVerdict& each) { return each.holds; });
}

Result<JournalVerdict> verify_journal(const std::string& state_directory) {
  ManualReactor reactor{Time(1)};
  TRY_ASSIGN(const std::unique_ptr<Journal> journal,
             Journal::open(state_directory, reactor, std::make_unique<InlineWorker>(reactor)));
  scheduler::Scheduler deciding;
  scheduler::Scheduler restored;
  JournalVerdict verdict;
  TRY_ASSIGN(std::vector<FromSnapshot> snapshots, read_snapshots(*journal));
  TRY(journal->read_all([&](const RecordedStep& step) -> Result<void> {
    const JournalRow& row = step.row;
    ++verdict.rows;
    restored.restore(row.event, row.decisions);
    for (FromSnapshot& from : snapshots) from.take(step, restored);
    if (step.scheduler_version != scheduler::kVersion) {
      deciding.restore(row.event, row.decisions);
      return {};
    }
    ++verdict.recomputed;
    const bool same = deciding.step(row.event) == row.decisions;
    if (!same && verdict.different.size() < kDifferencesMax)
      verdict.different.push_back(row.event.seq.value());
    return {};
  }));
  verdict.state_hash_recomputed = deciding.state_hash();
  verdict.state_hash_restored = restored.state_hash();
  for (FromSnapshot& from : snapshots) {
    if (from.scheduler && from.scheduler->state_hash() != verdict.state_hash_restored)
      from.verdict.holds = false;
    verdict.snapshots.push_back(std::move(from.verdict));
  }
  return verdict;
}

}  // namespace tranche::machine
