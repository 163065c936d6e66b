#include "linux/database.h"

#include <fcntl.h>
#include <sqlite3.h>

#include <cerrno>
#include <string>

#include "base/assert.h"
#include "linux/system_error.h"
#include "linux/unique_fd.h"

namespace tranche {
namespace {

ErrorCode code_of(int status) {
  switch (status & 0xff) {
    case SQLITE_FULL:
      return ErrorCode::storage_full;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return ErrorCode::corrupt;
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return ErrorCode::unavailable;
    case SQLITE_CONSTRAINT:
      return ErrorCode::conflict;
    case SQLITE_PERM:
    case SQLITE_AUTH:
    case SQLITE_READONLY:
      return ErrorCode::denied;
    case SQLITE_CANTOPEN:
      return ErrorCode::not_found;
    case SQLITE_TOOBIG:
      return ErrorCode::too_large;
    default:
      return ErrorCode::internal;
  }
}

// A full disk shows as SQLITE_FULL, or as SQLITE_IOERR with errno where the WAL index or a truncation met it.
ErrorCode code_of(sqlite3* connection, int status) {
  const int error_number = ::sqlite3_system_errno(connection);
  const bool is_io = (status & 0xff) == SQLITE_IOERR;
  if (is_io && (error_number == ENOSPC || error_number == EDQUOT)) return ErrorCode::storage_full;
  return code_of(status);
}

Error database_error(sqlite3* connection, int status) {
  return Error(code_of(connection, status), std::string("database: ") + ::sqlite3_errmsg(connection));
}

// Mistakes in our own SQL or indices.
void assert_ok(int status) { TRANCHE_ASSERT(status == SQLITE_OK); }

// Creates the file with its mode: SQLite would take it from the umask.
Result<void> create_private(const std::string& path) {
  const UniqueFd file(::open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file.is_open()) return fail(system_error("opening the database " + path));
  return {};
}

}  // namespace

void Statement::Finalize::operator()(sqlite3_stmt* statement) const { ::sqlite3_finalize(statement); }

void Statement::bind(int position, int64_t value) {
  assert_ok(::sqlite3_bind_int64(statement_.get(), position, value));
}

void Statement::bind(int position, uint64_t value) {
  TRANCHE_ASSERT(value <= uint64_t{INT64_MAX});
  bind(position, static_cast<int64_t>(value));
}

void Statement::bind(int position, std::string_view text) {
  const char* start = text.data() != nullptr ? text.data() : "";  // a null pointer would bind NULL
  assert_ok(
      ::sqlite3_bind_text64(statement_.get(), position, start, text.size(), SQLITE_TRANSIENT, SQLITE_UTF8));
}

void Statement::bind(int position, std::span<const std::byte> blob) {
  const void* start = blob.data() != nullptr ? static_cast<const void*>(blob.data()) : "";
  assert_ok(::sqlite3_bind_blob64(statement_.get(), position, start, blob.size(), SQLITE_TRANSIENT));
}

void Statement::bind(int position, std::nullptr_t) {
  assert_ok(::sqlite3_bind_null(statement_.get(), position));
}

Result<bool> Statement::step() {
  const int status = ::sqlite3_step(statement_.get());
  if (status == SQLITE_ROW) return true;
  if (status == SQLITE_DONE) return false;
  return fail(database_error(::sqlite3_db_handle(statement_.get()), status));
}

Result<void> Statement::finish() {
  while (true) {
    auto more = step();
    if (more && *more) continue;
    reset();
    if (!more) return fail(std::move(more).error());
    return {};
  }
}

void Statement::reset() { ::sqlite3_reset(statement_.get()); }  // its status repeats what step() reported

bool Statement::column_is_null(int column) const {
  return ::sqlite3_column_type(statement_.get(), column) == SQLITE_NULL;
}

int64_t Statement::column_int64(int column) const { return ::sqlite3_column_int64(statement_.get(), column); }

std::string_view Statement::column_text(int column) const {
  const unsigned char* text = ::sqlite3_column_text(statement_.get(), column);
  if (text == nullptr) return {};
  return {reinterpret_cast<const char*>(text),
          static_cast<size_t>(::sqlite3_column_bytes(statement_.get(), column))};
}

std::span<const std::byte> Statement::column_blob(int column) const {
  const void* blob = ::sqlite3_column_blob(statement_.get(), column);
  if (blob == nullptr) return {};
  return {static_cast<const std::byte*>(blob),
          static_cast<size_t>(::sqlite3_column_bytes(statement_.get(), column))};
}

Transaction::~Transaction() {
  // After a full disk SQLite may have rolled back by itself; then there is nothing to do.
  if (connection_ != nullptr && ::sqlite3_get_autocommit(connection_) == 0) {
    ::sqlite3_exec(connection_, "ROLLBACK", nullptr, nullptr, nullptr);
  }
}

Result<void> Transaction::commit() {
  TRANCHE_ASSERT(connection_ != nullptr);
  if (::sqlite3_get_autocommit(connection_) != 0) {
    connection_ = nullptr;
    return fail(ErrorCode::storage_full, "database: the transaction was rolled back after an error");
  }
  const int status = ::sqlite3_exec(connection_, "COMMIT", nullptr, nullptr, nullptr);
  if (status != SQLITE_OK) return fail(database_error(connection_, status));  // the destructor rolls back
  connection_ = nullptr;
  return {};
}

void Database::Close::operator()(sqlite3* connection) const { ::sqlite3_close_v2(connection); }

Result<Database> Database::open(const std::string& path, std::span<const char* const> migrations,
                                Options options) {
  if (!options.read_only) TRY(create_private(path));
  sqlite3* connection = nullptr;
  const int flags = (options.read_only ? SQLITE_OPEN_READONLY : SQLITE_OPEN_READWRITE) | SQLITE_OPEN_NOMUTEX |
                    SQLITE_OPEN_NOFOLLOW | SQLITE_OPEN_EXRESCODE;
  const int status = ::sqlite3_open_v2(path.c_str(), &connection, flags, nullptr);
  Database database(connection);
  const auto opened = [&]() -> Result<void> {
    if (status != SQLITE_OK) return fail(database_error(connection, status));
    TRY(database.configure(options));
    if (!options.read_only) TRY(database.migrate(migrations));
    return {};
  }();
  if (!opened) return fail(opened.error().clone().with_context(path));
  return database;
}

Result<void> Database::configure(const Options& options) {
  const int64_t milliseconds = options.busy_timeout.count() / kMillisecond.count();
  ::sqlite3_busy_timeout(connection_.get(), static_cast<int>(milliseconds));
  ::sqlite3_db_config(connection_.get(), SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
  if (!options.read_only) TRY(execute("PRAGMA journal_mode = WAL"));
  TRY(
      execute("PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON; PRAGMA trusted_schema = OFF; "
              "PRAGMA cell_size_check = ON"));
  if (options.check_integrity) {
    TRY_ASSIGN(Statement check, prepare("PRAGMA quick_check(1)"));
    TRY_ASSIGN(const bool has_row, check.step());
    if (!has_row || check.column_text(0) != "ok") {
      return fail(ErrorCode::corrupt, "the database is damaged (" + std::string(check.column_text(0)) +
                                          "): restore it from a copy");
    }
  }
  return {};
}

Result<void> Database::migrate(std::span<const char* const> migrations) {
  TRY_ASSIGN(int64_t version, read_integer("PRAGMA user_version"));
  const auto newest = static_cast<int64_t>(migrations.size());
  if (version < 0 || version > newest) {
    return fail(ErrorCode::conflict, "the database has schema version " + std::to_string(version) +
                                         " and this program knows " + std::to_string(newest) +
                                         ": run the newer program, or restore an older copy");
  }
  for (; version < newest; ++version) {
    TRY_ASSIGN(Transaction transaction, begin());
    TRY(execute(migrations[static_cast<size_t>(version)]));
    TRY(execute(("PRAGMA user_version = " + std::to_string(version + 1)).c_str()));
    TRY(transaction.commit());
  }
  return {};
}

Result<int64_t> Database::read_integer(const char* sql) {
  TRY_ASSIGN(Statement statement, prepare(sql));
  TRY_ASSIGN(const bool has_row, statement.step());
  TRANCHE_ASSERT(has_row);
  return statement.column_int64(0);
}

Result<void> Database::execute(const char* sql) {
  const int status = ::sqlite3_exec(connection_.get(), sql, nullptr, nullptr, nullptr);
  if (status != SQLITE_OK) return fail(database_error(connection_.get(), status));
  return {};
}

Result<Statement> Database::prepare(std::string_view sql) {
  sqlite3_stmt* statement = nullptr;
  const int status = ::sqlite3_prepare_v3(connection_.get(), sql.data(), static_cast<int>(sql.size()),
                                          SQLITE_PREPARE_PERSISTENT, &statement, nullptr);
  if (status != SQLITE_OK) return fail(database_error(connection_.get(), status));
  return Statement(statement);
}

Result<Transaction> Database::begin() {
  TRY(execute("BEGIN IMMEDIATE"));
  return Transaction(connection_.get());
}

int64_t Database::last_insert_rowid() const { return ::sqlite3_last_insert_rowid(connection_.get()); }
int64_t Database::changed_rows() const { return ::sqlite3_changes64(connection_.get()); }
Result<void> Database::checkpoint() { return execute("PRAGMA wal_checkpoint(TRUNCATE)"); }

}  // namespace tranche
