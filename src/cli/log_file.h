// A job's log as its owner reads it: the last lines, and what comes after until the job has ended.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>

#include "base/result.h"
#include "base/units.h"
#include "linux/unique_fd.h"

namespace tranche::cli {

// Opens `path` for reading; not_found if there is none, invalid_argument if it is no regular file (a FIFO
// would block).
Result<UniqueFd> open_log(const std::string& path);

// Where the last `lines` lines of an open file begin.
Result<int64_t> last_lines_offset(int file, size_t lines);

// Copies from the file's position to its end.
Result<void> copy_to_end(int file, int output);

// Follows `path`, which need not exist yet, from `offset` on, by inotify, until `ended` is readable (then the
// rest is copied) . A file that is replaced or truncated is read from its beginning.
Result<void> follow_log(const std::string& path, UniqueFd file, int ended, int output);

}  // namespace tranche::cli
