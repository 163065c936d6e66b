#include "emulator/mig/layout.h"

#include <algorithm>

namespace tranche::emulator {
namespace {

uint32_t range_bits(uint32_t start, uint32_t length) { return ((1u << length) - 1) << start; }

constexpr uint32_t kUnitsMost = 12;

// The order in which the driver tries starts by itself. On boards of eight units from the middle, then from
// the beginning: not safe against fragmentation, since 1g, 1g, 2g, 3g in this order fails on A100, while 3g
// first succeeds. On other boards, of which nothing is published, from the beginning.
uint32_t driver_choice(const MigBoard& board, uint32_t number) {
  return board.units == 8 ? (number + 4) % 8 : number;
}

bool may_begin(const GpuInstanceProfile& profile, uint32_t start) {
  return start < kUnitsMost && (profile.starts >> start & 1u) != 0;
}

// Ids tell the position, as in listings of A100: the whole 0, halves 1-2, quarters 3-6, units from 7 on.
uint32_t id_at(const MigBoard& board, uint32_t start, uint32_t units) {
  const uint32_t parts = board.units / std::max(units, 1u);
  if (board.units != 8) return parts <= 1 ? 0 : (parts == 2 ? 1 : 3) + start / units;
  const uint32_t position = (start + 8 - 4) % 8;  // the driver's order
  switch (units) {
    case 8:
      return 0;
    case 4:
      return 1 + position / 4;
    case 2:
      return 3 + position / 2;
    default:
      return 7 + position;
  }
}

// Media engines, of which the board has as many as its whole profile.
struct Media {
  uint32_t decoders = 0, encoders = 0, jpeg = 0, optical_flow = 0;

