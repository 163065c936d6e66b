// Files of a user, opened by a process that already is that user. Never called as root.
#pragma once

#include <cstdint>
#include <string>

#include "isolation/file.h"

namespace tranche::isolation {

// A log: O_WRONLY|O_APPEND|O_CREAT, mode 0600 less the umask. Refused: a symbolic link as last component,
// what is no regular file (except /dev/null), a file of someone else. Does not block on a FIFO. Empty:
// /dev/null.
Outcome<FileDescriptor> open_log(const std::string& path, uint32_t uid);

// For reading: a regular file or /dev/null; empty is /dev/null. With `follow_last` off, a symbolic link as
// last component is refused.
Outcome<FileDescriptor> open_input(const std::string& path, bool follow_last);

}  // namespace tranche::isolation
