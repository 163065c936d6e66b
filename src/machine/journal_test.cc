// The journal as files: damage, disks that fail, copies.
#include "machine/journal.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "base/manual_reactor.h"
#include "linux/log.h"
#include "machine/journal_backup.h"
#include "machine/state_lock.h"
#include "scheduler/scheduler.h"

namespace tranche::machine {
namespace {

// Does nothing and says why while `failing`.
class FailingDisk final : public Worker {
 public:
  FailingDisk(Reactor& reactor, const bool& failing) : inline_(reactor), failing_(failing) {}
  Result<void> submit(Work work, Done done) override {
    return inline_.submit(
        [this, work = std::move(work)]() -> Result<void> {
          if (failing_) return fail(ErrorCode::storage_full, "no space left on device");
          return work();
        },
        std::move(done));
  }

 private:
  InlineWorker inline_;
  const bool& failing_;
};

class JournalTest : public ::testing::Test {
 protected:
  JournalTest() : reactor_(Time(1'800'000'000'000'000'000)) {
    set_log_sink([](LogLevel, std::string_view) {});
    char folder[] = "/dev/shm/tranche-journal-XXXXXX";
    state_dir_ = ::mkdtemp(folder);
  }
  ~JournalTest() override {
    journal_.reset();
    std::filesystem::remove_all(state_dir_);
    set_log_sink({});
  }

