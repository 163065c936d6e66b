// The machine's event log on disk: each row an event and the decisions taken on it, durable in groups.
//
// SQLite (WAL, FULL) in `<state dir>/journal.db`, mode 0600, written by a thread of its own: a commit may
// take tens of milliseconds, and the loop must not. Rows are written in order; while one group is being
// synced the next gathers. A write that fails (disk full) is tried again every second, first giving up the
// ballast file; nothing that was appended is dropped, and nothing after it overtakes it.
//
// What jobs run (payloads) lies in the same file under its hash, so that a submission and its payload become
// durable together; `tranche events` never shows it.
//
// Threading: the loop's thread, which also gets all callbacks. Errors: opening fails with a sentence that
// says what to do; a row whose checksum is wrong is `corrupt` and names its seq.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/reactor.h"
#include "base/result.h"
#include "codec/event_json.h"
#include "linux/database.h"
#include "linux/worker.h"
#include "machine/snapshot_store.h"

namespace tranche::machine {

struct RecordedStep {
  JournalRow row;
  uint32_t scheduler_version = 0;  // of the one that took the decisions
};

struct StoredPayload {
  std::string hash;
  std::string name;     // of the job, for lists
  std::string content;  // JSON, owner-only
};

// A submission that its sender may repeat: the same key of the same user gives the same job.
struct IdempotencyKey {
  uint32_t uid = 0;
  std::string key;
};

// What must become durable together.
struct JournalEntry {
  RecordedStep step;
  std::optional<StoredPayload> payload;
  std::optional<IdempotencyKey> idempotency;
};

class Journal {
 public:
  using Durable = std::function<void()>;

  // `worker` does the writing and reading; it is ended first. `ballast`: kept on the disk and given up when
  // it fills; zero for who only reads.
  static Result<std::unique_ptr<Journal>> open(const std::string& state_directory, Reactor& reactor,
                                               std::unique_ptr<Worker> worker, MiB ballast = MiB());
  ~Journal();

  // --- before the loop runs: recovery ------------------------------------------------------------------
  // Gives every row in order. Stops at the first error.
  Result<void> read_all(const std::function<Result<void>(RecordedStep step)>& take);
  // The same, for the daemon that goes on writing: rows at the end that are damaged are kept in a copy of the
  // whole file, cut off, and told; they are never guessed. Damage with good rows behind it is an error, and
  // so is a row that is missing.
  struct TailCut {
    EventSeq first;  // unset: nothing was cut
    EventSeq last;
    std::string copy;  // the file as it was
    std::string damage;
  };
  // `after`: the row that a snapshot stands for; unset: none, from the first row on.
  Result<TailCut> recover(EventSeq after, const std::function<Result<void>(RecordedStep step)>& take);
  Result<TailCut> recover(const std::function<Result<void>(RecordedStep step)>& take) {
    return recover(EventSeq(), take);
  }
  // Whether it is there; damaged: an error.
  Result<bool> has_row(EventSeq seq);
  SnapshotStore& snapshots() { return *snapshots_; }
  // Keys of submissions that were cut, by the first job id that the journal does not know.
  Result<void> forget_keys_from(JobId first);
  // hash -> name of every payload, or of those.
  Result<void> read_names(const std::function<void(std::string hash, std::string name)>& take);
  Result<void> read_names(const std::vector<std::string>& hashes,
                          const std::function<void(std::string hash, std::string name)>& take);
  Result<void> read_idempotency(const std::function<void(IdempotencyKey key, JobId job)>& take);
  // A note that outlives restarts, such as the boot id of the last run; empty if there is none.
  Result<std::string> read_note(const std::string& name);
  // Those whose names begin so, by name.
  Result<std::map<std::string, std::string>> read_notes(const std::string& prefix);
  Result<void> write_note_now(const std::string& name, const std::string& value);
  Result<std::string> read_payload_now(const std::string& hash);

  // --- while the loop runs --------------------------------------------------------------------------------
  // `durable` is called once the entry is on disk; in order.
  void append(JournalEntry entry, Durable durable);
  // A note becomes durable after everything that was appended before it.
  void append_note(std::string name, std::string value);
  // A snapshot becomes durable after everything that was appended before it, in parts, one with each group of
  // rows. `done(false)`: it could not be written, and is given up. One at a time.
  void append_snapshot(SnapshotTexts snapshot, std::function<void(bool is_durable)> done);
  // Rows after `since`, at most `limit`.
  void read_rows(EventSeq since, size_t limit, std::function<void(Result<std::vector<JournalRow>>)> done);
  void read_payload(const std::string& hash, std::function<void(Result<std::string>)> done);

  // Set while writes fail: submissions are to be refused (507). Empty when all is well.
  const std::string& trouble() const { return trouble_; }

 private:
  struct Note {
    std::string name;
    std::string value;
  };
  struct Pending {
    std::variant<JournalEntry, Note, SnapshotStore::Part, SnapshotStore::Completion> what;
    Durable durable;
    bool is_of_snapshot() const { return what.index() >= 2; }
  };
  using Batch = std::vector<Pending>;

  Journal(std::string state_directory, Reactor& reactor, Database database, MiB ballast);
  Result<void> prepare_statements();
  Result<void> cut_tail(TailCut& cut);
  void make_ballast();
  void write_next();
  void batch_done(const std::shared_ptr<Batch>& batch, const Result<void>& result);
  void submit_batch(const std::shared_ptr<Batch>& batch);
  Result<void> write(const Batch& batch);
  void enqueue(Pending pending);
  Result<void> write_one(const Pending& pending);
  bool give_up_snapshot(Batch& batch);
  Result<void> write_entry(const JournalEntry& entry);

  std::string ballast_path_;
  MiB ballast_;
  Reactor& reactor_;
  Database database_;
  // Used by the worker only, once it runs.
  std::optional<Statement> insert_event_, insert_payload_, insert_key_, insert_note_, select_rows_,
      select_payload_;
  std::optional<SnapshotStore> snapshots_;
  Batch queue_;
  std::deque<Pending> snapshot_queue_;  // parts, then the completion
  std::function<void(bool)> snapshot_done_;
  bool writing_ = false;
  std::string trouble_;
  Reactor::Handle retry_;
  std::unique_ptr<Worker> worker_;  // last: joined first
};

}  // namespace tranche::machine
