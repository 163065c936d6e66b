// The daemon's restarts through snapshots, and what it makes of damaged ones.
#include "machine/snapshots.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include "base/checksum.h"
#include "linux/database.h"
#include "machine/daemon_fixture.h"
#include "machine/journal_backup.h"
#include "machine/tables_archive.h"
#include "machine/verify_journal.h"

namespace tranche::machine {
namespace {

class SnapshotsTest : public DaemonFixture {
 protected:
  SnapshotsTest() {
    config_.snapshot_rows = 20;
    behaviour_.run_time = 200 * kMillisecond;
    set_log_sink([this](LogLevel, std::string_view line) {
      if (line.find("event=recovered") != std::string_view::npos) recovered_ = line;
      if (line.find("snapshot_passed_over") != std::string_view::npos) passed_over_.emplace_back(line);
    });
  }

  // Enough jobs for several snapshots, some of which still wait or run.
  void live_a_while() {
    for (int i = 0; i < 30; ++i) {
      submit(static_cast<uint32_t>(i % 3));
      pass(150 * kMillisecond);
    }
  }
  // All that a restart must bring back.
  std::string everything() {
    std::vector<JobId> ids;
    for (const auto& [id, job] : engine().jobs().all()) ids.push_back(id);
    return engine().scheduler().save() + save_records(engine().jobs(), ids) +
           save_tables(engine().jobs(), engine().faults());
  }
  void restart_into_the_same() {
    pass(100 * kMillisecond);
    const std::string before = everything();
    const EventSeq last = engine().last_seq();
    stop_daemon();
    // Not started: what restores is looked at before anything happens.
    auto created = Daemon::create({reactor_, gpus_, tasks_, users_, config_, "boot",
                                   std::make_unique<InlineWorker>(reactor_),
                                   [this]() -> Result<DaemonConfig> { return config_; }, nullptr});
    ASSERT_TRUE(created) << created.error().message();
    daemon_ = std::move(*created);
    EXPECT_EQ(engine().last_seq(), last);
    EXPECT_EQ(everything(), before);
    daemon_.reset();
    start_daemon();
  }
  uint64_t rows_restored() const {
    const size_t at = recovered_.find("rows=");
    return at == std::string::npos ? UINT64_MAX : std::strtoull(recovered_.c_str() + at + 5, nullptr, 10);
  }
  void execute(const std::string& sql) const {
    const char* const kNothingToMigrate[] = {"", ""};
    auto database = Database::open(config_.state_dir + "/journal.db", kNothingToMigrate);
    ASSERT_TRUE(database) << database.error().message();
    const auto done = database->execute(sql.c_str());
    ASSERT_TRUE(done) << done.error().message();
  }
  void damage_newest(const std::string& of) const {
    execute(
        "UPDATE snapshot_part SET content = zeroblob(length(content)) WHERE seq = (SELECT max(seq) FROM "
        "snapshot_part WHERE " +
        of + ") AND " + of);
  }
  size_t snapshots_kept() const {
    const auto verdict = verify_journal(config_.state_dir);
    EXPECT_TRUE(verdict) << verdict.error().message();
    return verdict ? verdict->snapshots.size() : 0;
  }

