// Which process is meant: a number alone is reused, so a process is (pid, start time, boot id), held as a
// pidfd.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "base/result.h"
#include "linux/unique_fd.h"

namespace tranche {

struct ProcessIdentity {
  pid_t pid = 0;
  uint64_t start_ticks = 0;  // field 22 of /proc/PID/stat: clock ticks (_SC_CLK_TCK) since boot
  std::string boot_id;

  bool operator==(const ProcessIdentity&) const = default;
};

// A close-on-exec pidfd of a process that exists (not_found otherwise).
Result<UniqueFd> open_pidfd(pid_t pid);

// From /proc/PID/stat; the command name in it may hold spaces and parentheses.
Result<uint64_t> process_start_ticks(pid_t pid);

// /proc/sys/kernel/random/boot_id: another value after every boot.
Result<std::string> boot_id();

Result<ProcessIdentity> identify_process(pid_t pid);

// A pidfd of exactly that process; not_found when it is gone, though its number may be in use again.
Result<UniqueFd> open_pidfd(const ProcessIdentity& identity);

}  // namespace tranche
