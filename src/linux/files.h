// Small files as whole values: read with a bound, replaced atomically and durably.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <string>
#include <string_view>

#include "base/result.h"
#include "linux/unique_fd.h"

namespace tranche {

// The whole content; too_large when it is longer than `limit` bytes. Works on /proc files, whose size reads
// 0. Refuses what is not a regular file (a FIFO would block for ever).
Result<std::string> read_file(const std::string& path, size_t limit);

// Replaces `path` with `content`: a temporary sibling is written, synced, renamed over it, and the directory
// synced, so that a crash leaves the old content or the new and never a mixture. The folder must be one that
// only trusted users can write.
Result<void> write_file_atomically(const std::string& path, std::string_view content, mode_t mode);

// Makes what was renamed, created or removed in `directory` durable.
Result<void> sync_directory(const std::string& directory);

// Writes all of `content`, across short writes and EINTR. For blocking descriptors.
Result<void> write_all(int file_descriptor, std::string_view content);

}  // namespace tranche
