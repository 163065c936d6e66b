#include "machine/verify_journal.h"

#include "base/manual_reactor.h"
#include "machine/journal.h"
#include "scheduler/scheduler.h"

namespace tranche::machine {
namespace {

constexpr size_t kDifferencesMax = 100;

}  // namespace

Result<JournalVerdict> verify_journal(const std::string& state_directory) {
  ManualReactor reactor{Time(1)};
  TRY_ASSIGN(const std::unique_ptr<Journal> journal,
             Journal::open(state_directory, reactor, std::make_unique<InlineWorker>(reactor)));
  scheduler::Scheduler deciding;
  scheduler::Scheduler restored;
  JournalVerdict verdict;
  TRY(journal->read_all([&](RecordedStep step) -> Result<void> {
    const JournalRow& row = step.row;
    ++verdict.rows;
    restored.restore(row.event, row.decisions);
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
  return verdict;
}

}  // namespace tranche::machine
