// The protocol between the arbiter and those that tell it who may use how much: shepherds (root), which
// register their task with its listening socket, and the daemon, which changes limits and asks what is
// charged.
//
// Transport: AF_UNIX SOCK_SEQPACKET on `<run-dir>/arbiter.sock`, one struct a packet, host byte order. The
// socket belongs to the daemon's user, mode 0600; the arbiter also looks at SO_PEERCRED: root may do all, the
// daemon's user all but register. Every request is answered by one ArbiterReply of the same id, Usage by
// entries first.
//
// Growth: as in launcher.h. A shepherd outlives releases.
#pragma once

#include <cstdint>

#include "wire/launcher.h"

namespace tranche::wire {

inline constexpr uint16_t kArbiterProtocolVersion = 1;
inline constexpr uint32_t kMaxArbiterMessage = 8192;

enum class ArbiterKind : uint16_t {
  register_task = 1,  // RegisterTask, with the task's listening socket and its lease page (guard.h); again
                      // after the arbiter's restart
  forget_task = 2,    // ForgetTask: the task is over, no process of it is left
  set_limit = 3,      // SetMemoryLimit
  usage = 4,          // UsageRequest -> UsageEntry..., ArbiterReply
  set_board = 5,      // SetBoard
  reply = 64,
  usage_entry = 65,
};

struct RegisterTask {
  MessageHeader header;
  TaskKey key;
  uint32_t uid;
  uint32_t gpu_count;
  MemoryShare gpus[kMaxGpusPerTask];
  // Second size. What of each limit is promised; 0: all of it. What is beyond is lent while nobody needs it.
  uint64_t guarantee_bytes[kMaxGpusPerTask];
  uint32_t held_by_driver;  // 1: the driver holds the limits too, whatever the programs do
  uint32_t reserved;
};
inline constexpr uint32_t kRegisterTaskFirstSize = 40 + 24 * kMaxGpusPerTask;
static_assert(sizeof(RegisterTask) == kRegisterTaskFirstSize + 8 * kMaxGpusPerTask + 8);

struct ForgetTask {
  MessageHeader header;
  TaskKey key;
};
static_assert(sizeof(ForgetTask) == 32);

// A limit below what is charged holds from then on: nothing is taken away, nothing more is given.
struct SetMemoryLimit {
  MessageHeader header;
  TaskKey key;
  uint8_t uuid[16];
  uint64_t limit_bytes;  // not 0
  // Second size. Of the limit, promised; 0: what was promised before, as far as the limit has it.
  uint64_t guarantee_bytes;
};
inline constexpr uint32_t kSetMemoryLimitFirstSize = 56;
static_assert(sizeof(SetMemoryLimit) == 64);

// What one GPU has for tasks, from the daemon: memory is lent beyond what is promised only where this is
// known.
struct SetBoard {
  MessageHeader header;
  uint8_t uuid[16];
  uint64_t usable_bytes;
  uint64_t elsewhere_bytes;  // of it, held by processes that are none of the tasks'
};
static_assert(sizeof(SetBoard) == 48);

// A page of the ledger: at most kUsagePage entries that come after this task and GPU, in that order. All
// zero: from the start. A sender takes the last entry of a page for the next question, until a page is not
// full: more at once would not fit what a socket holds.
inline constexpr uint32_t kUsagePage = 64;
struct UsageRequest {
  MessageHeader header;
  TaskKey after;
  uint32_t after_gpu;  // place in the task, as UsageEntry::gpu
  uint32_t reserved;
};
static_assert(sizeof(UsageRequest) == 40);

// One for each task and GPU.
struct UsageEntry {
  MessageHeader header;
  TaskKey key;
  uint8_t uuid[16];
  uint64_t limit_bytes;
  uint64_t charged_bytes;  // what its processes hold
  uint64_t granted_bytes;  // that, and what they may take without asking
  uint64_t denied;         // requests refused since the task began
  uint32_t processes;
  uint32_t gpu;  // place in the task
  // Second size.
  uint64_t guarantee_bytes;  // of the limit, promised
  uint64_t owed_bytes;       // of what it borrows, to be given back: others need what they were promised
  uint32_t held_by_driver;
  uint32_t waits;  // requests within the guarantee that had to wait for borrowed memory, since the task began
};
static_assert(sizeof(UsageEntry) == 112);

struct ArbiterReply {
  MessageHeader header;
  int32_t status;  // 0, or an errno value
  uint32_t entries;
};
static_assert(sizeof(ArbiterReply) == 24);

}  // namespace tranche::wire
