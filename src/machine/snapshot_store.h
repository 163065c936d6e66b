// Snapshots in the journal's file, in parts that are small enough to be written between two groups of rows.
//
// A snapshot is two texts: `state`, what stands at its row, and `ended`, the jobs that have ended since the
// one before; the state names the others that it builds on. It is there when its last record is: what a crash
// left half written is not. The last two states are kept, and all `ended` that they build on. Each part
// carries its checksum.
//
// Threading: writing is the journal's worker's; the rest before it runs. Errors: a damaged or incomplete
// snapshot is `corrupt`, and one reads the one before.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "linux/database.h"

namespace tranche::machine {

struct SnapshotTexts {
  EventSeq seq;  // of the last row that it knows
  std::string state;
  std::string ended;
};

class SnapshotStore {
 public:
  static constexpr size_t kPartBytes = size_t{256} << 10;

  enum class Kind : uint8_t { state, ended };
  struct Part {
    EventSeq seq;
    Kind kind = Kind::state;
    uint32_t number = 0;
    std::string content;
  };
  // The last record, which makes the parts before it a snapshot.
  struct Completion {
    EventSeq seq;
    uint32_t state_parts = 0;
    uint32_t ended_parts = 0;
  };

  // SQL of the tables, a migration of the journal's.
  static const char* const kSchema;
  static Result<SnapshotStore> create(Database& database);

  // In order: all of them, then their completion.
  static std::vector<Part> parts_of(const SnapshotTexts& snapshot);
  static Completion completion_of(EventSeq seq, const std::vector<Part>& parts);

  Result<void> write(const Part& part);
  Result<void> complete(const Completion& completion);

  // Newest first.
  Result<std::vector<EventSeq>> list();
  Result<std::string> read(EventSeq seq, Kind kind);
  // Those after `last`, and what is incomplete; unset: all of them.
  Result<void> forget_after(EventSeq last);

 private:
  explicit SnapshotStore(Database& database) : database_(&database) {}

  Database* database_;
  std::optional<Statement> insert_part_, insert_completion_, count_parts_, select_parts_;
};

}  // namespace tranche::machine
