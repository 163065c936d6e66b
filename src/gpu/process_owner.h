// Whose a process is, from /proc.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

namespace tranche {

struct ProcessOwner {
  std::optional<uint64_t> start_ticks;  // field 22 of /proc/PID/stat
  std::optional<uid_t> uid;             // real user id
};

// What is known of `pid` under `proc_root` ("/proc"). A process that has gone, or changes under the look,
// or that /proc hides (hidepid), gives what could be read and leaves the rest empty.
// The user comes from /proc/PID/status and not from the owner of the folder, which is root for processes that
// may not be dumped.
ProcessOwner read_process_owner(const std::string& proc_root, pid_t pid);

}  // namespace tranche
