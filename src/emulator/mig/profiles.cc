#include "emulator/mig/profiles.h"

#include <algorithm>
#include <array>

namespace tranche::emulator {
namespace {

// The 8-slice geometry of most boards: seven compute slices over eight units of memory. Unit 7 has no
// compute slice of its own, so 1g cannot begin there.
constexpr uint32_t kEach = 0x7F, kEven = 0x55, kEvenLow = 0x15, kHalves = 0x11, kFirst = 0x01;

struct Sizes {
  uint32_t memory_mib, multiprocessors;
};
struct Engines {
  uint32_t copy, decoders, jpeg;
};

// Rows in the order 1g, 1g+me, 1g with double memory, 2g, 3g, 4g, 7g.
constexpr std::array<GpuInstanceProfile, 7> make(std::array<Sizes, 7> sizes, std::array<Engines, 7> engines,
                                                 bool media_only_in_me) {
  constexpr std::array<uint32_t, 7> kId{19, 20, 15, 14, 9, 5, 0}, kQuery{0, 7, 9, 1, 2, 3, 4},
      kSlices{1, 1, 1, 2, 3, 4, 7}, kUnits{1, 1, 2, 2, 4, 4, 8}, kMost{7, 1, 4, 3, 2, 1, 1},
      kStarts{kEach, kEach, kEven, kEvenLow, kHalves, kFirst, kFirst};
  std::array<GpuInstanceProfile, 7> profiles{};
  for (size_t i = 0; i < profiles.size(); ++i) {
    const bool whole = i == 6, media = i == 1;
    profiles[i] = {.id = kId[i],
                   .query = kQuery[i],
                   .slices = kSlices[i],
                   .units = kUnits[i],
                   .starts = kStarts[i],
                   .most = kMost[i],
                   .memory_mib = sizes[i].memory_mib,
                   .multiprocessors = sizes[i].multiprocessors,
                   .copy_engines = engines[i].copy,
                   .decoders = engines[i].decoders,
                   .encoders = 0,
                   .jpeg = media_only_in_me ? (whole || media ? 1 : 0) : engines[i].jpeg,
                   .optical_flow = whole || media ? 1u : 0u,
                   .suffix = media ? "+me" : ""};
  }
  return profiles;
}

constexpr std::array<Engines, 7> kAmpereEngines{
    {{1, 0, 0}, {1, 1, 0}, {1, 1, 0}, {2, 1, 0}, {3, 2, 0}, {4, 2, 0}, {7, 5, 0}}};
constexpr std::array<Engines, 7> kHopperEngines{
    {{1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {2, 2, 2}, {3, 3, 3}, {4, 4, 4}, {8, 7, 7}}};
// From 3g up decoders and JPEG engines are not published: one a slice.
constexpr std::array<Engines, 7> kBlackwellEngines{
    {{2, 1, 1}, {2, 1, 1}, {2, 1, 1}, {4, 2, 2}, {6, 3, 3}, {8, 4, 4}, {16, 7, 7}}};

constexpr auto kA100With40 =
    make({{{4864, 14}, {4864, 14}, {9856, 14}, {9856, 28}, {19968, 42}, {19968, 56}, {40192, 98}}},
         kAmpereEngines, true);
constexpr auto kA100With80 =
    make({{{9856, 14}, {9856, 14}, {19968, 14}, {19968, 28}, {40192, 42}, {40192, 56}, {80384, 98}}},
         kAmpereEngines, true);
constexpr auto kH100With80 =
    make({{{9984, 16}, {9984, 16}, {20096, 26}, {20096, 32}, {40448, 60}, {40448, 64}, {81152, 132}}},
         kHopperEngines, false);
constexpr auto kH200 =
    make({{{16384, 16}, {16384, 16}, {33024, 26}, {33024, 32}, {71168, 60}, {71168, 64}, {143104, 132}}},
         kHopperEngines, false);
// From 3g up memory and multiprocessors are not published: twice 2g's, and half of what is left of the board.
constexpr auto kB200 =
    make({{{22528, 18}, {22528, 18}, {45312, 30}, {45312, 36}, {90880, 70}, {90880, 72}, {182016, 148}}},
         kBlackwellEngines, false);

// The 4-slice geometry of A30.
constexpr std::array<GpuInstanceProfile, 5> kA30{{
    {14, 0, 1, 1, 0xF, 4, 5836, 14, 1, 0, 0, 0, 0, ""},
    {21, 7, 1, 1, 0xF, 1, 5836, 14, 1, 1, 0, 1, 1, "+me"},
    {5, 1, 2, 2, 0x5, 2, 11672, 28, 2, 2, 0, 0, 0, ""},
    {6, 8, 2, 2, 0x5, 1, 11672, 28, 2, 2, 0, 1, 1, "+me"},
    {0, 3, 4, 4, 0x1, 1, 23344, 56, 4, 4, 0, 1, 1, ""},
}};

// The geometry of RTX PRO 6000: four compute slices over twelve units, three for each.
constexpr uint32_t kQuarters = 0x249, kTwelfthHalves = 0x41;
constexpr std::array<GpuInstanceProfile, 11> kRtxPro6000{{
    {14, 0, 1, 3, kQuarters, 4, 24192, 46, 1, 1, 1, 1, 0, ""},
    {21, 7, 1, 3, kQuarters, 1, 24192, 46, 1, 1, 1, 1, 1, "+me"},
    {47, 10, 1, 3, kQuarters, 4, 24192, 46, 1, 1, 1, 1, 0, "+gfx"},
    {65, 15, 1, 3, kQuarters, 1, 24192, 46, 1, 4, 4, 4, 1, "+me.all"},
    {67, 13, 1, 3, kQuarters, 4, 24192, 46, 1, 0, 0, 0, 0, "-me"},
    {5, 1, 2, 6, kTwelfthHalves, 2, 48512, 94, 2, 2, 2, 2, 0, ""},
    {35, 11, 2, 6, kTwelfthHalves, 2, 48512, 94, 2, 2, 2, 2, 0, "+gfx"},
    {64, 16, 2, 6, kTwelfthHalves, 1, 48512, 94, 2, 4, 4, 4, 1, "+me.all"},
    {66, 14, 2, 6, kTwelfthHalves, 2, 48512, 94, 2, 0, 0, 0, 0, "-me"},
    {0, 3, 4, 12, 0x1, 1, 97280, 188, 4, 4, 4, 4, 1, ""},
    {32, 12, 4, 12, 0x1, 1, 97280, 188, 4, 4, 4, 4, 1, "+gfx"},
}};

constexpr std::array<MigBoard, 7> kMigBoards{{
    {"a30", 24, 4, 4, 14, true, kA30},
    {"a100-40", 40, 8, 7, 14, true, kA100With40},
    {"a100-80", 80, 8, 7, 14, true, kA100With80},
    {"h100-80", 80, 8, 7, 16, false, kH100With80},
    {"h200", 141, 8, 7, 16, false, kH200},
    {"b200", 180, 8, 7, 18, false, kB200},
    {"rtxpro6000", 96, 12, 4, 46, false, kRtxPro6000},
}};

constexpr std::array<uint32_t, kComputeInstanceQueries> kComputeSlices{1, 2, 3, 4, 7, 8, 6, 1};

}  // namespace

const MigBoard* mig_board(std::string_view key) {
  const auto board =
      std::find_if(kMigBoards.begin(), kMigBoards.end(), [&](const MigBoard& b) { return b.key == key; });
  return board == kMigBoards.end() ? nullptr : &*board;
}

const GpuInstanceProfile* profile_by_id(const MigBoard& board, uint32_t id) {
  for (const GpuInstanceProfile& profile : board.profiles) {
    if (profile.id == id) return &profile;
  }
  return nullptr;
}

const GpuInstanceProfile* profile_by_query(const MigBoard& board, uint32_t query) {
  for (const GpuInstanceProfile& profile : board.profiles) {
    if (profile.query == query) return &profile;
  }
  return nullptr;
}

// The name says a share of the board's nominal size, rounded, and not what there is: 1g.18gb has 16 GiB.
std::string profile_name(const MigBoard& board, const GpuInstanceProfile& profile) {
  const uint32_t gb = (board.nominal_gb * profile.units + board.units / 2) / board.units;
  return std::to_string(profile.slices) + "g." + std::to_string(gb) + "gb" + std::string(profile.suffix);
}

bool compute_profile(const MigBoard& board, const GpuInstanceProfile& profile, uint32_t query,
                     ComputeInstanceProfile& found) {
  constexpr uint32_t kWithMedia = 7;
  if (query >= kComputeInstanceQueries || (query == kWithMedia && !profile.has_media())) return false;
  const uint32_t slices = kComputeSlices[query];
  const bool exists =
      slices <= profile.slices && slices != 6 && slices != 8 && (slices != 7 || profile.slices == 7);
  if (!exists) return false;
  const uint32_t step = slices == 3 ? 4 : slices;  // 3c begins at 0 and 4
  found = {query, slices, 0, slices * board.multiprocessors_per_slice, 0};
  if (slices == profile.slices) found.multiprocessors = profile.multiprocessors;
  for (uint32_t start = 0; start + slices <= profile.slices; start += step) {
    found.starts |= 1u << start;
    ++found.most;
  }
  return true;
}

}  // namespace tranche::emulator
