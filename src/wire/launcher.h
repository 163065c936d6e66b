// The protocol between the daemon and the root side: daemon <-> launcher on `<run-dir>/launcher.sock`, and
// launcher <-> shepherd, which speaks the same structs.
//
// Transport: AF_UNIX SOCK_SEQPACKET, one struct a packet, host byte order (both ends are one machine).
// The socket is owned by the daemon's user, mode 0600; the launcher also checks SO_PEERCRED. One daemon
// connection at a time: a newer one replaces the older.
//
// Growth: the protocol only ever grows, because a shepherd outlives releases. Fields are added at the end of
// a struct, kinds and enumerators get new numbers, nothing is ever renumbered or reused. A receiver copies
// min(header.size, sizeof(what it knows)) bytes over a zeroed struct, so a missing field reads 0 and an
// unknown tail is ignored: 0 must therefore mean "as before". Each struct's first size is asserted below and
// is the least a receiver accepts. A request of an unknown kind is answered ENOSYS. Reserved fields are sent
// as 0.
//
// Conversation: every request carries an `id` chosen by the sender (not 0) and is answered by exactly one
// Reply with that id (List and Scan: entries with that id first, then the Reply). Events carry id 0. Requests
// are answered in any order. An event lost because no daemon was connected is not repeated: after connecting,
// the daemon asks List, whose entries hold everything the events said. An event may tell again what List has
// told.
//
// The life of a task as the daemon sees it (at most once per attempt):
//   Start -> Reply 0 -> Prepared | StartFailed
//   Go    -> Reply 0 -> Started  | StartFailed
//   ...      Exited (main process ended; leftovers are being ended) -> TasksGone (cgroup empty)
//   Forget   record and cgroup are removed
// A refused Start (Reply with a status) leaves nothing behind. After StartFailed the record stays (state
// start_failed, then tasks_gone) until Forget. A shepherd that never got Go holds until Go or Kill, whatever
// happens to launcher or daemon: after a restart the daemon sees `prepared` in List and decides.
#pragma once

#include <cstdint>

