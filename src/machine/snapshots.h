// When snapshots are taken, and how a restart begins with one.
//
// One is taken when so many rows have come since the last, between two callbacks of the loop, and at a clean
// stop. Taking it means to write what stands as bytes, in memory: the loop pauses for that (the log says how
// long), in proportion to the jobs that live and those that have ended since the last one, not to those that
// ever were. It then goes to the disk in parts, between groups of rows. A snapshot that cannot be written is
// given up, so that it is never in the way of a row.
//
// A restart reads the newest one whose checksums, format and hash of state fit, and the rows after it; if
// none does, all rows. A snapshot never knows more than the rows: one that is ahead of them is passed over.
//
// Threading: the reactor's thread.
#pragma once

#include <functional>
#include <vector>

#include "base/reactor.h"
#include "machine/engine.h"
#include "machine/journal.h"

namespace tranche::machine {

class Snapshots final : public StepObserver {
 public:
  // Both outlive this. `rows_between` zero: none are taken.
  Snapshots(Reactor& reactor, Engine& engine, Journal& journal, uint64_t rows_between)
      : reactor_(reactor), engine_(engine), journal_(journal), rows_between_(rows_between) {}

  // Before the rows are restored: puts the newest good snapshot into the engine, which is new, and says after
  // which row to go on; unset: there is none.
  Result<EventSeq> load_newest();
  // How many rows have been restored since.
  void rows_restored(uint64_t rows) { rows_since_ = rows; }

  void on_step(const JournalRow& row) override;
  void on_durable(const JournalRow&) override {}

  // At a clean stop: `done` when what is worth it is on the disk, or when it takes too long.
  void finish(std::function<void()> done);

 private:
  void take(std::function<void()> done);
  void written(bool is_durable, EventSeq seq, std::vector<JobId> ended);

  Reactor& reactor_;
  Engine& engine_;
  Journal& journal_;
  uint64_t rows_between_;
  uint64_t rows_since_ = 0;
  bool is_writing_ = false;
  std::vector<EventSeq> chain_;  // snapshots whose ended jobs the next one builds on
  Reactor::Handle posted_, too_long_;
  std::function<void()> finished_;
};

// What a snapshot's state holds beside the parts that others write.
struct SnapshotContent {
  EventSeq seq;
  Time time;  // of that row
  Time wake;  // the armed timer
  uint64_t jobs = 0;
  std::vector<EventSeq> chain;  // whose ended jobs it builds on, itself last
  std::string tables;
  std::string scheduler;
};
Result<SnapshotContent> read_snapshot_content(EventSeq seq, std::string_view state);

}  // namespace tranche::machine
