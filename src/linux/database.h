// SQLite behind typed calls: WAL, synchronous FULL, STRICT tables by convention, migrations by user_version.
//
// Threading: a Database and its Statements are used by one thread at a time (open with no mutex).
// Ownership: Statements and Transactions must go before their Database.
// Errors: full disk or quota storage_full, damaged file corrupt, locked by another process unavailable, a
// violated constraint conflict, no permission denied, else internal. Mistakes in SQL or indices are
// programmer errors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/result.h"
#include "base/units.h"

struct sqlite3;
struct sqlite3_stmt;

namespace tranche {

// A prepared statement. Positions of parameters count from 1 and columns from 0, as in SQLite.
class Statement {
 public:
  // Binds all `values`, runs to the end, resets. For statements without rows.
  template <class... Values>
  Result<void> run(const Values&... values) {
    bind_all(values...);
    return finish();
  }
  // Binds all `values` and starts over: the next step() gives the first row.
  template <class... Values>
  void bind_all(const Values&... values) {
    reset();
    int position = 0;
    (bind(++position, values), ...);
  }

  void bind(int position, int64_t value);
  void bind(int position, int value) { bind(position, static_cast<int64_t>(value)); }
  void bind(int position, uint64_t value);  // at most INT64_MAX
  void bind(int position, std::string_view text);
  void bind(int position, const char* text) { bind(position, std::string_view(text)); }
  void bind(int position, const std::string& text) { bind(position, std::string_view(text)); }
  void bind(int position, std::span<const std::byte> blob);
  void bind(int position, std::nullptr_t);

  // True: a row is there; false: the end.
  Result<bool> step();

  bool column_is_null(int column) const;
  int64_t column_int64(int column) const;
  // Views end with the next step(), reset() or destruction. NULL reads as empty.
  std::string_view column_text(int column) const;
  std::span<const std::byte> column_blob(int column) const;

  void reset();

 private:
  friend class Database;
  explicit Statement(sqlite3_stmt* statement) : statement_(statement) {}
  Result<void> finish();

  struct Finalize {
    void operator()(sqlite3_stmt* statement) const;
  };
  std::unique_ptr<sqlite3_stmt, Finalize> statement_;
};

// Rolled back when it goes without commit().
class Transaction {
 public:
  Transaction(Transaction&& other) noexcept : connection_(std::exchange(other.connection_, nullptr)) {}
  Transaction& operator=(Transaction&&) = delete;
  ~Transaction();
  // Durable when it returns. On an error nothing of the transaction remains.
  Result<void> commit();

 private:
  friend class Database;
  explicit Transaction(sqlite3* connection) : connection_(connection) {}
  sqlite3* connection_;
};

class Database {
 public:
  struct Options {
    Duration busy_timeout = 5 * kSecond;
    bool check_integrity = false;  // PRAGMA quick_check at opening: reads the whole file
    bool read_only = false;
  };

  // Opens or creates (mode 0600) the file and brings its schema up to date: migrations[i] is the SQL that
  // leads from user_version i to i + 1, each in its own transaction. A file of a newer version is a
  // `conflict`.
  static Result<Database> open(const std::string& path, std::span<const char* const> migrations,
                               Options options);
  static Result<Database> open(const std::string& path, std::span<const char* const> migrations) {
    return open(path, migrations, Options());
  }

  // SQL without parameters or rows; may be several statements.
  Result<void> execute(const char* sql);
  // One statement, kept prepared for as long as it lives.
  Result<Statement> prepare(std::string_view sql);
  // BEGIN IMMEDIATE: takes the write lock now, so that commit cannot find it taken.
  Result<Transaction> begin();

  int64_t last_insert_rowid() const;
  int64_t changed_rows() const;  // by the latest statement
  // Moves the WAL into the file and truncates it: before a copy, and when the disk is short.
  Result<void> checkpoint();

 private:
  explicit Database(sqlite3* connection) : connection_(connection) {}
  Result<void> configure(const Options& options);
  Result<void> migrate(std::span<const char* const> migrations);
  Result<int64_t> read_integer(const char* sql);

  struct Close {
    void operator()(sqlite3* connection) const;
  };
  std::unique_ptr<sqlite3, Close> connection_;
};

}  // namespace tranche
