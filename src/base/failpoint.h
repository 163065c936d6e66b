// Places where a test makes a process die as by kill -9: before and after every write and every message
// between daemon, launcher and shepherd, and of what sets the driver's limits.
//
// Always compiled in, so that what is tested is what runs; a place that is not armed costs one comparison of
// a flag. Armed by TRANCHE_FAILPOINTS=FILE in the environment that daemon or launcher are started with, which
// only root chooses (no task ever sees it). FILE is a FailpointTable that all of them map: a process counts
// the places that its role passes and dies at the `abort_at`-th, so that a test can walk through all of them
// with n = 1, 2, ... until a scenario ends without having reached the n-th.
//
// Threading: failpoint() from any thread; the rest before threads start. Errors: none; a file that cannot be
// mapped is said on standard error and arms nothing.
#pragma once

#include <atomic>
#include <cstdint>

namespace tranche {

enum class FailpointRole : uint32_t { daemon = 0, launcher = 1, shepherd = 2, memory_limit = 3 };
inline constexpr uint32_t kFailpointRoles = 4;

// In the file, one after the other, in the order of FailpointRole.
struct FailpointSlot {
  uint64_t abort_at;             // 0: never
  std::atomic<uint64_t> passed;  // how many places processes of this role have come by
  char name[48];                 // of the place where one died; NUL-terminated
};
static_assert(sizeof(FailpointSlot) == 64);

struct FailpointTable {
  FailpointSlot roles[kFailpointRoles];
};

// Reads the environment and maps the file, if one is named.
void arm_failpoints(FailpointRole role);
// After fork(): what the child counts as from now on.
void set_failpoint_role(FailpointRole role);

namespace detail {
extern FailpointSlot* failpoint_slot;  // null: not armed
void pass_failpoint(const char* name);
}  // namespace detail

// `name` says what has just been done, or is about to be: "record.written".
inline void failpoint(const char* name) {
  if (detail::failpoint_slot != nullptr) [[unlikely]]
    detail::pass_failpoint(name);
}

}  // namespace tranche
