// The launch block: what a task executes, in one sealed memfd that travels with StartRequest.
//
// Layout: LaunchBlockHeader, then strings back to back, each as
//     uint32_t length (without the NUL, host byte order, not aligned), `length` bytes without NUL, one NUL
// in this order:
//     working directory        absolute
//     stdin path               empty: /dev/null
//     stdout path              empty: /dev/null; relative paths are relative to the working directory
//     stderr path              empty: where stdout goes
//     argument 0 .. argument_count - 1
//     variable 0 .. variable_count - 1     "NAME=value"; the task's whole environment, nothing is added
// and nothing after the last NUL: total_size is the size of the file. The three paths are ignored when the
// task is interactive. Anything that does not add up is refused (StartFailed, stage request).
//
// Files are opened as the user. stdout and stderr: O_APPEND|O_CREAT, mode 0600 masked by `umask`, the last
// component no symbolic link, a regular file owned by the user, or /dev/null. stdin: a regular file that the
// user may read, or /dev/null. Missing folders are an error, not made.
//
// The command is searched in the PATH of the given environment when argument 0 has no slash.
#pragma once

#include <cstdint>

namespace tranche::wire {

inline constexpr uint32_t kLaunchBlockMagic = 0x4b4c4254;  // "TBLK"
inline constexpr uint32_t kMaxLaunchBlock = 4U << 20;      // bytes; the kernel's own limit on argv is lower
inline constexpr uint32_t kMaxArguments = 65536;
inline constexpr uint32_t kMaxVariables = 65536;

struct LaunchBlockHeader {
  uint32_t magic;           // kLaunchBlockMagic
  uint16_t version;         // 1
  uint16_t header_size;     // where the strings begin: at least sizeof(LaunchBlockHeader)
  uint32_t total_size;      // of the block, header included
  uint32_t umask;           // 0..0777
  uint32_t argument_count;  // 1..kMaxArguments
  uint32_t variable_count;  // 0..kMaxVariables
};
static_assert(sizeof(LaunchBlockHeader) == 24);

}  // namespace tranche::wire
