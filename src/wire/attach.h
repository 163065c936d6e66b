// The stream between an interactive client (`tranche run`, `attach`) and what serves it: first the daemon,
// while the job waits, then the task's shepherd, to which the daemon hands its end by SCM_RIGHTS.
//
// Transport: the stream socket that the HTTP upgrade leaves behind. Frames back to back in both directions:
// FrameHeader, then `size` bytes. Host byte order. A frame larger than kMaxFramePayload ends the connection.
// Unknown types are skipped, so that the protocol can grow.
//
// While the job waits the server sends `progress` frames and the client sends nothing: it speaks from
// `started` on, and leaves by closing. So the daemon reads nothing (it watches for a hang-up only), no byte
// is lost when the socket changes hands, and what an eager client sends early stays in the socket for the
// shepherd. Once Start has been accepted the shepherd says `exit`, also when the command could not start;
// before, the daemon does.
//
// The end: the server sends `exit` as its last frame and closes. A connection that closes without
// `exit` was lost; the client then asks the daemon what became of the job.
// A lost client: with a terminal the task goes on and its last output is kept (kReplayBytes) for the next
// attach; without a terminal the task gets SIGTERM after kLostClientGraceNs, unless the client had sent
// `detach`.
#pragma once

#include <cstdint>

namespace tranche::wire {

inline constexpr uint32_t kMaxFramePayload = 64U << 10;
inline constexpr uint32_t kReplayBytes = 64U << 10;
inline constexpr uint64_t kLostClientGraceNs = 10'000'000'000;

enum class FrameType : uint8_t {
  // client -> server
  stdin_data = 1,   // bytes
  stdin_end = 2,    // empty: end of file (with a terminal: ignored)
  window_size = 3,  // WindowSizeFrame
  signal = 4,       // SignalFrame: to the main process's group, or the terminal's foreground group
  detach = 5,       // empty: the client goes, the task goes on
  // server -> client
  stdout_data = 64,  // bytes
  stderr_data = 65,  // bytes
  progress = 66,     // one line of UTF-8 without newline: position, expected start; replaces the line before
  started = 67,      // empty: the command executes from here on
  exit = 68,         // ExitFrame, then its text up to the end of the frame
  detached = 69,     // empty: the answer to detach, or another client has taken over
};

struct FrameHeader {
  uint32_t size;  // bytes after this header
  uint8_t type;   // FrameType
  uint8_t reserved[3];
};
static_assert(sizeof(FrameHeader) == 8);

struct WindowSizeFrame {
  uint16_t rows;
  uint16_t columns;
};
static_assert(sizeof(WindowSizeFrame) == 4);

struct SignalFrame {
  int32_t signal;  // 1..64
};
static_assert(sizeof(SignalFrame) == 4);

// Followed by a sentence when there is something to say (why it did not start, which limit ended it).
struct ExitFrame {
  int32_t exit_code;  // of the command; -1 when a signal ended it or it never executed
  int32_t signal;     // that ended it, or 0
  uint32_t cause;     // ExitCause of launcher.h; none: it never executed
  uint32_t reserved;
};
static_assert(sizeof(ExitFrame) == 16);

}  // namespace tranche::wire
