// The protocol between the guard, inside a job's processes, and the arbiter. The guard is C: this header is
// read by C and C++ alike.
//
// Transport: AF_UNIX SOCK_SEQPACKET, one struct a packet, host byte order. The socket is the task's own: it
// lies at TRANCHE_GUARD_SOCKET in the task's mount namespace and nowhere else, so whoever connects is of that
// task; nothing in a message can name another. The peer's process is what SO_PEERCRED says.
//
// Conversation: the guard asks, the arbiter answers each request once with the same id. Nothing else is ever
// sent, so a guard that does not read, or is stopped, costs the arbiter nothing.
//
// The lease page: one sealed memfd a task, made and kept by its shepherd, so that it outlives the arbiter;
// mapped by the arbiter and by every process of the task, each of which has a slot. A slot's words say how
// much device memory the process may take without asking. The guard moves `used`, the arbiter moves
// `granted`, both by compare-and-swap of the whole word, so unused memory is taken back from a process that
// sleeps or is stopped. The arbiter keeps its own record of what it granted: what a job writes there can only
// misstate that same task.
//
// Growth: fields are added at the end, kinds get new numbers; a receiver copies what it knows over zeroes.
#pragma once

#ifdef __cplusplus
#include <cstdint>
#else
#include <stdint.h>
#endif

// What the guard finds in its mount namespace. Constant: a variable of the environment could name another.
#define TRANCHE_GUARD_FOLDER "/run/tranche-task"
#define TRANCHE_GUARD_SOCKET TRANCHE_GUARD_FOLDER "/arbiter"
// Before the path in the guard's libraries: a copy made for use without root (tranche-courtesy) has another
// one, written into the file by tranche-guard-fit.
#define TRANCHE_GUARD_SOCKET_MARK "tranche-guard-socket:"
enum { TRANCHE_GUARD_SOCKET_ROOM = 108 };  // bytes of a socket's path, its end included
// After the socket's path: a file of the task's shepherd with a tranche_guard_gpu for each GPU, so that a
// process that starts while the arbiter is away knows its limits, though it may take nothing.
#define TRANCHE_GUARD_LIMITS_SUFFIX ".limits"

enum {
  TRANCHE_GUARD_VERSION = 1,
  TRANCHE_GUARD_MAX_GPUS = 64,
  TRANCHE_GUARD_MAX_PROCESSES = 1024,  // of one task that use a GPU at the same time
  TRANCHE_GUARD_MAX_MESSAGE = 8192,    // bytes of any packet
  TRANCHE_GUARD_UNIT = 4096,           // bytes of one unit in a lease word
};

enum tranche_guard_kind {
  TRANCHE_GUARD_HELLO = 1,     // tranche_guard_hello
  TRANCHE_GUARD_WELCOME = 2,   // tranche_guard_welcome, with the page's memfd when status is 0
  TRANCHE_GUARD_LEASE = 3,     // tranche_guard_lease
  TRANCHE_GUARD_USAGE = 4,     // tranche_guard_gpu_request
  TRANCHE_GUARD_PIDS = 5,      // tranche_guard_header alone
  TRANCHE_GUARD_CONTEXT = 6,   // tranche_guard_context: what one context was measured to take
  TRANCHE_GUARD_ANSWER = 7,    // tranche_guard_answer: to LEASE, CONTEXT and USAGE
  TRANCHE_GUARD_PID_LIST = 8,  // tranche_guard_pid_list: to PIDS
};

struct tranche_guard_header {
  uint32_t size;  // of the whole struct, this header included
  uint16_t version;
  uint16_t kind;  // tranche_guard_kind
  uint64_t id;
};

// Bits of tranche_guard_hello.flags.
enum {
  TRANCHE_GUARD_VIEWER = 1,  // only looks (NVML): has no slot
};

struct tranche_guard_hello {
  struct tranche_guard_header header;
  uint32_t flags;
  uint32_t slot;   // of an earlier connection of the same image, counted from 1; 0: none
  uint64_t image;  // drawn by the kernel at exec: memory of the program that had this pid before is gone
};

struct tranche_guard_gpu {
  uint8_t uuid[16];        // of the device or MIG instance, as the driver's API gives it
  uint64_t limit_bytes;    // 0: the whole GPU is the task's, nothing is counted
  uint64_t context_bytes;  // what one context is known to take here; 0: not known yet
};

struct tranche_guard_welcome {
  struct tranche_guard_header header;
  int32_t status;  // 0, or an errno value
  uint32_t gpu_count;
  int32_t pid;    // the process as the arbiter and NVML see it
  uint32_t slot;  // in the page, counted from 1; 0 for a viewer
  struct tranche_guard_gpu gpus[TRANCHE_GUARD_MAX_GPUS];
};

// Asks that at least `need_bytes` more may be used; answered 0 when the page has them, ENOMEM when the task's
// limit does not, EAGAIN when they are promised to the task and another one that borrows them has to give
// them back first: ask again in a moment.
struct tranche_guard_lease {
  struct tranche_guard_header header;
  uint32_t gpu;  // place in welcome.gpus
  uint32_t reserved;
  uint64_t need_bytes;
};

struct tranche_guard_gpu_request {
  struct tranche_guard_header header;
  uint32_t gpu;
  uint32_t reserved;
};

struct tranche_guard_context {
  struct tranche_guard_header header;
  uint32_t gpu;
  uint32_t reserved;
  uint64_t bytes;
};

struct tranche_guard_answer {
  struct tranche_guard_header header;
  int32_t status;
  uint32_t processes;      // registered, of the task
  uint64_t limit_bytes;    // now: limits change while tasks run
  uint64_t charged_bytes;  // of all processes of the task
  // Second size. What the task could be given now: limit less charged, or less of it while others need what
  // a burst borrows.
  uint64_t available_bytes;
};

struct tranche_guard_pid_list {
  struct tranche_guard_header header;
  int32_t status;
  uint32_t count;
  int32_t pids[TRANCHE_GUARD_MAX_PROCESSES];
};

// The lease page is an array of TRANCHE_GUARD_MAX_PROCESSES slots. A lease word is (granted << 32 | used), in
// units of TRANCHE_GUARD_UNIT bytes: up to 16 TiB.
struct tranche_guard_slot {
  int32_t pid;        // 0: free
  uint32_t pressure;  // raised by the arbiter: give back what you do not need
  uint64_t image;
  uint64_t start_ticks;  // of the process, so that a pid that was given again is told apart
  uint64_t reserved[5];
  uint64_t lease[TRANCHE_GUARD_MAX_GPUS];
};

#define TRANCHE_GUARD_PAGE_BYTES (TRANCHE_GUARD_MAX_PROCESSES * sizeof(struct tranche_guard_slot))
