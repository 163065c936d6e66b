#include "machine/journal.h"

#include <fcntl.h>
#include <unistd.h>

#include <utility>

#include "base/assert.h"
#include "base/checksum.h"
#include "base/failpoint.h"
#include "linux/files.h"
#include "linux/log.h"
#include "linux/unique_fd.h"

namespace tranche::machine {
namespace {

const char* const kMigrations[] = {
    // `crc` is the CRC-32 of event and decisions. Times are integer nanoseconds.
    "CREATE TABLE event(seq INTEGER PRIMARY KEY, time INTEGER NOT NULL, kind TEXT NOT NULL,"
    "  version INTEGER NOT NULL, event TEXT NOT NULL, decisions TEXT NOT NULL,"
    "  scheduler_version INTEGER NOT NULL, crc INTEGER NOT NULL) STRICT;"
    "CREATE TABLE payload(hash TEXT PRIMARY KEY, name TEXT NOT NULL, content TEXT NOT NULL)"
    "  STRICT, WITHOUT ROWID;"
    "CREATE TABLE idempotency(uid INTEGER NOT NULL, key TEXT NOT NULL, job INTEGER NOT NULL,"
    "  PRIMARY KEY(uid, key)) STRICT, WITHOUT ROWID;"
    "CREATE TABLE note(name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;",
    SnapshotStore::kSchema,
};

constexpr const char* kSelectRows =
    "SELECT seq,time,kind,version,event,decisions,scheduler_version,crc FROM event";

Result<RecordedStep> read_step(Statement& row) {
  StoredRow stored;
  stored.seq = static_cast<uint64_t>(row.column_int64(0));
  stored.time = row.column_int64(1);
  stored.kind = row.column_text(2);
  stored.version = static_cast<uint32_t>(row.column_int64(3));
  stored.event = row.column_text(4);
  stored.decisions = row.column_text(5);
  const std::string where = "journal row " + std::to_string(stored.seq);
  if (checksum(stored.decisions, checksum(stored.event)) != static_cast<uint32_t>(row.column_int64(7))) {
    return fail(ErrorCode::corrupt, where +
                                        " is damaged (its checksum does not fit): restore a backup of the "
                                        "state directory, or move it away to start empty");
  }
  auto decoded = decode_stored_row(stored);
  if (!decoded) return fail(std::move(decoded).error().with_context(where));
  return RecordedStep{std::move(*decoded), static_cast<uint32_t>(row.column_int64(6))};
}

}  // namespace

Result<std::unique_ptr<Journal>> Journal::open(const std::string& state_directory, Reactor& reactor,
                                               std::unique_ptr<Worker> worker, MiB ballast) {
  auto database = Database::open(state_directory + "/journal.db", kMigrations);
  if (!database) {
    return fail(std::move(database).error().with_context("the journal in " + state_directory));
  }
  std::unique_ptr<Journal> journal(new Journal(state_directory, reactor, std::move(*database), ballast));
  TRY(journal->prepare_statements());
  journal->make_ballast();
  journal->worker_ = std::move(worker);
  return journal;
}

Journal::Journal(std::string state_directory, Reactor& reactor, Database database, MiB ballast)
    : ballast_path_(std::move(state_directory) + "/ballast"),
      ballast_(ballast),
      reactor_(reactor),
      database_(std::move(database)) {}

Journal::~Journal() {
  retry_.reset();
  // What still gathers goes out in one last group; its callers are gone.
  if (!queue_.empty() && !writing_) {
    auto batch = std::make_shared<Batch>(std::move(queue_));
    (void)worker_->submit([this, batch] { return write(*batch); }, [](const Result<void>&) {});
  }
}

Result<void> Journal::prepare_statements() {
  const auto prepare = [this](std::optional<Statement>& statement, std::string_view sql) -> Result<void> {
    TRY_ASSIGN(statement, database_.prepare(sql));
    return {};
  };
  TRY(prepare(insert_event_, "INSERT INTO event VALUES(?,?,?,?,?,?,?,?)"));
  TRY(prepare(insert_payload_, "INSERT OR IGNORE INTO payload VALUES(?,?,?)"));
  TRY(prepare(insert_key_, "INSERT INTO idempotency VALUES(?,?,?)"));
  TRY(prepare(insert_note_, "INSERT OR REPLACE INTO note VALUES(?,?)"));
  TRY(prepare(select_rows_, std::string(kSelectRows) + " WHERE seq > ? ORDER BY seq LIMIT ?"));
  TRY_ASSIGN(snapshots_, SnapshotStore::create(database_));
  return prepare(select_payload_, "SELECT content FROM payload WHERE hash = ?");
}

void Journal::make_ballast() {
  if (ballast_ <= MiB()) return;
  const UniqueFd file(::open(ballast_path_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  if (!file.is_open() || ::posix_fallocate(file.get(), 0, off_t{ballast_.count()} << 20) != 0) {
    log(LogLevel::warning, "no_ballast", {{"path", ballast_path_}});
  }
}

Result<void> Journal::read_all(const std::function<Result<void>(RecordedStep step)>& take) {
  TRY_ASSIGN(Statement rows, database_.prepare(std::string(kSelectRows) + " ORDER BY seq"));
  rows.bind_all();
  while (true) {
    TRY_ASSIGN(const bool more, rows.step());
    if (!more) return {};
    TRY_ASSIGN(RecordedStep step, read_step(rows));
    TRY(take(std::move(step)));
  }
}

Result<bool> Journal::has_row(EventSeq seq) {
  TRY_ASSIGN(Statement row, database_.prepare(std::string(kSelectRows) + " WHERE seq = ?"));
  row.bind_all(seq.value());
  TRY_ASSIGN(const bool is_there, row.step());
  if (is_there) TRY(read_step(row));
  return is_there;
}

Result<Journal::TailCut> Journal::recover(EventSeq after,
                                          const std::function<Result<void>(RecordedStep step)>& take) {
  TailCut cut;
  {
    TRY_ASSIGN(Statement rows, database_.prepare(std::string(kSelectRows) + " WHERE seq > ? ORDER BY seq"));
    rows.bind_all(after.value());
    EventSeq expected = after.is_set() ? EventSeq(after.value() + 1) : EventSeq();
    while (true) {
      TRY_ASSIGN(const bool more, rows.step());
      if (!more) break;
      const EventSeq seq(static_cast<uint64_t>(rows.column_int64(0)));
      if (expected.is_set() && seq != expected) {
        return fail(ErrorCode::corrupt, "journal row " + std::to_string(expected.value()) +
                                            " is missing: restore a backup (tranched restore)");
      }
      expected = EventSeq(seq.value() + 1);
      auto step = read_step(rows);
      const bool damaged = !step && step.error().code() == ErrorCode::corrupt;
      if (!step && !damaged) return fail(std::move(step).error());
      if (damaged) {
        if (!cut.first.is_set()) {
          cut.first = seq;
          cut.damage = step.error().message();
        }
        cut.last = seq;
        continue;
      }
      if (cut.first.is_set()) return fail(ErrorCode::corrupt, cut.damage);
      TRY(take(std::move(*step)));
    }
  }
  if (cut.first.is_set()) TRY(cut_tail(cut));
  return cut;
}

Result<void> Journal::cut_tail(TailCut& cut) {
  const std::string folder = ballast_path_.substr(0, ballast_path_.rfind('/'));
  cut.copy = folder + "/journal.db.damaged-at-" + std::to_string(cut.first.value());
  ::unlink(cut.copy.c_str());
  TRY_ASSIGN(Statement keep, database_.prepare("VACUUM INTO ?"));
  TRY(keep.run(cut.copy));
  TRY_ASSIGN(Statement remove, database_.prepare("DELETE FROM event WHERE seq >= ?"));
  return remove.run(cut.first.value());
}

Result<void> Journal::forget_keys_from(JobId first) {
  TRY_ASSIGN(Statement remove, database_.prepare("DELETE FROM idempotency WHERE job >= ?"));
  return remove.run(first.value());
}

Result<void> Journal::read_names(const std::function<void(std::string hash, std::string name)>& take) {
  TRY_ASSIGN(Statement rows, database_.prepare("SELECT hash, name FROM payload"));
  rows.bind_all();
  while (true) {
    TRY_ASSIGN(const bool more, rows.step());
    if (!more) return {};
    take(std::string(rows.column_text(0)), std::string(rows.column_text(1)));
  }
}

Result<void> Journal::read_names(const std::vector<std::string>& hashes,
                                 const std::function<void(std::string hash, std::string name)>& take) {
  TRY_ASSIGN(Statement row, database_.prepare("SELECT name FROM payload WHERE hash = ?"));
  for (const std::string& hash : hashes) {
    row.bind_all(hash);
    TRY_ASSIGN(const bool is_there, row.step());
    if (is_there) take(hash, std::string(row.column_text(0)));
  }
  return {};
}

Result<void> Journal::read_idempotency(const std::function<void(IdempotencyKey key, JobId job)>& take) {
  TRY_ASSIGN(Statement rows, database_.prepare("SELECT uid, key, job FROM idempotency"));
  rows.bind_all();
  while (true) {
    TRY_ASSIGN(const bool more, rows.step());
    if (!more) return {};
    take({static_cast<uint32_t>(rows.column_int64(0)), std::string(rows.column_text(1))},
         JobId(static_cast<uint64_t>(rows.column_int64(2))));
  }
}

Result<std::string> Journal::read_note(const std::string& name) {
  TRY_ASSIGN(Statement row, database_.prepare("SELECT value FROM note WHERE name = ?"));
  row.bind_all(name);
  TRY_ASSIGN(const bool found, row.step());
  return found ? std::string(row.column_text(0)) : std::string();
}

Result<std::map<std::string, std::string>> Journal::read_notes(const std::string& prefix) {
  TRY_ASSIGN(Statement rows, database_.prepare("SELECT name, value FROM note WHERE substr(name, 1, ?) = ?"));
  rows.bind_all(static_cast<uint64_t>(prefix.size()), prefix);
  std::map<std::string, std::string> notes;
  while (true) {
    TRY_ASSIGN(const bool more, rows.step());
    if (!more) return notes;
    notes.emplace(rows.column_text(0), rows.column_text(1));
  }
}

Result<void> Journal::write_note_now(const std::string& name, const std::string& value) {
  return insert_note_->run(name, value);
}

Result<std::string> Journal::read_payload_now(const std::string& hash) {
  select_payload_->bind_all(hash);
  TRY_ASSIGN(const bool found, select_payload_->step());
  if (!found) return fail(ErrorCode::corrupt, "the journal has no payload " + hash);
  std::string content(select_payload_->column_text(0));
  select_payload_->reset();
  return content;
}

void Journal::append(JournalEntry entry, Durable durable) { enqueue({std::move(entry), std::move(durable)}); }

void Journal::append_note(std::string name, std::string value) {
  enqueue({Note{std::move(name), std::move(value)}, {}});
}

void Journal::enqueue(Pending pending) {
  queue_.push_back(std::move(pending));
  if (!writing_) write_next();
}

void Journal::append_snapshot(SnapshotTexts snapshot, std::function<void(bool is_durable)> done) {
  TRANCHE_ASSERT(snapshot_queue_.empty() && !snapshot_done_);
  std::vector<SnapshotStore::Part> parts = SnapshotStore::parts_of(snapshot);
  const SnapshotStore::Completion completion = SnapshotStore::completion_of(snapshot.seq, parts);
  snapshot_done_ = std::move(done);
  for (SnapshotStore::Part& part : parts) snapshot_queue_.push_back({std::move(part), {}});
  snapshot_queue_.push_back({completion, [this] { std::exchange(snapshot_done_, {})(true); }});
  if (!writing_) write_next();
}

void Journal::write_next() {
  auto batch = std::make_shared<Batch>(std::exchange(queue_, {}));
  if (!snapshot_queue_.empty()) {
    batch->push_back(std::move(snapshot_queue_.front()));
    snapshot_queue_.pop_front();
  }
  writing_ = true;
  submit_batch(batch);
}

void Journal::submit_batch(const std::shared_ptr<Batch>& batch) {
  const Result<void> submitted =
      worker_->submit([this, batch] { return write(*batch); },
                      [this, batch](const Result<void>& result) { batch_done(batch, result); });
  if (!submitted) batch_done(batch, submitted);  // the reads that fill the queue will pass
}

void Journal::batch_done(const std::shared_ptr<Batch>& batch, const Result<void>& result) {
  if (!result) {
    if (trouble_.empty()) log(LogLevel::error, "journal_write_failed", {{"error", result.error()}});
    // It may have been the snapshot's size: rows are what matters.
    if (give_up_snapshot(*batch)) {
      if (!batch->empty()) return submit_batch(batch);
      writing_ = false;
      if (!queue_.empty()) write_next();
      return;
    }
    trouble_ = result.error().message();
    ::unlink(ballast_path_.c_str());
    retry_ = reactor_.at(reactor_.clock().since_boot() + kSecond, [this, batch] { submit_batch(batch); });
    return;
  }
  if (!trouble_.empty()) {
    log(LogLevel::notice, "journal_writes_again");
    trouble_.clear();
    make_ballast();
  }
  writing_ = false;
  if (!queue_.empty() || !snapshot_queue_.empty()) write_next();
  for (Pending& pending : *batch) {
    failpoint("journal.before_acknowledging");
    if (pending.durable) pending.durable();
    failpoint("journal.acknowledged");
  }
}

Result<void> Journal::write(const Batch& batch) {
  failpoint("journal.begin");
  TRY_ASSIGN(Transaction transaction, database_.begin());
  for (const Pending& pending : batch) {
    TRY(write_one(pending));
    failpoint("journal.row_written");
  }
  TRY(transaction.commit());
  failpoint("journal.committed");
  return {};
}

Result<void> Journal::write_one(const Pending& pending) {
  if (const auto* note = std::get_if<Note>(&pending.what)) return insert_note_->run(note->name, note->value);
  if (const auto* part = std::get_if<SnapshotStore::Part>(&pending.what)) return snapshots_->write(*part);
  if (const auto* completion = std::get_if<SnapshotStore::Completion>(&pending.what))
    return snapshots_->complete(*completion);
  return write_entry(std::get<JournalEntry>(pending.what));
}

// Takes it out of the batch that failed; false: there was nothing of it.
bool Journal::give_up_snapshot(Batch& batch) {
  if (std::erase_if(batch, [](const Pending& pending) { return pending.is_of_snapshot(); }) == 0)
    return false;
  snapshot_queue_.clear();
  log(LogLevel::warning, "snapshot_given_up");
  std::exchange(snapshot_done_, {})(false);
  return true;
}

Result<void> Journal::write_entry(const JournalEntry& entry) {
  const JournalRow& row = entry.step.row;
  const StoredRow stored = store_row(row.event, row.decisions);
  TRY(insert_event_->run(stored.seq, stored.time, stored.kind, int64_t{stored.version}, stored.event,
                         stored.decisions, int64_t{entry.step.scheduler_version},
                         int64_t{checksum(stored.decisions, checksum(stored.event))}));
  if (entry.payload)
    TRY(insert_payload_->run(entry.payload->hash, entry.payload->name, entry.payload->content));
  if (entry.idempotency) {
    const JobId job = std::get<JobSubmitted>(row.event.payload).job;
    TRY(insert_key_->run(int64_t{entry.idempotency->uid}, entry.idempotency->key, job.value()));
  }
  return {};
}

void Journal::read_rows(EventSeq since, size_t limit,
                        std::function<void(Result<std::vector<JournalRow>>)> done) {
  auto rows = std::make_shared<std::vector<JournalRow>>();
  const auto read = [this, rows, since, limit]() -> Result<void> {
    select_rows_->bind_all(since.value(), static_cast<uint64_t>(limit));
    while (true) {
      TRY_ASSIGN(const bool more, select_rows_->step());
      if (!more) break;
      TRY_ASSIGN(RecordedStep step, read_step(*select_rows_));
      rows->push_back(std::move(step.row));
    }
    select_rows_->reset();
    return {};
  };
  auto answer = std::make_shared<decltype(done)>(std::move(done));
  const Result<void> submitted = worker_->submit(read, [rows, answer](const Result<void>& result) {
    if (!result) return (*answer)(fail(result.error().clone()));
    (*answer)(std::move(*rows));
  });
  if (!submitted) (*answer)(fail(submitted.error().clone()));
}

void Journal::read_payload(const std::string& hash, std::function<void(Result<std::string>)> done) {
  auto content = std::make_shared<std::string>();
  const auto read = [this, hash, content]() -> Result<void> {
    TRY_ASSIGN(*content, read_payload_now(hash));
    return {};
  };
  auto answer = std::make_shared<decltype(done)>(std::move(done));
  const Result<void> submitted = worker_->submit(read, [content, answer](const Result<void>& result) {
    if (!result) return (*answer)(fail(result.error().clone()));
    (*answer)(std::move(*content));
  });
  if (!submitted) (*answer)(fail(submitted.error().clone()));
}

}  // namespace tranche::machine
