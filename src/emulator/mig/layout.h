// How a GPU is cut into GPU and compute instances, and the rules of that: what collides, what is in use, what
// a reset leaves. Pure over SharedMig; the caller holds the GPU's lock.
#pragma once

#include <cstdint>
#include <optional>

#include "emulator/mig/mig_state.h"
#include "emulator/mig/profiles.h"

namespace tranche::emulator {

enum class MigResult { done, not_supported, invalid, not_found, no_room, in_use };

// Creates a GPU instance of the profile, at `start` or where the driver puts it by itself; `created` becomes
// its slot in `mig.instances`. no_room: nothing legal is free, or there are as many as the board allows.
MigResult create_gpu_instance(SharedMig& mig, const MigBoard& board, const GpuInstanceProfile& profile,
                              std::optional<uint32_t> start, uint32_t& created);
// A compute instance of `slices` in it, at `start` or the first place that is free; `created` is its id.
MigResult create_compute_instance(SharedMig& mig, const MigBoard& board, uint32_t slot, uint32_t query,
                                  std::optional<uint32_t> start, uint32_t& created);
// in_use: it has compute instances.
MigResult destroy_gpu_instance(SharedMig& mig, uint32_t slot);
// How many more of the profile could be made now.
uint32_t remaining_capacity(const SharedMig& mig, const MigBoard& board, const GpuInstanceProfile& profile);
// The slot of the GPU instance with that id.
std::optional<uint32_t> slot_of_instance(const SharedMig& mig, uint32_t id);
// What a reset does: no instance survives, a pending mode takes effect.
void reset_layout(SharedMig& mig);

// Units of memory that are taken, as bits.
uint32_t occupied_units(const SharedMig& mig);

}  // namespace tranche::emulator
