// What each board can be cut into under MIG: the GPU instances' profiles with their placements, and the
// compute instances' inside them.
//
// Numbers are from public listings of `nvidia-smi mig -lgip` and NVIDIA's MIG user guide, board by board;
// those of B200 from 3g up are not published and are derived (profiles.cc says how). Two GPU instances
// collide exactly when their ranges of memory units overlap, or when together they want more media engines
// than the board has.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace tranche::emulator {

struct GpuInstanceProfile {
  uint32_t id;     // what create calls take
  uint32_t query;  // NVML's enumeration, which the profile-info call takes: another number
  uint32_t slices;
  uint32_t units;   // of memory
  uint32_t starts;  // bit s: may begin at unit s
  uint32_t most;    // how many at once
  uint32_t memory_mib;
  uint32_t multiprocessors;
  uint32_t copy_engines, decoders, encoders, jpeg, optical_flow;
  std::string_view suffix;  // of the name: "", "+me", "+gfx", "+me.all", "-me"

  bool has_media() const { return suffix.starts_with("+me"); }
};

struct MigBoard {
  std::string_view key;  // of the board
  uint32_t nominal_gb;   // as the board is called; the profiles' names are shares of it
  uint32_t units, slices;
  uint32_t multiprocessors_per_slice;
  bool mode_survives_reboot;  // Ampere
  std::span<const GpuInstanceProfile> profiles;
};

// Null for a board without MIG.
const MigBoard* mig_board(std::string_view key);
const GpuInstanceProfile* profile_by_id(const MigBoard& board, uint32_t id);
const GpuInstanceProfile* profile_by_query(const MigBoard& board, uint32_t query);
// "1g.10gb+me"
std::string profile_name(const MigBoard& board, const GpuInstanceProfile& profile);

inline constexpr uint32_t kGpuInstanceQueries = 18;     // NVML_GPU_INSTANCE_PROFILE_COUNT of header API 13
inline constexpr uint32_t kComputeInstanceQueries = 8;  // 1c, 2c, 3c, 4c, 7c, 8c, 6c, 1c with media

// Compute instances: by number of slices. `id` equals the query's number for all but the one with media.
struct ComputeInstanceProfile {
  uint32_t id, slices, most, multiprocessors;
  uint32_t starts;  // bit s
};
// False if the GPU instance's profile has no compute instance under that query.
bool compute_profile(const MigBoard& board, const GpuInstanceProfile& profile, uint32_t query,
                     ComputeInstanceProfile& found);

}  // namespace tranche::emulator
