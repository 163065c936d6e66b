#include "machine/snapshot_store.h"

#include <algorithm>
#include <span>

#include "base/checksum.h"

namespace tranche::machine {
namespace {

int64_t number(SnapshotStore::Kind kind) { return static_cast<int64_t>(kind); }

}  // namespace

const char* const SnapshotStore::kSchema =
    "CREATE TABLE snapshot(seq INTEGER PRIMARY KEY, state_parts INTEGER NOT NULL, ended_parts INTEGER NOT "
    "NULL)"
    "  STRICT;"
    // `kind`: 0 state, 1 ended. The last four bytes of `content` are the CRC-32 of the others.
    "CREATE TABLE snapshot_part(seq INTEGER NOT NULL, kind INTEGER NOT NULL, number INTEGER NOT NULL,"
    "  content BLOB NOT NULL) STRICT;"
    "CREATE UNIQUE INDEX snapshot_part_key ON snapshot_part(seq, kind, number);";

Result<SnapshotStore> SnapshotStore::create(Database& database) {
  SnapshotStore store(database);
  const auto prepare = [&](std::optional<Statement>& statement, std::string_view sql) -> Result<void> {
    TRY_ASSIGN(statement, database.prepare(sql));
    return {};
  };
  TRY(prepare(store.insert_part_, "INSERT OR REPLACE INTO snapshot_part VALUES(?,?,?,?)"));
  TRY(prepare(store.insert_completion_, "INSERT OR REPLACE INTO snapshot VALUES(?,?,?)"));
  TRY(prepare(store.count_parts_, "SELECT state_parts, ended_parts FROM snapshot WHERE seq = ?"));
  TRY(prepare(store.select_parts_,
              "SELECT number, content FROM snapshot_part WHERE seq = ? AND kind = ? ORDER BY number"));
  return store;
}

std::vector<SnapshotStore::Part> SnapshotStore::parts_of(const SnapshotTexts& snapshot) {
  std::vector<Part> parts;
  const auto cut = [&](Kind kind, const std::string& text) {
    uint32_t count = 0;
    for (size_t at = 0; at < text.size(); at += kPartBytes)
      parts.push_back({snapshot.seq, kind, count++, text.substr(at, kPartBytes)});
  };
  cut(Kind::ended, snapshot.ended);
  cut(Kind::state, snapshot.state);
  return parts;
}

SnapshotStore::Completion SnapshotStore::completion_of(EventSeq seq, const std::vector<Part>& parts) {
  Completion completion{seq};
  for (const Part& part : parts)
    ++(part.kind == Kind::state ? completion.state_parts : completion.ended_parts);
  return completion;
}

Result<void> SnapshotStore::write(const Part& part) {
  const std::string content = with_checksum(part.content);
  return insert_part_->run(part.seq.value(), number(part.kind), int64_t{part.number},
                           std::as_bytes(std::span(content)));
}

Result<void> SnapshotStore::complete(const Completion& completion) {
  TRY(insert_completion_->run(completion.seq.value(), int64_t{completion.state_parts},
                              int64_t{completion.ended_parts}));
  TRY_ASSIGN(const std::vector<EventSeq> kept, list());
  if (kept.size() <= 2) return {};
  // The record of those before stays, since later ones build on their `ended`.
  TRY_ASSIGN(Statement remove, database_->prepare("DELETE FROM snapshot_part WHERE kind = 0 AND seq < ?"));
  return remove.run(kept[1].value());
}

Result<std::vector<EventSeq>> SnapshotStore::list() {
  TRY_ASSIGN(Statement rows,
             database_->prepare("SELECT seq FROM snapshot WHERE EXISTS (SELECT 1 FROM snapshot_part AS part"
                                " WHERE part.seq = snapshot.seq AND part.kind = 0) ORDER BY seq DESC"));
  rows.bind_all();
  std::vector<EventSeq> seqs;
  while (true) {
    TRY_ASSIGN(const bool more, rows.step());
    if (!more) return seqs;
    seqs.emplace_back(static_cast<uint64_t>(rows.column_int64(0)));
  }
}

Result<std::string> SnapshotStore::read(EventSeq seq, Kind kind) {
  const auto damaged = [&] {
    return fail(ErrorCode::corrupt, "the snapshot at row " + std::to_string(seq.value()) + " is damaged");
  };
  count_parts_->bind_all(seq.value());
  TRY_ASSIGN(const bool is_there, count_parts_->step());
  if (!is_there) return damaged();
  const int64_t expected = count_parts_->column_int64(kind == Kind::state ? 0 : 1);
  count_parts_->reset();
  std::string text;
  int64_t parts = 0;
  select_parts_->bind_all(seq.value(), number(kind));
  while (true) {
    TRY_ASSIGN(const bool more, select_parts_->step());
    if (!more) break;
    const std::span<const std::byte> blob = select_parts_->column_blob(1);
    const std::string content(reinterpret_cast<const char*>(blob.data()), blob.size());
    const auto sound = without_checksum(content);
    if (select_parts_->column_int64(0) != parts++ || !sound) {
      select_parts_->reset();
      return damaged();
    }
    text += *sound;
  }
  select_parts_->reset();
  if (parts != expected) return damaged();
  return text;
}

Result<void> SnapshotStore::forget_after(EventSeq last) {
  TRY_ASSIGN(Statement later, database_->prepare("DELETE FROM snapshot WHERE seq > ?"));
  TRY(later.run(last.value()));
  return database_->execute("DELETE FROM snapshot_part WHERE seq NOT IN (SELECT seq FROM snapshot)");
}

}  // namespace tranche::machine
