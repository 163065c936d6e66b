// Who may use how much device memory: tasks, their limits, and what each process of them was granted.
//
// Units: bytes, in multiples of TRANCHE_GUARD_UNIT. Threading: one thread. Ownership: a Task owns its page's
// mapping. Invariant, held by every function: for each task and GPU, the sum of granted() over its slots is
// at most the limit, unless the limit was lowered below what was charged. `granted` is this process's own
// record; what the page says is a hint of the job's, clamped to it. A task that shares a GPU with others is a
// member of its board (board.h), which lends beyond guarantees; without one the whole limit is guaranteed.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "arbiter/board.h"
#include "wire/arbiter.h"
#include "wire/guard.h"

namespace tranche::arbiter {

// The mapped lease page of one task.
class LeasePage {
 public:
  // `file` is a memfd that is sealed against shrinking: a job that could would end us with SIGBUS. Null
  // otherwise.
  static std::unique_ptr<LeasePage> map(int file);
  ~LeasePage();
  LeasePage(const LeasePage&) = delete;
  LeasePage& operator=(const LeasePage&) = delete;

  tranche_guard_slot& slot(uint32_t index) { return slots_[index]; }

 private:
  explicit LeasePage(tranche_guard_slot* slots) : slots_(slots) {}
  tranche_guard_slot* slots_;
};

struct Usage {
  uint64_t limit = 0;
  uint64_t guarantee = 0;
  uint64_t charged = 0;
  uint64_t granted = 0;
  uint64_t denied = 0;
  uint64_t available = 0;  // of limit - charged, what could be granted now
  uint64_t owed = 0;
  uint32_t waits = 0;
  uint32_t processes = 0;
};

// wait: it is promised, and comes once who borrows it has given it back.
enum class Lease { granted, wait, denied };

class TaskLedger {
 public:
  TaskLedger(const wire::RegisterTask& request, std::unique_ptr<LeasePage> page);
  ~TaskLedger();
  TaskLedger(const TaskLedger&) = delete;
  TaskLedger& operator=(const TaskLedger&) = delete;
  // From now on the GPU's memory is shared with the board's other members. The board outlives this.
  void join(uint32_t gpu, Board& board);

  const wire::TaskKey& key() const { return key_; }
  uint32_t uid() const { return uid_; }
  uint32_t gpu_count() const { return static_cast<uint32_t>(gpus_.size()); }
  bool is_held_by_driver() const { return held_by_driver_; }
  const uint8_t* uuid(uint32_t gpu) const { return gpus_[gpu].uuid.data(); }
  uint64_t limit(uint32_t gpu) const { return gpus_[gpu].limit; }
  uint64_t guarantee(uint32_t gpu) const { return gpus_[gpu].guarantee; }
  uint64_t granted(uint32_t gpu) const { return gpus_[gpu].granted; }
  // -1: none of this task's.
  int find(const uint8_t uuid[16]) const;
  uint64_t context_bytes(uint32_t gpu) const { return gpus_[gpu].context_bytes; }
  void note_context(uint32_t gpu, uint64_t bytes);

  // A slot for a process, or -1 when there is none left. What an earlier image of the pid held is gone.
  int enter(int32_t pid, uint64_t image, uint64_t start_ticks);
  // Takes up a slot that the page shows as the process's own; false if it is not.
  bool resume(uint32_t slot, int32_t pid, uint64_t image);
  // The process is dead and its memory free.
  void leave(uint32_t slot);
  // The process cannot ask any more, but may hold memory: what it did not use comes back.
  void keep_used_only(uint32_t slot);
  // After a restart: takes the slots of the page as they are. Returns their places.
  std::vector<uint32_t> adopt();

  bool has_slot(uint32_t slot) const { return slot < slots_.size() && slots_[slot].pid != 0; }
  int32_t pid(uint32_t slot) const { return slots_[slot].pid; }
  uint64_t start_ticks(uint32_t slot) const { return slots_[slot].start_ticks; }
  std::vector<int32_t> pids() const;

  // Lets the slot use `need` bytes more than it uses. Unused memory of the task's other processes, then what
  // other tasks borrow and do not use, is taken back before anything is refused.
  Lease lease(uint32_t slot, uint32_t gpu, uint64_t need);
  // `guarantee`: of the limit; 0: what was promised before stays, as far as the new limit has it.
  void set_limit(uint32_t gpu, uint64_t limit, uint64_t guarantee = 0);
  // Takes back at most this much of what its processes were granted and do not use; returns how much.
  uint64_t take_unused(uint32_t gpu, uint64_t at_most);
  // Asks its processes for what their pools keep.
  void raise_pressure(uint32_t gpu);
  Usage usage(uint32_t gpu) const;

 private:
  struct Gpu {
    std::array<uint8_t, 16> uuid{};
    uint64_t limit = 0;
    uint64_t promised = 0;   // when it was registered, or said since
    uint64_t guarantee = 0;  // of that, what the limit has
    uint64_t granted = 0;    // sum over slots
    uint64_t context_bytes = 0;
    uint64_t denied = 0;
    uint32_t waits = 0;
    Board* board = nullptr;
  };
  struct Slot {
    int32_t pid = 0;
    uint64_t image = 0;
    uint64_t start_ticks = 0;
    uint64_t next_chunk = 0;
    std::vector<uint64_t> granted;  // by GPU
  };

  uint64_t used(uint32_t slot, uint32_t gpu) const;
  uint64_t room(uint32_t gpu) const;
  Lease refuse(Gpu& account, uint64_t missing);
  uint64_t give(uint32_t slot, uint32_t gpu, uint64_t bytes);
  uint64_t take_unused_of(uint32_t slot, uint32_t gpu, uint64_t at_most);
  void take_unused_of_others(uint32_t slot, uint32_t gpu, uint64_t wanted);
  void open_slot(uint32_t slot, int32_t pid, uint64_t image);

  wire::TaskKey key_{};
  uint32_t uid_ = 0;
  bool held_by_driver_ = false;
  std::unique_ptr<LeasePage> page_;
  std::vector<Gpu> gpus_;
  std::vector<Slot> slots_;
};

}  // namespace tranche::arbiter
