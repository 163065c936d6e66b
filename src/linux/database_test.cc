#include "linux/database.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include <fstream>

#include "linux/files.h"
#include "linux/test_support.h"
#include "linux/unix_socket.h"

namespace tranche {
namespace {

constexpr const char* kMigrations[] = {
    "CREATE TABLE event (seq INTEGER PRIMARY KEY, body TEXT NOT NULL, data BLOB) STRICT",
    "CREATE TABLE note (text TEXT UNIQUE) STRICT; INSERT INTO note VALUES ('made')",
};

Result<Database> open_at(const std::string& path) { return Database::open(path, kMigrations); }

Result<int64_t> count_events(Database& database) {
  TRY_ASSIGN(Statement statement, database.prepare("SELECT count(*) FROM event"));
  TRY_ASSIGN(const bool has_row, statement.step());
  return has_row ? statement.column_int64(0) : -1;
}

TEST(Database, KeepsValuesOfEveryTypeExactly) {
  TemporaryDirectory directory;
  auto database = open_at(directory.file("d"));
  ASSERT_TRUE(database) << database.error().message();
  auto insert = database->prepare("INSERT INTO event VALUES (?, ?, ?)");
  ASSERT_TRUE(insert);
  const std::string text("nul \0 inside é", 15);
  const std::byte blob[] = {std::byte{0}, std::byte{255}};
  ASSERT_TRUE(insert->run(INT64_MAX, text, std::span<const std::byte>(blob)));
  ASSERT_TRUE(insert->run(int64_t{-5}, "", nullptr));
  EXPECT_EQ(database->last_insert_rowid(), -5);
  auto select = database->prepare("SELECT seq, body, data FROM event ORDER BY seq");
  ASSERT_TRUE(select);
  ASSERT_TRUE(*select->step());
  EXPECT_EQ(select->column_int64(0), -5);
  EXPECT_EQ(select->column_text(1), "");
  EXPECT_FALSE(select->column_is_null(1));
  EXPECT_TRUE(select->column_is_null(2));
  ASSERT_TRUE(*select->step());
  EXPECT_EQ(select->column_int64(0), INT64_MAX);
  EXPECT_EQ(select->column_text(1), text);
  ASSERT_EQ(select->column_blob(2).size(), 2u);
  EXPECT_EQ(select->column_blob(2)[1], std::byte{255});
  EXPECT_FALSE(*select->step());
}

TEST(Database, IsForItsOwnerOnly) {
  TemporaryDirectory directory;
  ::umask(0);
  ASSERT_TRUE(open_at(directory.file("d")));
  ::umask(022);
  struct stat status = {};
  ASSERT_EQ(::stat(directory.file("d").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777u, 0600u);
}

TEST(Database, MigratesOnceAndRefusesANewerFile) {
  TemporaryDirectory directory;
  const std::string path = directory.file("d");
  ASSERT_TRUE(Database::open(path, std::span(kMigrations).first(1)));
  for (int i = 0; i < 2; ++i) {
    auto database = open_at(path);
    ASSERT_TRUE(database) << database.error().message();
    auto notes = database->prepare("SELECT count(*) FROM note");
    ASSERT_TRUE(*notes->step());
    EXPECT_EQ(notes->column_int64(0), 1);
  }
  const auto older = Database::open(path, std::span(kMigrations).first(1));
  ASSERT_FALSE(older);
  EXPECT_EQ(older.error().code(), ErrorCode::conflict);
}

TEST(Database, RollsBackATransactionThatIsNotCommitted) {
  TemporaryDirectory directory;
  auto database = open_at(directory.file("d"));
  ASSERT_TRUE(database);
  {
    auto transaction = database->begin();
    ASSERT_TRUE(transaction);
    ASSERT_TRUE(database->execute("INSERT INTO event VALUES (1, 'a', NULL)"));
  }
  EXPECT_EQ(*count_events(*database), 0);
  auto transaction = database->begin();
  ASSERT_TRUE(transaction);
  ASSERT_TRUE(database->execute("INSERT INTO event VALUES (1, 'a', NULL)"));
  ASSERT_TRUE(transaction->commit());
  EXPECT_EQ(*count_events(*database), 1);
}

TEST(Database, NamesConstraintsCorruptionAndLocks) {
  TemporaryDirectory directory;
  const std::string path = directory.file("d");
  auto database = open_at(path);
  ASSERT_TRUE(database);
  EXPECT_EQ(database->execute("INSERT INTO note VALUES ('made')").error().code(), ErrorCode::conflict);
  EXPECT_EQ(database->execute("INSERT INTO event VALUES ('text', 1, 1)").error().code(), ErrorCode::internal);

  Database::Options impatient;
  impatient.busy_timeout = Duration();
  auto other = Database::open(path, kMigrations, impatient);
  ASSERT_TRUE(other);
  auto transaction = database->begin();
  ASSERT_TRUE(transaction);
  EXPECT_EQ(other->begin().error().code(), ErrorCode::unavailable);

  const std::string garbage = directory.file("garbage");
  ASSERT_TRUE(write_file_atomically(garbage, std::string(8192, 'x'), 0600));
  const auto damaged = open_at(garbage);
  ASSERT_FALSE(damaged);
  EXPECT_EQ(damaged.error().code(), ErrorCode::corrupt);
}

TEST(Database, FindsDamageWhenAskedTo) {
  TemporaryDirectory directory;
  const std::string path = directory.file("d");
  {
    auto database = open_at(path);
    ASSERT_TRUE(database);
    auto insert = database->prepare("INSERT INTO event VALUES (?, ?, NULL)");
    auto transaction = database->begin();
    for (int i = 0; i < 500; ++i) ASSERT_TRUE(insert->run(i, std::string(100, 'a')));
    ASSERT_TRUE(transaction->commit());
    ASSERT_TRUE(database->checkpoint());
  }
  {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(5 * 4096);
    file << std::string(4096, '\x7f');
  }
  Database::Options checking;
  checking.check_integrity = true;
  const auto checked = Database::open(path, kMigrations, checking);
  ASSERT_FALSE(checked);
  EXPECT_EQ(checked.error().code(), ErrorCode::corrupt);
}

TEST(Database, KeepsWhatWasCommittedWhenItsProcessIsKilled) {
  TemporaryDirectory directory;
  const std::string path = directory.file("d");
  auto channel = unix_socket_pair(SocketKind::kPacket);
  ASSERT_TRUE(channel);
  ChildProcess writer([&] {
    auto database = open_at(path);
    if (!database) return 1;
    auto insert = database->prepare("INSERT INTO event VALUES (?, 'committed', NULL)");
    for (int64_t seq = 1; seq <= 20; ++seq) {
      auto transaction = database->begin();
      if (!insert->run(seq) || !transaction->commit()) return 2;
    }
    auto unfinished = database->begin();
    for (int64_t seq = 21; seq <= 5000; ++seq) {
      if (!insert->run(seq)) return 3;
    }
    const std::byte ready{1};
    if (!send_message(channel->second.get(), std::span(&ready, 1))) return 4;
    ::pause();
    return 5;
  });
  channel->second.reset();
  std::byte buffer[8];
  auto message = receive_message(channel->first.get(), buffer);
  ASSERT_TRUE(message);
  ASSERT_EQ(message->size, 1u);
  EXPECT_EQ(writer.finish(SIGKILL), -SIGKILL);
  Database::Options checking;
  checking.check_integrity = true;
  auto database = Database::open(path, kMigrations, checking);
  ASSERT_TRUE(database) << database.error().message();
  EXPECT_EQ(*count_events(*database), 20);
}

// In a private mount namespace with a file system of half a MiB.
int fill_a_small_disk(const std::string& folder) {
  if (::unshare(CLONE_NEWNS) != 0 || ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
      ::mount("tmpfs", folder.c_str(), "tmpfs", 0, "size=512k") != 0) {
    return 77;
  }
  auto database = open_at(folder + "/d");
  if (!database) return 1;
  auto insert = database->prepare("INSERT INTO event VALUES (?, ?, NULL)");
  if (!insert) return 2;
  int64_t stored = 0;
  while (true) {
    auto transaction = database->begin();
    if (!transaction && transaction.error().code() == ErrorCode::storage_full) break;
    if (!transaction) return 3;
    auto inserted = insert->run(stored + 1, std::string(20'000, 'x'));
    auto committed = inserted ? transaction->commit() : Result<void>();
    if (inserted && committed) {
      if (++stored > 1000) return 4;  // it never got full
      continue;
    }
    const ErrorCode code = inserted ? committed.error().code() : inserted.error().code();
    if (code != ErrorCode::storage_full) return 5;
    break;
  }
  if (stored == 0) return 6;
  auto count = count_events(*database);
  return count && *count == stored ? 0 : 7;  // what was acknowledged is still there, and readable
}

TEST(Database, SaysThatTheDiskIsFullAndKeepsWhatItHas) {
  TemporaryDirectory directory;
  ChildProcess child([&] { return fill_a_small_disk(directory.path()); });
  const int status = child.wait();
  if (status == 77) GTEST_SKIP() << "may not mount here";
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace tranche
