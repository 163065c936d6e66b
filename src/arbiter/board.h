// One GPU's memory among the tasks that share it: what each was promised (its guarantee), and what some
// borrow beyond it while nobody needs it.
//
// Promised memory is counted as taken whether it is used or not, so nobody borrows it; what a task borrows is
// called in when a newcomer's promise needs it: the borrowers get nothing more, what they do not use is taken
// back at once, and the rest is owed, the newest borrower's first. Whether and when somebody is ended for it
// is the daemon's to say.
//
// Units: bytes. Threading: one thread. Ownership: members are borrowed; a task leaves before it ends.
// Invariant while promises fit the GPU: the members' granted bytes together never exceed usable().
#pragma once

#include <cstdint>
#include <vector>

namespace tranche::arbiter {

class TaskLedger;

class Board {
 public:
  // usable 0: not known, nothing is lent. `elsewhere`: of it, held by processes that are nobody's here.
  void set(uint64_t usable, uint64_t elsewhere);
  void enter(TaskLedger& task, uint32_t gpu);
  void leave(const TaskLedger& task);

  uint64_t usable() const { return usable_; }
  // How much more than it has the member may be granted now.
  uint64_t room(const TaskLedger& task, uint32_t gpu) const;
  // Takes back unused memory that others borrow until this member has room for `wanted`, and asks those who
  // still borrow to spare what they can.
  void make_room(const TaskLedger& task, uint32_t gpu, uint64_t wanted);
  // Whether anybody but this task has borrowed.
  bool lends_to_others(const TaskLedger& task) const;
  // Takes back unused borrowed memory as far as promises need it.
  void settle();
  // What the member has to give back of what it borrows.
  uint64_t owed(const TaskLedger& task, uint32_t gpu) const;

 private:
  struct Member {
    TaskLedger* task;
    uint32_t gpu;
  };
  uint64_t lendable() const { return usable_ - (elsewhere_ < usable_ ? elsewhere_ : usable_); }
  uint64_t promised_or_granted() const;
  uint64_t missing() const;

  uint64_t usable_ = 0;
  uint64_t elsewhere_ = 0;
  std::vector<Member> members_;  // by task key: the oldest first
};

}  // namespace tranche::arbiter
