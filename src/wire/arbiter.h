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
  usage = 4,          // MessageHeader alone -> UsageEntry..., ArbiterReply
  reply = 64,
  usage_entry = 65,
};

struct RegisterTask {
  MessageHeader header;
  TaskKey key;
  uint32_t uid;
  uint32_t gpu_count;
  MemoryShare gpus[kMaxGpusPerTask];
};
static_assert(sizeof(RegisterTask) == 40 + 24 * kMaxGpusPerTask);

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
};
static_assert(sizeof(SetMemoryLimit) == 56);

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
  uint32_t reserved;
};
static_assert(sizeof(UsageEntry) == 88);

struct ArbiterReply {
  MessageHeader header;
  int32_t status;  // 0, or an errno value
  uint32_t entries;
};
static_assert(sizeof(ArbiterReply) == 24);

}  // namespace tranche::wire