  void open() {
    journal_.reset();
    auto opened =
        Journal::open(state_dir_, reactor_, std::make_unique<FailingDisk>(reactor_, failing_), MiB(1));
    ASSERT_TRUE(opened) << opened.error().message();
    journal_ = std::move(*opened);
  }
  // Rows `first` to `last`, durable in order: durable_ tells.
  void append(uint64_t first, uint64_t last) {
    for (uint64_t seq = first; seq <= last; ++seq) {
      JournalEntry entry;
      entry.step.row.event = Event{EventSeq(seq), Time(static_cast<int64_t>(1'800'000'000 + seq)), Tick{}};
      entry.step.scheduler_version = scheduler::kVersion;
      journal_->append(std::move(entry), [this, seq] { durable_.push_back(seq); });
      reactor_.settle();
    }
  }
  void write(uint64_t rows) {
    open();
    append(1, rows);
    journal_.reset();
  }
  void execute(const std::string& sql) const {
    const char* const kNothingToMigrate[] = {"", ""};
    auto database = Database::open(state_dir_ + "/journal.db", kNothingToMigrate);
    ASSERT_TRUE(database) << database.error().message();
    const auto done = database->execute(sql.c_str());
    ASSERT_TRUE(done) << done.error().message();
  }
  void damage(uint64_t seq) const {
    execute("UPDATE event SET decisions = '[ ]' WHERE seq = " + std::to_string(seq));
  }
  Result<Journal::TailCut> recover() {
    rows_.clear();
    open();
    return journal_->recover([this](const RecordedStep& step) -> Result<void> {
      rows_.push_back(step.row.event.seq.value());
      return {};
    });
  }
  static UniqueFd opened(const std::string& path) {
    return UniqueFd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  }
  static bool exists(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

  using Seqs = std::vector<uint64_t>;
  ManualReactor reactor_;
  std::string state_dir_;
  bool failing_ = false;
  std::unique_ptr<Journal> journal_;
  Seqs durable_;
  Seqs rows_;
};

TEST_F(JournalTest, GivesBackWhatWasWritten) {
  write(5);
  const auto cut = recover();
  ASSERT_TRUE(cut) << cut.error().message();
  EXPECT_FALSE(cut->first.is_set());
  EXPECT_EQ(rows_, (Seqs{1, 2, 3, 4, 5}));
}

TEST_F(JournalTest, ADamagedTailIsKeptInACopyAndCutOff) {
  write(5);
  damage(4);
  damage(5);
  const auto cut = recover();
  ASSERT_TRUE(cut) << cut.error().message();
  EXPECT_EQ(cut->first, EventSeq(4));
  EXPECT_EQ(cut->last, EventSeq(5));
  EXPECT_EQ(rows_, (Seqs{1, 2, 3}));
  EXPECT_TRUE(exists(cut->copy)) << cut->copy;
  EXPECT_GT(std::filesystem::file_size(cut->copy), 0U);
  // The log goes on where it is sound.
  append(4, 6);
  EXPECT_EQ(durable_.back(), 6U);
  const auto again = recover();
  ASSERT_TRUE(again);
  EXPECT_FALSE(again->first.is_set());
  EXPECT_EQ(rows_, (Seqs{1, 2, 3, 4, 5, 6}));
}

TEST_F(JournalTest, DamageInTheMiddleIsRefusedAndNothingIsChanged) {
  write(5);
  damage(3);
  for (int i = 0; i < 2; ++i) {
    const auto cut = recover();
    ASSERT_FALSE(cut);
    EXPECT_EQ(cut.error().code(), ErrorCode::corrupt);
    EXPECT_NE(cut.error().message().find("row 3"), std::string::npos) << cut.error().message();
  }
}

TEST_F(JournalTest, AMissingRowIsRefused) {
  write(5);
  execute("DELETE FROM event WHERE seq = 3");
  const auto cut = recover();
  ASSERT_FALSE(cut);
  EXPECT_NE(cut.error().message().find("row 3 is missing"), std::string::npos) << cut.error().message();
}

TEST_F(JournalTest, AFileThatIsNoJournalIsRefused) {
  write(5);
  std::filesystem::resize_file(state_dir_ + "/journal.db", 6000);
  const auto opened = Journal::open(state_dir_, reactor_, std::make_unique<InlineWorker>(reactor_));
  if (opened) {
    const auto cut = (*opened)->recover([](const RecordedStep&) -> Result<void> { return {}; });
    EXPECT_FALSE(cut) << "a file cut short is no journal";
  }
}

TEST_F(JournalTest, AFullDiskLosesNothingAndKeepsTheOrder) {
  open();
  append(1, 2);
  failing_ = true;
  append(3, 6);
  EXPECT_EQ(durable_, (Seqs{1, 2}));
  EXPECT_NE(journal_->trouble().find("no space"), std::string::npos);
  EXPECT_FALSE(exists(state_dir_ + "/ballast")) << "given up, so that what runs can be recorded";
  failing_ = false;
  reactor_.run_until(reactor_.clock().since_boot() + Duration(3 * kSecond.count()));
  EXPECT_EQ(durable_, (Seqs{1, 2, 3, 4, 5, 6}));
  EXPECT_TRUE(journal_->trouble().empty());
  EXPECT_TRUE(exists(state_dir_ + "/ballast"));
}

TEST_F(JournalTest, ABackupIsTakenWhileItIsWritten) {
  open();
  append(1, 4);
  const std::string file = state_dir_ + "/copy.db";
  const auto saved = back_up_journal(state_dir_, file);
  ASSERT_TRUE(saved) << saved.error().message();
  EXPECT_EQ(*saved, 4U);
  struct stat status {};
  ASSERT_EQ(::stat(file.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0600U);
  append(5, 6);
  EXPECT_EQ(durable_.back(), 6U);
  EXPECT_FALSE(back_up_journal(state_dir_, file)) << "an older backup is not overwritten";

  journal_.reset();
  std::string replaced;
  const auto restored = restore_journal(opened(file), state_dir_, &replaced);
  ASSERT_TRUE(restored) << restored.error().message();
  EXPECT_EQ(*restored, 4U);
  EXPECT_TRUE(exists(replaced)) << replaced;
  ASSERT_TRUE(recover());
  EXPECT_EQ(rows_, (Seqs{1, 2, 3, 4}));
}

TEST_F(JournalTest, ADamagedBackupReplacesNothing) {
  write(4);
  const std::string file = state_dir_ + "/copy.db";
  ASSERT_TRUE(back_up_journal(state_dir_, file));
  std::filesystem::resize_file(file, std::filesystem::file_size(file) / 2);
  std::string replaced;
  EXPECT_FALSE(restore_journal(opened(file), state_dir_, &replaced));
  EXPECT_TRUE(replaced.empty());
  EXPECT_FALSE(exists(state_dir_ + "/restore.tmp"));
  ASSERT_TRUE(recover());
  EXPECT_EQ(rows_, (Seqs{1, 2, 3, 4}));
}

TEST_F(JournalTest, NothingIsRestoredUnderADaemon) {
  write(2);
  const std::string file = state_dir_ + "/copy.db";
  ASSERT_TRUE(back_up_journal(state_dir_, file));
  const auto lock = lock_state(state_dir_);
  ASSERT_TRUE(lock) << lock.error().message();
  std::string replaced;
  const auto restored = restore_journal(opened(file), state_dir_, &replaced);
  ASSERT_FALSE(restored);
  EXPECT_EQ(restored.error().code(), ErrorCode::conflict);
}

}  // namespace
}  // namespace tranche::machine
