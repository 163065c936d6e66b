#include "guard/lease.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "wire/guard.h"

enum { WAIT_MS = 1000, TRY_AGAIN_MS = 100, LENT_PAUSE_MS = 10 };

static struct {
  pthread_mutex_t mutex;  // one question at a time
  int socket;             // -1: not connected
  struct stat identity;   // of the socket: programs that close all files may have put theirs at its number
  uint64_t next_id;
  uint64_t down_until_ms;
  uint32_t flags;
  bool forks_seen;
  struct tranche_guard_slot* slots;  // the page; set once, before `slot`
  struct tranche_guard_slot* slot;   // ours; null: nothing may be used
  uint32_t slot_number;              // counted from 1
  struct tranche_guard_welcome welcome;
  bool welcomed;
  bool limits_read;  // without a welcome: the limits of its GPUs are in it
} self = {.mutex = PTHREAD_MUTEX_INITIALIZER, .socket = -1, .next_id = 1};

static uint64_t now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static uint64_t own_image(void) {
  uint64_t image = 0;
  const void* random = (const void*)getauxval(AT_RANDOM);
  if (random != 0) memcpy(&image, random, sizeof image);
  return image;
}

// fstat got a new name in the C library; the kernel's call has one.
static bool file_status(int file, struct stat* status) { return syscall(SYS_fstat, file, status) == 0; }

static bool still_ours(void) {
  struct stat status;
  return file_status(self.socket, &status) && status.st_dev == self.identity.st_dev &&
         status.st_ino == self.identity.st_ino;
}

static void disconnect(void) {
  if (self.socket >= 0 && still_ours()) close(self.socket);
  self.socket = -1;
  self.down_until_ms = now_ms() + TRY_AGAIN_MS;
}

// --- fork: the child has a copy of the page and of the socket, and a right to neither
// ------------------------------

static void before_fork(void) { pthread_mutex_lock(&self.mutex); }
static void in_parent(void) { pthread_mutex_unlock(&self.mutex); }
static void in_child(void) {
  if (self.socket >= 0 && still_ours()) close(self.socket);
  if (self.slots != 0) munmap(self.slots, TRANCHE_GUARD_PAGE_BYTES);
  self.socket = -1;
  self.slots = 0;
  self.slot = 0;
  self.slot_number = 0;
  self.welcomed = false;
  self.down_until_ms = 0;
  pthread_mutex_unlock(&self.mutex);
}

// --- one question, one answer
// ---------------------------------------------------------------------------------

static struct tranche_guard_header header_of(uint16_t kind, size_t size) {
  struct tranche_guard_header header = {(uint32_t)size, TRANCHE_GUARD_VERSION, kind, self.next_id++};
  return header;
}

// Receives into `answer`; a passed file goes to `file` if that is not null. False: no answer in time.
static bool receive(void* answer, size_t size, uint64_t id, int* file) {
  for (;;) {
    union {
      struct cmsghdr header;
      char bytes[CMSG_SPACE(sizeof(int))];
    } control;
    struct iovec part = {answer, size};
    struct msghdr message = {0};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = &control;
    message.msg_controllen = sizeof control;
    memset(answer, 0, size);
    const ssize_t count = recvmsg(self.socket, &message, MSG_CMSG_CLOEXEC);
    if (count < 0 && errno == EINTR) continue;
    if (count < (ssize_t)sizeof(struct tranche_guard_header)) return false;
    int passed = -1;
    struct cmsghdr* rights = CMSG_FIRSTHDR(&message);
    if (rights != 0 && rights->cmsg_type == SCM_RIGHTS) memcpy(&passed, CMSG_DATA(rights), sizeof passed);
    const bool wanted = ((const struct tranche_guard_header*)answer)->id == id;
    if (wanted && file != 0) {
      *file = passed;
    } else if (passed >= 0) {
      close(passed);
    }
    if (wanted) return true;  // else an answer that came too late for its question
  }
}

static bool exchange(const void* question, size_t question_size, void* answer, size_t answer_size,
                     int* file) {
  if (send(self.socket, question, question_size, MSG_NOSIGNAL) != (ssize_t)question_size) return false;
  return receive(answer, answer_size, ((const struct tranche_guard_header*)question)->id, file);
}

