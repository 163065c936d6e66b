#include "base/failpoint.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace tranche {

namespace detail {

FailpointSlot* failpoint_slot = nullptr;

void pass_failpoint(const char* name) {
  FailpointSlot& slot = *failpoint_slot;
  if (slot.passed.fetch_add(1) + 1 != slot.abort_at) return;
  std::strncpy(slot.name, name, sizeof slot.name - 1);
  ::kill(::getpid(), SIGKILL);
}

}  // namespace detail

namespace {
FailpointTable* table = nullptr;
}  // namespace

void arm_failpoints(FailpointRole role) {
  const char* path = std::getenv("TRANCHE_FAILPOINTS");
  if (path == nullptr) return;
  const int file = ::open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
  struct stat status {};
  if (file >= 0 && ::fstat(file, &status) == 0 && S_ISREG(status.st_mode) &&
      status.st_size >= static_cast<off_t>(sizeof(FailpointTable))) {
    void* memory = ::mmap(nullptr, sizeof(FailpointTable), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (memory != MAP_FAILED) table = static_cast<FailpointTable*>(memory);
  }
  if (file >= 0) ::close(file);
  if (table == nullptr) std::fprintf(stderr, "TRANCHE_FAILPOINTS: %s cannot be mapped\n", path);
  set_failpoint_role(role);
}

void set_failpoint_role(FailpointRole role) {
  detail::failpoint_slot = table == nullptr ? nullptr : &table->roles[static_cast<uint32_t>(role)];
}

}  // namespace tranche