  void add(const GpuInstanceProfile& profile) {
    decoders += profile.decoders;
    encoders += profile.encoders;
    jpeg += profile.jpeg;
    optical_flow += profile.optical_flow;
  }
  bool is_within(const Media& all) const {
    return decoders <= all.decoders && encoders <= all.encoders && jpeg <= all.jpeg &&
           optical_flow <= all.optical_flow;
  }
};

Media media_of_board(const MigBoard& board) {
  Media all;
  for (const GpuInstanceProfile& profile : board.profiles) {
    if (profile.units == board.units && profile.suffix.empty()) all.add(profile);
  }
  return all;
}

Media media_in_use(const SharedMig& mig, const MigBoard& board) {
  Media used;
  for (const SharedGpuInstance& instance : mig.instances) {
    const GpuInstanceProfile* const profile = profile_by_id(board, instance.profile);
    if (instance.exists != 0 && profile != nullptr) used.add(*profile);
  }
  return used;
}

uint32_t count_of(const SharedMig& mig, uint32_t profile) {
  uint32_t count = 0;
  for (const SharedGpuInstance& instance : mig.instances) {
    if (instance.exists != 0 && instance.profile == profile) ++count;
  }
  return count;
}

// The executor that no compute instance has. There are as many as compute slices on any board, so one is
// left.
uint32_t free_executor(const SharedMig& mig) {
  uint32_t taken = 0;
  for (const SharedGpuInstance& instance : mig.instances) {
    for (const SharedComputeInstance& compute : instance.compute) {
      if (instance.exists != 0 && compute.exists != 0) taken |= 1u << compute.executor % kMaxExecutors;
    }
  }
  uint32_t executor = 0;
  while (executor + 1 < kMaxExecutors && (taken >> executor & 1u) != 0) ++executor;
  return executor;
}

}  // namespace

uint32_t occupied_units(const SharedMig& mig) {
  uint32_t bits = 0;
  for (const SharedGpuInstance& instance : mig.instances) {
    if (instance.exists != 0)
      bits |= range_bits(instance.start % kUnitsMost, instance.units % (kUnitsMost + 1));
  }
  return bits;
}

std::optional<uint32_t> slot_of_instance(const SharedMig& mig, uint32_t id) {
  for (uint32_t slot = 0; slot < kMaxGpuInstances; ++slot) {
    if (mig.instances[slot].exists != 0 && mig.instances[slot].id == id) return slot;
  }
  return std::nullopt;
}

uint32_t remaining_capacity(const SharedMig& mig, const MigBoard& board, const GpuInstanceProfile& profile) {
  const uint32_t made = count_of(mig, profile.id);
  const Media all = media_of_board(board);
  Media media = media_in_use(mig, board);
  uint32_t taken = occupied_units(mig), more = 0;
  for (uint32_t start = 0; start < board.units && made + more < profile.most; ++start) {
    if (!may_begin(profile, start) || (taken & range_bits(start, profile.units)) != 0) continue;
    media.add(profile);
    if (!media.is_within(all)) break;
    taken |= range_bits(start, profile.units);
    ++more;
  }
  return more;
}

MigResult create_gpu_instance(SharedMig& mig, const MigBoard& board, const GpuInstanceProfile& profile,
                              std::optional<uint32_t> start, uint32_t& created) {
  if (mig.enabled == 0) return MigResult::not_supported;
  if (start && !may_begin(profile, *start)) return MigResult::invalid;
  if (count_of(mig, profile.id) >= profile.most) return MigResult::no_room;
  Media media = media_in_use(mig, board);
  media.add(profile);
  if (!media.is_within(media_of_board(board))) return MigResult::no_room;
  const uint32_t taken = occupied_units(mig);
  const auto fits = [&](uint32_t at) {
    return may_begin(profile, at) && (taken & range_bits(at, profile.units)) == 0;
  };
  for (uint32_t number = 0; number < board.units; ++number) {
    const uint32_t at = driver_choice(board, number);
    if ((start && at != *start) || !fits(at)) continue;
    for (created = 0; created < kMaxGpuInstances && mig.instances[created].exists != 0;) ++created;
    if (created == kMaxGpuInstances) return MigResult::no_room;
    SharedGpuInstance& instance = mig.instances[created];
    instance = {};
    instance.id = id_at(board, at, profile.units);
    instance.profile = profile.id;
    instance.start = at;
    instance.units = profile.units;
    instance.exists = 1;
    return MigResult::done;
  }
  return MigResult::no_room;
}

MigResult create_compute_instance(SharedMig& mig, const MigBoard& board, uint32_t slot, uint32_t query,
                                  std::optional<uint32_t> start, uint32_t& created) {
  SharedGpuInstance& instance = mig.instances[slot % kMaxGpuInstances];
  const GpuInstanceProfile* const profile = profile_by_id(board, instance.profile);
  ComputeInstanceProfile wanted{};
  if (instance.exists == 0 || profile == nullptr) return MigResult::not_found;
  if (!compute_profile(board, *profile, query, wanted)) return MigResult::not_supported;
  if (start && (*start >= 32 || (wanted.starts >> *start & 1u) == 0)) return MigResult::invalid;
  uint32_t taken = 0;
  for (const SharedComputeInstance& other : instance.compute) {
    if (other.exists != 0) taken |= range_bits(other.start % 8, other.slices % 9);
  }
  for (uint32_t at = 0; at < profile->slices; ++at) {
    const bool legal = (wanted.starts >> at & 1u) != 0 && (!start || at == *start);
    if (!legal || (taken & range_bits(at, wanted.slices)) != 0) continue;
    for (created = 0; created < kMaxComputeInstances && instance.compute[created].exists != 0;) ++created;
    if (created == kMaxComputeInstances) return MigResult::no_room;
    SharedComputeInstance& made = instance.compute[created];
    made = {};
    made.profile = wanted.id;
    made.start = at;
    made.slices = wanted.slices;
    made.multiprocessors = wanted.multiprocessors;
    made.executor = free_executor(mig);
    made.exists = 1;
    ++mig.made;
    return MigResult::done;
  }
  return MigResult::no_room;
}

MigResult destroy_gpu_instance(SharedMig& mig, uint32_t slot) {
  SharedGpuInstance& instance = mig.instances[slot % kMaxGpuInstances];
  if (instance.exists == 0) return MigResult::not_found;
  for (const SharedComputeInstance& compute : instance.compute) {
    if (compute.exists != 0) return MigResult::in_use;
  }
  instance = {};
  return MigResult::done;
}

void reset_layout(SharedMig& mig) {
  mig.instances = {};
  mig.enabled = mig.pending;
}

}  // namespace tranche::emulator