enum { MARK_LENGTH = sizeof TRANCHE_GUARD_SOCKET_MARK - 1 };
// Read anew each time: in a copy of this file it may be another than the compiler has seen.
static const volatile char marked_socket[MARK_LENGTH + TRANCHE_GUARD_SOCKET_ROOM] =
    TRANCHE_GUARD_SOCKET_MARK TRANCHE_GUARD_SOCKET;

static void copy_socket_path(char* path, size_t room) {
  for (size_t i = 0; i + 1 < room && i < TRANCHE_GUARD_SOCKET_ROOM; ++i)
    path[i] = marked_socket[MARK_LENGTH + i];
}

static bool open_socket(void) {
  struct sockaddr_un address = {0};
  address.sun_family = AF_UNIX;
  copy_socket_path(address.sun_path, sizeof address.sun_path);
  const int file = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (file < 0) return false;
  const struct timeval wait = {WAIT_MS / 1000, 0};
  // Connecting does not wait for a full queue; answers are waited for.
  if (connect(file, (const struct sockaddr*)&address, sizeof address) != 0 || fcntl(file, F_SETFL, 0) != 0 ||
      setsockopt(file, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait) != 0 ||
      setsockopt(file, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof wait) != 0 ||
      !file_status(file, &self.identity)) {
    close(file);
    return false;
  }
  self.socket = file;
  return true;
}

