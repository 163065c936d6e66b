#include "linux/process_identity.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <charconv>

#include "linux/files.h"
#include "linux/system_error.h"

namespace tranche {
namespace {

constexpr size_t kProcFileMax = 8192;
constexpr int kStartTimeField = 22;  // proc(5), counted from 1

std::string of_process(pid_t pid) { return "process " + std::to_string(pid); }

}  // namespace

Result<UniqueFd> open_pidfd(pid_t pid) {
  UniqueFd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0u)));  // close-on-exec by definition
  if (!pidfd.is_open()) return fail(system_error("opening " + of_process(pid)));
  return pidfd;
}

Result<uint64_t> process_start_ticks(pid_t pid) {
  TRY_ASSIGN(const std::string stat, read_file("/proc/" + std::to_string(pid) + "/stat", kProcFileMax));
  // The name (field 2) may hold anything, so fields are counted from its last parenthesis.
  size_t position = stat.rfind(')');
  if (position == std::string::npos)
    return fail(ErrorCode::corrupt, "/proc has no name for " + of_process(pid));
  for (int field = 2; field < kStartTimeField; ++field) {
    position = stat.find(' ', position);
    if (position == std::string::npos)
      return fail(ErrorCode::corrupt, "/proc has too few fields for " + of_process(pid));
    ++position;
  }
  uint64_t ticks = 0;
  const auto parsed = std::from_chars(stat.data() + position, stat.data() + stat.size(), ticks);
  if (parsed.ec != std::errc())
    return fail(ErrorCode::corrupt, "/proc has no start time for " + of_process(pid));
  return ticks;
}

Result<std::string> boot_id() {
  TRY_ASSIGN(std::string text, read_file("/proc/sys/kernel/random/boot_id", 64));
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

Result<ProcessIdentity> identify_process(pid_t pid) {
  ProcessIdentity identity;
  identity.pid = pid;
  TRY_ASSIGN(identity.start_ticks, process_start_ticks(pid));
  TRY_ASSIGN(identity.boot_id, boot_id());
  return identity;
}

Result<UniqueFd> open_pidfd(const ProcessIdentity& identity) {
  // Opened first and compared after: from then on the pidfd cannot come to mean another process.
  TRY_ASSIGN(UniqueFd pidfd, open_pidfd(identity.pid));
  TRY_ASSIGN(const ProcessIdentity now, identify_process(identity.pid));
  if (now != identity) return fail(ErrorCode::not_found, of_process(identity.pid) + " is another one by now");
  return pidfd;
}

}  // namespace tranche