  std::string recovered_;
  std::vector<std::string> passed_over_;
};

TEST_F(SnapshotsTest, ARestartReadsTheNewestAndTheRowsAfterIt) {
  start_daemon();
  live_a_while();
  restart_into_the_same();
  EXPECT_LT(rows_restored(), 30U);
  EXPECT_EQ(passed_over_.size(), 0U);
  live_a_while();
  restart_into_the_same();
  EXPECT_LT(rows_restored(), 30U);
  EXPECT_EQ(snapshots_kept(), 2U);
}

TEST_F(SnapshotsTest, WhatJobsAreCalledComesBackToo) {
  start_daemon();
  live_a_while();
  restart_into_the_same();
  for (const auto& [id, job] : engine().jobs().all()) EXPECT_EQ(job.name, "train") << "job " << id.value();
}

TEST_F(SnapshotsTest, ADamagedOneIsPassedOverForTheOneBefore) {
  start_daemon();
  live_a_while();
  pass(5 * kSecond);
  stop_daemon();
  damage_newest("kind = 0");
  start_daemon();
  ASSERT_EQ(passed_over_.size(), 1U);
  EXPECT_GT(rows_restored(), 19U);
  EXPECT_LT(rows_restored(), 60U);
  restart_into_the_same();
  const auto verdict = verify_journal(config_.state_dir);
  ASSERT_TRUE(verdict);
  EXPECT_TRUE(verdict->holds());
}

// The jobs that ended long ago stand in what all later snapshots build on.
TEST_F(SnapshotsTest, WithoutItsEndedJobsAllRowsAreRead) {
  start_daemon();
  live_a_while();
  pass(5 * kSecond);
  const std::string before = everything();
  const uint64_t rows = engine().last_seq().value();
  stop_daemon();
  execute(
      "DELETE FROM snapshot_part WHERE kind = 1 AND seq = (SELECT min(seq) FROM snapshot_part WHERE kind = "
      "1)");
  start_daemon();
  EXPECT_EQ(passed_over_.size(), 2U);
  EXPECT_EQ(rows_restored(), rows);
  live_a_while();
  restart_into_the_same();
  EXPECT_LT(rows_restored(), 30U);
}

TEST_F(SnapshotsTest, OneOfAnotherFormatIsPassedOver) {
  start_daemon();
  live_a_while();
  pass(5 * kSecond);
  const uint64_t rows = engine().last_seq().value();
  stop_daemon();
  // What a program of another format would have written: its first number is the format.
  std::string hex;
  for (const char byte : with_checksum("\x7f")) {
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", static_cast<unsigned char>(byte));
    hex += digits;
  }
  execute("UPDATE snapshot_part SET content = x'" + hex + "' WHERE kind = 0");
  start_daemon();
  EXPECT_EQ(passed_over_.size(), 2U);
  EXPECT_EQ(rows_restored(), rows);
}

TEST_F(SnapshotsTest, OneThatIsAheadOfTheRowsIsPassedOver) {
  start_daemon();
  live_a_while();
  pass(5 * kSecond);
  stop_daemon();
  execute("DELETE FROM event WHERE seq >= (SELECT max(seq) FROM snapshot)");
  start_daemon();
  ASSERT_EQ(passed_over_.size(), 1U);
  EXPECT_NE(passed_over_.front().find("the journal ends before"), std::string::npos) << passed_over_.front();
}

// What a snapshot says of the last row is not taken in its stead: the row is cut as without any snapshot, or
// it would stand in the middle of a log that nobody can replay.
TEST_F(SnapshotsTest, ADamagedLastRowIsCutAllTheSame) {
  config_.snapshot_rows = 1'000'000;
  start_daemon();
  for (int i = 0; i < 4; ++i) live_a_while();
  pass(5 * kSecond);
  daemon_->finish([] {});
  pass(kSecond);
  const EventSeq last = engine().last_seq();
  stop_daemon();
  execute("UPDATE event SET decisions = '[ ]' WHERE seq = (SELECT max(seq) FROM event)");
  auto created = Daemon::create({reactor_, gpus_, tasks_, users_, config_, "boot",
                                 std::make_unique<InlineWorker>(reactor_),
                                 [this]() -> Result<DaemonConfig> { return config_; }, nullptr});
  ASSERT_TRUE(created) << created.error().message();
  EXPECT_EQ((*created)->engine().last_seq().value(), last.value() - 1);
  EXPECT_EQ(passed_over_.size(), 1U);
}

TEST_F(SnapshotsTest, ACleanStopLeavesNothingToRestore) {
  config_.snapshot_rows = 1'000'000;
  start_daemon();
  for (int i = 0; i < 4; ++i) live_a_while();
  pass(5 * kSecond);
  ASSERT_GT(engine().last_seq().value(), 256U);
  bool finished = false;
  daemon_->finish([&] { finished = true; });
  pass(kSecond);
  EXPECT_TRUE(finished);
  stop_daemon();
  start_daemon();
  EXPECT_EQ(rows_restored(), 0U);
}

TEST_F(SnapshotsTest, NoneAreTakenWhereTheConfigurationSaysSo) {
  config_.snapshot_rows = 0;
  start_daemon();
  live_a_while();
  stop_daemon();
  EXPECT_EQ(snapshots_kept(), 0U);
}

TEST_F(SnapshotsTest, VerifyComparesEachWithWhatTheRowsMake) {
  start_daemon();
  live_a_while();
  pass(5 * kSecond);
  stop_daemon();
  const auto verdict = verify_journal(config_.state_dir);
  ASSERT_TRUE(verdict) << verdict.error().message();
  ASSERT_EQ(verdict->snapshots.size(), 2U);
  EXPECT_TRUE(verdict->holds());
  for (const SnapshotVerdict& snapshot : verdict->snapshots) {
    EXPECT_TRUE(snapshot.holds);
    EXPECT_EQ(snapshot.unreadable, "");
  }
  // The same snapshot under another number is none.
  execute(
      "UPDATE snapshot SET seq = seq - 1 WHERE seq = (SELECT max(seq) FROM snapshot);"
      "UPDATE snapshot_part SET seq = seq - 1 WHERE seq = (SELECT max(seq) FROM snapshot_part)");
  const auto moved = verify_journal(config_.state_dir);
  ASSERT_TRUE(moved) << moved.error().message();
  EXPECT_NE(moved->snapshots.front().unreadable, "");
  damage_newest("kind = 0");
  const auto damaged = verify_journal(config_.state_dir);
  ASSERT_TRUE(damaged) << damaged.error().message();
  EXPECT_NE(damaged->snapshots.front().unreadable, "");
  EXPECT_TRUE(damaged->holds());
}

// Sound rows that are not those which the snapshot was made of.
TEST_F(SnapshotsTest, VerifySeesASnapshotOfAnotherHistory) {
  start_daemon();
  JobSpec held;
  held.owner = {2001, 2001, "user2001"};
  held.queue = "default/user2001";
  held.held = true;
  submit(held);
  live_a_while();
  pass(5 * kSecond);
  stop_daemon();
  {
    const char* const kNothingToMigrate[] = {"", ""};
    auto database = Database::open(config_.state_dir + "/journal.db", kNothingToMigrate);
    ASSERT_TRUE(database);
    auto select =
        database->prepare("SELECT seq, event, decisions FROM event WHERE kind = 'job_submitted' LIMIT 1");
    ASSERT_TRUE(select);
    select->bind_all();
    ASSERT_TRUE(select->step());
    std::string event(select->column_text(1));
    const size_t limit = event.find("3600000000000");
    ASSERT_NE(limit, std::string::npos) << event;
    event[limit] = '4';
    const int64_t sum = checksum(select->column_text(2), checksum(event));
    auto update = database->prepare("UPDATE event SET event = ?, crc = ? WHERE seq = ?");
    ASSERT_TRUE(update);
    ASSERT_TRUE(update->run(event, sum, select->column_int64(0)));
  }
  const auto verdict = verify_journal(config_.state_dir);
  ASSERT_TRUE(verdict) << verdict.error().message();
  EXPECT_TRUE(verdict->different.empty());
  EXPECT_FALSE(verdict->holds());
  for (const SnapshotVerdict& snapshot : verdict->snapshots) EXPECT_FALSE(snapshot.holds);
}

TEST_F(SnapshotsTest, ABackupCarriesThem) {
  start_daemon();
  live_a_while();
  const std::string file = config_.state_dir + "/copy.db";
  ASSERT_TRUE(back_up_journal(config_.state_dir, file));
  pass(5 * kSecond);
  stop_daemon();
  const UniqueFd backup(::open(file.c_str(), O_RDONLY | O_CLOEXEC));
  std::string replaced;
  const auto rows = restore_journal(backup, config_.state_dir, &replaced);
  ASSERT_TRUE(rows) << rows.error().message();
  EXPECT_EQ(snapshots_kept(), 2U);
  start_daemon();
  EXPECT_LT(rows_restored(), 40U);
  EXPECT_EQ(passed_over_.size(), 0U);
}

}  // namespace
}  // namespace tranche::machine
