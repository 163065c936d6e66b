#include "machine/journal_backup.h"

#include <fcntl.h>
#include <grp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>

#include "base/manual_reactor.h"
#include "linux/database.h"
#include "linux/files.h"
#include "linux/system_error.h"
#include "machine/journal.h"
#include "machine/state_lock.h"

namespace tranche::machine {
namespace {

std::string folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

Result<void> sync_file(const std::string& path) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!file.is_open() || ::fsync(file.get()) != 0) return fail(system_error("sync " + path));
  return sync_directory(folder_of(path));
}

// Every row's checksum and JSON; opens the folder's journal.db, which is nobody else's.
Result<uint64_t> count_good_rows(const std::string& folder) {
  ManualReactor reactor{Time(1)};
  TRY_ASSIGN(const std::unique_ptr<Journal> journal,
             Journal::open(folder, reactor, std::make_unique<InlineWorker>(reactor)));
  uint64_t rows = 0;
  TRY(journal->read_all([&](const RecordedStep&) -> Result<void> {
    ++rows;
    return {};
  }));
  return rows;
}

Result<void> copy_file(const UniqueFd& source, const std::string& to) {
  const UniqueFd target(::open(to.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!target.is_open()) return fail(system_error("make " + to));
  char buffer[65536];
  ssize_t count = 0;
  while ((count = ::read(source.get(), buffer, sizeof buffer)) > 0)
    TRY(write_all(target.get(), std::string_view(buffer, static_cast<size_t>(count))));
  if (count < 0) return fail(system_error("read the backup"));
  if (::fsync(target.get()) != 0) return fail(system_error("sync " + to));
  return {};
}

}  // namespace

Result<uint64_t> back_up_journal(const std::string& state_directory, const std::string& file) {
  if (::access(file.c_str(), F_OK) == 0)
    return fail(ErrorCode::conflict, file + " exists already: name a new file");
  Database::Options options;
  options.read_only = true;
  TRY_ASSIGN(Database database, Database::open(state_directory + "/journal.db", {}, options));
  const mode_t former = ::umask(0077);
  const auto copied = [&]() -> Result<void> {
    TRY_ASSIGN(Statement copy, database.prepare("VACUUM INTO ?"));
    return copy.run(file);
  }();
  ::umask(former);
  if (!copied) {
    ::unlink(file.c_str());
    return fail(copied.error().clone().with_context(file));
  }
  TRY(sync_file(file));
  TRY_ASSIGN(Database written, Database::open(file, {}, options));
  TRY_ASSIGN(Statement count, written.prepare("SELECT count(*) FROM event"));
  count.bind_all();
  TRY_ASSIGN(const bool has_row, count.step());
  return has_row ? static_cast<uint64_t>(count.column_int64(0)) : 0;
}

Result<void> become_owner(const std::string& state_directory) {
  if (::geteuid() != 0) return {};
  struct stat owner {};
  if (::stat(state_directory.c_str(), &owner) != 0) return fail(system_error("look at " + state_directory));
  if (::setgroups(0, nullptr) != 0 || ::setgid(owner.st_gid) != 0 || ::setuid(owner.st_uid) != 0)
    return fail(system_error("become the owner of " + state_directory));
  return {};
}

Result<uint64_t> restore_journal(const UniqueFd& backup, const std::string& state_directory,
                                 std::string* replaced) {
  replaced->clear();
  TRY_ASSIGN(const UniqueFd lock, lock_state(state_directory));
  // Beside the journal, so that the last step is a rename; read as a journal of its own before that.
  const std::string staging = state_directory + "/restore.tmp";
  const std::string staged = staging + "/journal.db";
  const auto clear_staging = [&] {
    for (const char* name : {"/journal.db", "/journal.db-wal", "/journal.db-shm", "/ballast"})
      ::unlink((staging + name).c_str());
    ::rmdir(staging.c_str());
  };
  clear_staging();
  if (::mkdir(staging.c_str(), 0700) != 0) return fail(system_error("make " + staging));
  const auto checked = [&]() -> Result<uint64_t> {
    TRY(copy_file(backup, staged));
    return count_good_rows(staging);
  }();
  const std::string journal = state_directory + "/journal.db";
  auto placed = [&]() -> Result<uint64_t> {
    if (!checked) return fail(checked.error().clone().with_context("the backup"));
    if (::access(journal.c_str(), F_OK) == 0) {
      *replaced = journal + ".replaced-" + std::to_string(std::time(nullptr));
      // Its write-ahead log goes with it, and first: a journal without its log would miss its newest rows.
      for (const char* part : {"-wal", "-shm", ""}) {
        if (::rename((journal + part).c_str(), (*replaced + part).c_str()) != 0 && errno != ENOENT)
          return fail(system_error("rename " + journal + part));
      }
    }
    if (::rename(staged.c_str(), journal.c_str()) != 0) return fail(system_error("rename " + staged));
    TRY(sync_directory(state_directory));
    return *checked;
  }();
  clear_staging();
  return placed;
}

}  // namespace tranche::machine
