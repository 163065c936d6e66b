#include "arbiter/board.h"

#include <algorithm>
#include <tuple>

#include "arbiter/ledger.h"

namespace tranche::arbiter {
namespace {

uint64_t above(uint64_t a, uint64_t b) { return a > b ? a - b : 0; }

}  // namespace

void Board::set(uint64_t usable, uint64_t elsewhere) {
  usable_ = usable;
  elsewhere_ = elsewhere;
  settle();
}

void Board::enter(TaskLedger& task, uint32_t gpu) {
  const auto age = [](const TaskLedger& ledger) {
    return std::tuple(ledger.key().job, ledger.key().rank, ledger.key().attempt);
  };
  const auto place =
      std::upper_bound(members_.begin(), members_.end(), age(task),
                       [&](const auto& key, const Member& member) { return key < age(*member.task); });
  members_.insert(place, {&task, gpu});
  settle();
}

void Board::leave(const TaskLedger& task) {
  std::erase_if(members_, [&](const Member& member) { return member.task == &task; });
}

uint64_t Board::promised_or_granted() const {
  uint64_t sum = 0;
  for (const Member& member : members_) {
    sum += std::max(member.task->guarantee(member.gpu), member.task->granted(member.gpu));
  }
  return sum;
}

// What promises lack because it is borrowed.
uint64_t Board::missing() const { return usable_ == 0 ? 0 : above(promised_or_granted(), lendable()); }

uint64_t Board::room(const TaskLedger& task, uint32_t gpu) const {
  const uint64_t promised = above(task.guarantee(gpu), task.granted(gpu));
  if (usable_ == 0) return promised;
  uint64_t granted = 0;
  for (const Member& member : members_) granted += member.task->granted(member.gpu);
  return std::min(promised, above(usable_, granted)) + above(lendable(), promised_or_granted());
}

void Board::make_room(const TaskLedger& task, uint32_t gpu, uint64_t wanted) {
  for (auto member = members_.rbegin(); member != members_.rend(); ++member) {
    if (member->task == &task) continue;
    const uint64_t have = room(task, gpu);
    if (have >= wanted) return;
    const uint64_t borrowed = above(member->task->granted(member->gpu), member->task->guarantee(member->gpu));
    const uint64_t taken = member->task->take_unused(member->gpu, std::min(borrowed, wanted - have));
    if (taken < borrowed && room(task, gpu) < wanted) member->task->raise_pressure(member->gpu);
  }
}

bool Board::lends_to_others(const TaskLedger& task) const {
  return std::any_of(members_.begin(), members_.end(), [&](const Member& member) {
    return member.task != &task && member.task->granted(member.gpu) > member.task->guarantee(member.gpu);
  });
}

void Board::settle() {
  for (auto member = members_.rbegin(); member != members_.rend() && missing() > 0; ++member) {
    const uint64_t borrowed = above(member->task->granted(member->gpu), member->task->guarantee(member->gpu));
    const uint64_t wanted = std::min(borrowed, missing());
    if (wanted > 0 && member->task->take_unused(member->gpu, wanted) < wanted) {
      member->task->raise_pressure(member->gpu);
    }
  }
}

uint64_t Board::owed(const TaskLedger& task, uint32_t gpu) const {
  uint64_t left = missing();
  for (auto member = members_.rbegin(); member != members_.rend() && left > 0; ++member) {
    const uint64_t borrowed = above(member->task->granted(member->gpu), member->task->guarantee(member->gpu));
    const uint64_t share = std::min(borrowed, left);
    if (member->task == &task && member->gpu == gpu) return share;
    left -= share;
  }
  return 0;
}

}  // namespace tranche::arbiter