static bool map_page(int file) {
  if (self.slots == 0) {
    void* memory = mmap(0, TRANCHE_GUARD_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (memory == MAP_FAILED) return false;
    self.slots = memory;
  }
  return true;
}

static bool take_slot(const struct tranche_guard_welcome* welcome, int page) {
  if ((self.flags & TRANCHE_GUARD_VIEWER) != 0) return true;
  const uint32_t number = welcome->slot;
  if (page < 0 || number == 0 || number > TRANCHE_GUARD_MAX_PROCESSES) return false;
  // What this process uses is written in its slot; another one would count it twice or not at all.
  if (self.slot_number != 0 && self.slot_number != number) return false;
  if (!map_page(page)) return false;
  self.slot_number = number;
  __atomic_store_n(&self.slot, &self.slots[number - 1], __ATOMIC_RELEASE);
  return true;
}

static bool introduce(void) {
  struct tranche_guard_hello hello = {.flags = self.flags, .slot = self.slot_number, .image = own_image()};
  hello.header = header_of(TRANCHE_GUARD_HELLO, sizeof hello);
  struct tranche_guard_welcome welcome;
  int page = -1;
  bool good = exchange(&hello, sizeof hello, &welcome, sizeof welcome, &page);
  good =
      good && welcome.status == 0 && welcome.gpu_count <= TRANCHE_GUARD_MAX_GPUS && take_slot(&welcome, page);
  if (page >= 0) close(page);
  if (good) {
    self.welcome = welcome;
    __atomic_store_n(&self.welcomed, true, __ATOMIC_RELEASE);
  }
  return good;
}

// With the mutex held. False: not now.
static bool connected(void) {
  if (self.socket >= 0 && !still_ours()) self.socket = -1;
  if (self.socket >= 0) return true;
  if (now_ms() < self.down_until_ms) return false;
  if (!self.forks_seen) {
    self.forks_seen = true;
    pthread_atfork(before_fork, in_parent, in_child);
  }
  if (open_socket() && introduce()) return true;
  disconnect();
  return false;
}

// Sends a question and waits for its answer, with one new connection if the old one was lost.
static bool ask(void* question, size_t question_size, uint16_t kind, void* answer, size_t answer_size) {
  const int error = errno;  // programs do not expect a driver to change it
  bool answered = false;
  pthread_mutex_lock(&self.mutex);
  for (int attempt = 0; attempt < 2 && !answered && connected(); ++attempt) {
    *(struct tranche_guard_header*)question = header_of(kind, question_size);
    answered = exchange(question, question_size, answer, answer_size, 0);
    if (!answered) {
      const bool lost = errno != EAGAIN;
      disconnect();
      if (!lost) break;  // it was asked and is silent: do not wait twice
      self.down_until_ms = 0;
    }
  }
  pthread_mutex_unlock(&self.mutex);
  errno = error;
  return answered;
}

// What the shepherd says. With the mutex held.
static bool read_limits(void) {
  char path[TRANCHE_GUARD_SOCKET_ROOM + sizeof TRANCHE_GUARD_LIMITS_SUFFIX] = "";
  copy_socket_path(path, TRANCHE_GUARD_SOCKET_ROOM);
  strcat(path, TRANCHE_GUARD_LIMITS_SUFFIX);
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  struct tranche_guard_gpu gpus[TRANCHE_GUARD_MAX_GPUS];
  const ssize_t size = read(file, gpus, sizeof gpus);
  close(file);
  if (size < (ssize_t)sizeof gpus[0]) return false;
  const uint32_t count = (uint32_t)size / (uint32_t)sizeof gpus[0];
  // Places are the same as in a welcome; what is known of contexts stays.
  for (uint32_t i = 0; i < count; ++i) {
    memcpy(self.welcome.gpus[i].uuid, gpus[i].uuid, sizeof gpus[i].uuid);
    self.welcome.gpus[i].limit_bytes = gpus[i].limit_bytes;
  }
  self.welcome.gpu_count = count;
  return true;
}

static bool know_gpus(void) {
  if (__atomic_load_n(&self.welcomed, __ATOMIC_ACQUIRE)) return true;
  const int error = errno;
  pthread_mutex_lock(&self.mutex);
  const bool known = connected() || self.limits_read || (self.limits_read = read_limits());
  pthread_mutex_unlock(&self.mutex);
  errno = error;
  return known;
}

// --- the lease words
// --------------------------------------------------------------------------------------------

static uint64_t units_of(uint64_t bytes) { return (bytes + TRANCHE_GUARD_UNIT - 1) / TRANCHE_GUARD_UNIT; }

static bool take_granted(uint64_t* word, uint64_t units) {
  uint64_t seen = __atomic_load_n(word, __ATOMIC_RELAXED);
  for (;;) {
    if ((seen & UINT32_MAX) + units > seen >> 32) return false;
    if (__atomic_compare_exchange_n(word, &seen, seen + units, true, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
      return true;
  }
}

static bool ask_for_more(int gpu, uint64_t bytes) {
  struct tranche_guard_lease question = {.gpu = (uint32_t)gpu, .need_bytes = bytes};
  struct tranche_guard_answer answer;
  const int error = errno;
  // What is promised to this task is lent to another, which is told to give it back, and ended if it does
  // not: that takes as long as the policy says, and refusing meanwhile would break the promise.
  for (;;) {
    if (!ask(&question, sizeof question, TRANCHE_GUARD_LEASE, &answer, sizeof answer)) return false;
    if (answer.status != EAGAIN) return answer.status == 0;
    const struct timespec pause = {0, LENT_PAUSE_MS * 1000000};
    nanosleep(&pause, 0);
    errno = error;
  }
}

bool lease_take(int gpu, uint64_t bytes) {
  const uint64_t units = units_of(bytes);
  if (gpu < 0) return gpu == LEASE_GPU_UNCOUNTED;
  if (units > UINT32_MAX) return false;
  if (__atomic_load_n(&self.slot, __ATOMIC_ACQUIRE) == 0) know_gpus();
  struct tranche_guard_slot* slot = __atomic_load_n(&self.slot, __ATOMIC_ACQUIRE);
  if (slot == 0) return false;
  // Another thread, or another process that was in need, may be quicker than we are: a bounded number of
  // times.
  for (int tries = 0; tries < 16; ++tries) {
    if (take_granted(&slot->lease[gpu], units)) return true;
    if (!ask_for_more(gpu, bytes)) return false;
  }
  return false;
}

bool lease_has(int gpu, uint64_t bytes) {
  struct tranche_guard_slot* slot = __atomic_load_n(&self.slot, __ATOMIC_ACQUIRE);
  if (slot == 0 || gpu < 0) return false;
  const uint64_t seen = __atomic_load_n(&slot->lease[gpu], __ATOMIC_RELAXED);
  return (seen & UINT32_MAX) + units_of(bytes) <= seen >> 32;
}

void lease_give_back(int gpu, uint64_t bytes) {
  struct tranche_guard_slot* slot = __atomic_load_n(&self.slot, __ATOMIC_ACQUIRE);
  if (slot != 0 && gpu >= 0) __atomic_fetch_sub(&slot->lease[gpu], units_of(bytes), __ATOMIC_ACQ_REL);
}

bool lease_pressure(void) {
  struct tranche_guard_slot* slot = __atomic_load_n(&self.slot, __ATOMIC_ACQUIRE);
  if (slot == 0 || __atomic_load_n(&slot->pressure, __ATOMIC_RELAXED) == 0) return false;
  return __atomic_exchange_n(&slot->pressure, 0, __ATOMIC_ACQ_REL) != 0;
}

// --- what the arbiter knows
// ---------------------------------------------------------------------------------------

int lease_gpu_of(const uint8_t uuid[16]) {
  if (!know_gpus()) return LEASE_GPU_UNKNOWN;
  for (uint32_t i = 0; i < self.welcome.gpu_count; ++i) {
    if (memcmp(self.welcome.gpus[i].uuid, uuid, 16) == 0)
      return self.welcome.gpus[i].limit_bytes == 0 ? LEASE_GPU_UNCOUNTED : (int)i;
  }
  return LEASE_GPU_UNCOUNTED;
}

void lease_usage(int gpu, struct Usage* usage) {
  struct tranche_guard_gpu_request question = {.gpu = (uint32_t)gpu};
  struct tranche_guard_answer answer;
  if (ask(&question, sizeof question, TRANCHE_GUARD_USAGE, &answer, sizeof answer)) {
    usage->limit = answer.limit_bytes;
    usage->charged = answer.charged_bytes;
    const uint64_t left = usage->limit - (usage->charged < usage->limit ? usage->charged : usage->limit);
    // An arbiter of an older release does not say it.
    const bool told = answer.header.size >= sizeof answer;
    usage->available = told && answer.available_bytes < left ? answer.available_bytes : left;
    self.welcome.gpus[gpu].limit_bytes = answer.limit_bytes;
    return;
  }
  // Without the arbiter: what this process may still take is what is free.
  const int error = errno;
  pthread_mutex_lock(&self.mutex);
  read_limits();
  pthread_mutex_unlock(&self.mutex);
  errno = error;
  const struct tranche_guard_slot* slot = __atomic_load_n(&self.slot, __ATOMIC_ACQUIRE);
  const uint64_t word = slot == 0 ? 0 : __atomic_load_n(&slot->lease[gpu], __ATOMIC_ACQUIRE);
  const uint64_t unused = ((word >> 32) - (word & UINT32_MAX)) * TRANCHE_GUARD_UNIT;
  usage->limit = self.welcome.gpus[gpu].limit_bytes;
  usage->charged = usage->limit - (unused < usage->limit ? unused : usage->limit);
  usage->available = usage->limit - usage->charged;
}

uint64_t lease_context_bytes(int gpu) { return self.welcome.gpus[gpu].context_bytes; }

void lease_report_context(int gpu, uint64_t bytes) {
  struct tranche_guard_context question = {.gpu = (uint32_t)gpu, .bytes = bytes};
  struct tranche_guard_answer answer;
  if (bytes > self.welcome.gpus[gpu].context_bytes) self.welcome.gpus[gpu].context_bytes = bytes;
  (void)ask(&question, sizeof question, TRANCHE_GUARD_CONTEXT, &answer, sizeof answer);
}

int32_t lease_own_pid(void) { return know_gpus() ? self.welcome.pid : 0; }

int lease_pids(int32_t* pids, int room) {
  struct tranche_guard_header question;
  struct tranche_guard_pid_list answer;
  if (!ask(&question, sizeof question, TRANCHE_GUARD_PIDS, &answer, sizeof answer)) return -1;
  int count = answer.count > TRANCHE_GUARD_MAX_PROCESSES ? TRANCHE_GUARD_MAX_PROCESSES : (int)answer.count;
  if (count > room) count = room;
  memcpy(pids, answer.pids, (size_t)count * sizeof *pids);
  return count;
}

void lease_be_viewer(void) { self.flags |= TRANCHE_GUARD_VIEWER; }