namespace tranche::wire {

inline constexpr uint16_t kLauncherProtocolVersion = 1;
// No packet of this protocol is larger; receivers use a buffer of this size and refuse what is truncated.
// In personal mode the first variable of each task's environment: "<run folder>/<job>.<rank>.<attempt>", by
// which launcher and daemon know a task's processes without a cgroup.
inline constexpr const char* kTaskMarkVariable = "TRANCHE_TASK_MARK";

inline constexpr uint32_t kMaxLauncherMessage = 8192;
inline constexpr uint32_t kMaxGpusPerTask = 64;
inline constexpr uint32_t kMaxPath = 4096;  // with the closing NUL, as the kernel counts

enum class LauncherKind : uint16_t {
  // Requests, daemon -> launcher (-> shepherd).
  start = 1,            // StartRequest, with the sealed memfd and, if interactive, the client's socket
  go = 2,               // TaskRequest: execute what was prepared
  signal = 3,           // SignalRequest
  kill = 4,             // KillRequest
  freeze = 5,           // TaskRequest: stop every process of the task, and its time limit's clock
  thaw = 6,             // TaskRequest
  set_limits = 7,       // SetLimitsRequest
  open_as_user = 8,     // OpenAsUserRequest; its Reply carries a file descriptor when status is 0
  scan = 9,             // ScanRequest -> ScanEntry..., Reply
  list = 10,            // MessageHeader alone -> ListEntry..., Reply
  forget = 11,          // TaskRequest: the daemon has recorded the end; EBUSY before TasksGone
  attach = 12,          // TaskRequest, with a client's socket: it becomes the task's client (see attach.h)
  set_gpu_memory = 14,  // SetGpuMemory: other limits of the GPUs' memory than it was started with
  exec = 13,            // ExecRequest, with a sealed memfd and a client's socket: a command inside a task
  // Answers, launcher -> daemon.
  reply = 64,
  list_entry = 65,
  scan_entry = 66,
  // Events, launcher -> daemon.
  prepared = 128,      // TaskEvent
  started = 129,       // StartedEvent
  start_failed = 130,  // StartFailedEvent
  exited = 131,        // ExitedEvent
  tasks_gone = 132,    // TaskEvent: no process of the task is left
  // Between shepherd and launcher only; the daemon never sees them.
  shepherd_hello = 192,  // ShepherdHello, first packet of a shepherd that connects to a new launcher
};

struct MessageHeader {
  uint32_t size;  // of the whole struct, this header included
  uint16_t version;
  uint16_t kind;  // LauncherKind
  uint64_t id;    // the request this belongs to; 0 for events
};
static_assert(sizeof(MessageHeader) == 16);

// Which try of which task. The same key in cgroup paths, record names and messages.
struct TaskKey {
  uint64_t job;      // from 1
  uint32_t rank;     // of the task in its job, from 0
  uint32_t attempt;  // from 1
};
static_assert(sizeof(TaskKey) == 16);

// --- Requests ---------------------------------------------------------------------------------------------

// Bits of StartRequest::flags.
inline constexpr uint32_t kStartInteractive = 1U << 0;  // a client's socket is passed; stdio goes through it
inline constexpr uint32_t kStartTerminal = 1U << 1;     // with kStartInteractive: stdio is a pseudo-terminal
inline constexpr uint32_t kStartMergeStderr = 1U
                                              << 2;  // stderr goes where stdout goes (implied by a terminal)
inline constexpr uint32_t kStartEmulatedNodes = 1U
                                                << 3;  // GPU nodes are loop devices: loop ioctls are refused
inline constexpr uint32_t kStartJobShares = 1U << 4;   // the job has, or may get, other tasks: /dev/shm and
                                                       // the IPC namespace are the job's, kept until its last
                                                       // task is gone. Without it they are this task's own,
                                                       // which is cheaper.
inline constexpr uint32_t kStartNoNewPrivileges =
    1U << 5;  // set no_new_privs (breaks rootless containers, sudo)
inline constexpr uint32_t kStartMemoryUnlimited = 1U << 6;   // required to accept memory_mib == 0
inline constexpr uint32_t kStartKnownFlags = (1U << 7) - 1;  // other bits are refused with EINVAL

// A part of a GPU's memory, by the UUID that the driver's API gives the device or MIG instance.
struct MemoryShare {
  uint8_t uuid[16];
  uint64_t limit_bytes;  // 0: the whole GPU
};
static_assert(sizeof(MemoryShare) == 24);

// Prepares one task and holds it. Passed descriptors (SCM_RIGHTS, one control message, in this order):
//   1. the launch block: a memfd sealed SHRINK|GROW|WRITE, see launch_block.h
//   2. with kStartInteractive, the client's connected stream socket
// Refused at once (Reply, nothing made): EPERM uid 0, system user (below --allow-system-uids-from, default
// 1000), unknown user, a gid the user is not a member of; EINVAL malformed; EEXIST the key has a record;
// ENODEV no such GPU node; EAGAIN the launcher's limit of tasks.
struct StartRequest {
  MessageHeader header;
  TaskKey key;
  uint32_t uid;
  uint32_t gid;              // primary group; supplementary groups are resolved by the launcher
  uint32_t flags;            // kStart...
  uint32_t cpu_milli;        // relative weight among tasks: what the task asked for; 0 = smallest
  uint32_t cpu_limit_milli;  // hard cap; 0 = none
  uint32_t pids_limit;       // 0 = none
  uint64_t memory_mib;       // hard limit, swap included; see kStartMemoryUnlimited
  uint64_t time_limit_ns;    // from exec, CLOCK_BOOTTIME, standing still while frozen; 0 = none
  uint64_t grace_ns;       // from SIGTERM to the kill of the cgroup: at the time limit, and for what is left
                           // when the main process has ended
  uint16_t terminal_rows;  // first size of the pseudo-terminal; 0 = 24 x 80
  uint16_t terminal_columns;
  uint16_t gpu_count;  // 0: no NVIDIA node opens at all, /dev/nvidiactl and -uvm included
  uint16_t reserved;
  uint32_t gpu_minors[kMaxGpusPerTask];  // N of /dev/nvidiaN, the first gpu_count are valid, no duplicates
  // Second size. With any limit the task gets the guard (guard.h) in the place of the driver's libraries.
  uint32_t share_count;  // 0: whole GPUs
  uint32_t reserved_2;
  MemoryShare shares[kMaxGpusPerTask];
  // Third size: a signal to every process of the task this long before its time limit; 0: none.
  int32_t limit_signal;
  uint32_t reserved_for_signal;
  uint64_t limit_signal_before_ns;
  // Fourth size: what of each share is promised; 0: all of it. The rest is lent while nobody needs it.
  uint64_t guarantee_bytes[kMaxGpusPerTask];
};
inline constexpr uint32_t kStartRequestFirstSize = 88 + 4 * kMaxGpusPerTask;
static_assert(__builtin_offsetof(StartRequest, memory_mib) == 56 &&
              __builtin_offsetof(StartRequest, gpu_minors) == 88 &&
              __builtin_offsetof(StartRequest, share_count) == kStartRequestFirstSize);
static_assert(__builtin_offsetof(StartRequest, limit_signal) ==
              kStartRequestFirstSize + 8 + 24 * kMaxGpusPerTask);
static_assert(__builtin_offsetof(StartRequest, guarantee_bytes) ==
              kStartRequestFirstSize + 24 + 24 * kMaxGpusPerTask);
static_assert(sizeof(StartRequest) == kStartRequestFirstSize + 24 + 32 * kMaxGpusPerTask);

// Go, Freeze, Thaw, Forget, Attach.
struct TaskRequest {
  MessageHeader header;
  TaskKey key;
};
static_assert(sizeof(TaskRequest) == 32);

enum class SignalScope : uint32_t {
  main_process = 0,  // that process alone
  whole_task = 1,    // every process of the cgroup
  who_catches = 2,   // those of them that have a handler for it; nobody is ended by it
};

struct SignalRequest {
  MessageHeader header;
  TaskKey key;
  int32_t signal;  // 1..64; SIGKILL to the whole task is Kill with grace 0
  uint32_t scope;  // SignalScope
};
static_assert(sizeof(SignalRequest) == 40);

// Ends the task: thawed, SIGTERM (and SIGCONT) to every process, then the cgroup is killed after the grace.
// Before Go it ends in StartFailed (stage cancelled, never executed). Repeating it with a shorter grace
// shortens. Cause of the exit is `killed`.
struct KillRequest {
  MessageHeader header;
  TaskKey key;
  uint64_t grace_ns;  // 0: killed at once
};
static_assert(sizeof(KillRequest) == 40);

inline constexpr uint32_t kSetCpu = 1U << 0;        // cpu_milli and cpu_limit_milli
inline constexpr uint32_t kSetMemory = 1U << 1;     // memory_mib; 0 = unlimited
inline constexpr uint32_t kSetPids = 1U << 2;       // pids_limit; 0 = unlimited
inline constexpr uint32_t kSetTimeLimit = 1U << 3;  // time_limit_ns, again counted from exec; 0 = none

struct SetLimitsRequest {
  MessageHeader header;
  TaskKey key;
  uint32_t which;  // kSet...
  uint32_t cpu_milli;
  uint32_t cpu_limit_milli;
  uint32_t pids_limit;
  uint64_t memory_mib;
  uint64_t time_limit_ns;
};
static_assert(sizeof(SetLimitsRequest) == 64);

// The task's shares as in its StartRequest, with other limits and guarantees: the driver's own limits are set
// anew where it holds them, and the arbiter hears of them when the task is registered again (until then it is
// told by the daemon). Refused: EINVAL other shares than the task has; ESRCH the task does not run;
// EOWNERDEAD its supervisor was lost.
struct SetGpuMemory {
  MessageHeader header;
  TaskKey key;
  uint32_t share_count;
  uint32_t reserved;
  MemoryShare shares[kMaxGpusPerTask];
  uint64_t guarantee_bytes[kMaxGpusPerTask];
};
static_assert(sizeof(SetGpuMemory) == 40 + 32 * kMaxGpusPerTask);

// A command inside a task that runs: in its cgroup and namespaces, as its user, with a client of its own; it
// ends with the task at the latest. Passed descriptors: the launch block (its three file paths are not used)
// and the client's connected stream socket. Refused: ESRCH the task does not run; EPERM `uid` is not the
// task's; EINVAL malformed.
struct ExecRequest {
  MessageHeader header;
  TaskKey key;
  uint32_t uid;
  uint32_t flags;  // kStartTerminal, kStartMergeStderr
  uint16_t terminal_rows;
  uint16_t terminal_columns;
  uint32_t reserved;
};
static_assert(sizeof(ExecRequest) == 48);

enum class OpenMode : uint32_t {
  read = 0,          // O_RDONLY; regular files only
  write_append = 1,  // as the task's logs: O_WRONLY|O_APPEND|O_CREAT, 0600; owned by the user
};

// Opens a file as `uid` (with that user's groups, last component never a symbolic link) and returns it.
// For logs of a user's own jobs; the daemon decides who may ask.
struct OpenAsUserRequest {
  MessageHeader header;
  uint32_t uid;
  uint32_t mode;        // OpenMode
  char path[kMaxPath];  // absolute, NUL-terminated
};
static_assert(sizeof(OpenAsUserRequest) == 24 + kMaxPath);

// Which processes hold these GPU nodes open, whoever started them. Takes milliseconds; runs aside.
struct ScanRequest {
  MessageHeader header;
  uint32_t gpu_count;
  uint32_t reserved;
  uint32_t gpu_minors[kMaxGpusPerTask];
};
static_assert(sizeof(ScanRequest) == 24 + 4 * kMaxGpusPerTask);

// --- Answers ----------------------------------------------------------------------------------------------

inline constexpr uint32_t kMaxText = 256;  // with the closing NUL; UTF-8, one line

// Also carries one file descriptor (SCM_RIGHTS) when it answers OpenAsUser with status 0.
struct Reply {
  MessageHeader header;
  int32_t status;       // 0, or an errno value
  uint32_t entries;     // List, Scan: how many entries came before
  char text[kMaxText];  // when status is not 0: one sentence that says what is wrong and what to do
};
static_assert(sizeof(Reply) == 24 + kMaxText);

enum class TaskState : uint32_t {
  preparing = 1,
  prepared = 2,      // waits for Go; nothing of the user has executed
  running = 3,       // Go was given: it may have executed
  start_failed = 4,  // ended; provably never executed
  exited = 5,        // the main process ended, `end` is valid
};

enum class StartStage : uint32_t {
  none = 0,
  request = 1,  // launch block malformed
  cgroup = 2,
  devices = 3,      // device filter, GPU nodes
  namespaces = 4,   // mounts, IPC, driver libraries
  identity = 5,     // users, groups, rights
  directory = 6,    // working directory, as the user
  files = 7,        // stdin, stdout, stderr, as the user
  execute = 8,      // the command: not found, not executable, bad interpreter
  cancelled = 9,    // Kill came before Go
  supervisor = 10,  // the shepherd was lost before Go
};

enum class ExitCause : uint32_t {
  none = 0,
  exited = 1,      // by itself, with exit_code
  signalled = 2,   // by a signal that was not ours
  time_limit = 3,  // we ended it at its time limit
  killed = 4,      // we ended it because of Kill
  oom = 5,         // a process of the task was killed at the memory limit and the main process failed
  unknown = 6,     // supervisor lost; exit_code and signal are not known (never a guess)
};

// How a task ended, and what it used. Also the tail of records, see TaskRecord.
struct TaskEnd {
  uint32_t cause;         // ExitCause
  int32_t exit_code;      // of the main process; -1 when it ended by a signal or is unknown
  int32_t signal;         // that ended the main process, or 0
  uint32_t oom_kills;     // processes of the task that the kernel killed at the memory limit
  uint64_t user_time_ns;  // processor time of all reaped processes of the task
  uint64_t system_time_ns;
  uint64_t max_resident_kib;     // largest single process
  uint64_t memory_peak_bytes;    // of the cgroup; 0 if the host does not tell
  uint64_t started_boottime_ns;  // exec, CLOCK_BOOTTIME
  uint64_t ended_boottime_ns;    // end of the main process
};
static_assert(sizeof(TaskEnd) == 64);

// Everything known about a task: content of `<run-dir>/tasks/<job>.<rank>.<attempt>` (written by rename, by
// the shepherd alone) and of ListEntry.
struct TaskRecord {
  TaskKey key;
  uint32_t uid;
  uint32_t state;       // TaskState
  uint32_t tasks_gone;  // 1: no process of the task is left
  uint32_t stage;       // StartStage, when state is start_failed
  int32_t error;        // errno, when state is start_failed
  uint32_t flags;       // as in StartRequest
  uint32_t frozen;      // 1: Freeze is in force
  uint32_t gpu_count;
  int32_t task_pid;  // main process; 0 before it exists
  int32_t shepherd_pid;
  uint64_t task_start_ticks;  // field 22 of /proc/PID/stat; with pid and boot id it names a process for ever
  uint64_t shepherd_start_ticks;
  uint64_t time_limit_ns;
  uint64_t grace_ns;
  TaskEnd end;
  char text[kMaxText];  // why it failed to start
  uint32_t gpu_minors[kMaxGpusPerTask];
};
static_assert(__builtin_offsetof(TaskRecord, task_start_ticks) == 56 &&
              __builtin_offsetof(TaskRecord, end) == 88);
static_assert(sizeof(TaskRecord) == 88 + sizeof(TaskEnd) + kMaxText + 4 * kMaxGpusPerTask);

struct ListEntry {
  MessageHeader header;
  TaskRecord record;
};
static_assert(sizeof(ListEntry) == 16 + sizeof(TaskRecord));

struct ScanEntry {
  MessageHeader header;
  TaskKey key;  // of the task whose cgroup the process is in; job 0: none of ours
  int32_t pid;
  uint32_t uid;  // real uid
  uint64_t start_ticks;
  uint32_t gpu_minor;  // one entry for each process and GPU
  uint32_t reserved;
  char command[16];       // the kernel's short name; shown to administrators only
  char cgroup[kMaxText];  // path in the unified hierarchy, cut if longer
};
static_assert(sizeof(ScanEntry) == 72 + kMaxText);

// --- Events -----------------------------------------------------------------------------------------------

// Prepared, TasksGone.
struct TaskEvent {
  MessageHeader header;
  TaskKey key;
};
static_assert(sizeof(TaskEvent) == 32);

struct StartedEvent {
  MessageHeader header;
  TaskKey key;
  int32_t task_pid;
  uint32_t reserved;
  uint64_t task_start_ticks;
  uint64_t started_boottime_ns;
};
static_assert(sizeof(StartedEvent) == 56);

// The command provably never executed; the same task may be tried again, under a new attempt.
struct StartFailedEvent {
  MessageHeader header;
  TaskKey key;
  uint32_t stage;  // StartStage
  int32_t error;   // errno
  char text[kMaxText];
};
static_assert(sizeof(StartFailedEvent) == 40 + kMaxText);

struct ExitedEvent {
  MessageHeader header;
  TaskKey key;
  TaskEnd end;
};
static_assert(sizeof(ExitedEvent) == 32 + sizeof(TaskEnd));

struct ShepherdHello {
  MessageHeader header;
  TaskRecord record;
};
static_assert(sizeof(ShepherdHello) == 16 + sizeof(TaskRecord));

}  // namespace tranche::wire
