// What an emulated server is made of, and the two ways people write it: `--board h100-80:4` and a small
// text file.
//
// The file has one statement a line; `#` begins a comment:
//     name = lab-a               # seeds the UUIDs: the same name gives the same UUIDs
//     driver = 570               # a level of levels/, or a whole version: 550.163.01
//     guest = vgpu               # or passthrough, or vgpu-unlicensed
//     sharing = mps@0,3          # GPUs 0 and 3 under MPS; "mps": all; "slices": none, as if nothing was said
//     board = h100-80:4          # repeatable; GPUs are numbered in the order written
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace tranche::emulator {

inline constexpr uint32_t kMaxGpus = 64;

// What kind of machine has the GPUs: a plain one, or a virtual machine that was given whole GPUs or shares of
// GPUs (vGPU) by its host.
enum class Guest : uint32_t { none, passthrough, vgpu };

struct ServerDescription {
  std::string name = "tranche";
  std::string driver_version = "550.163.01";
  Guest guest = Guest::none;
  bool is_licensed = true;  // of a vGPU guest
  bool mps_everywhere = false;
  std::vector<uint32_t> mps_gpus;  // that are under MPS, if not all are
  std::vector<uint32_t> gpus;      // index into boards(), one entry a GPU
};

// Appends the GPUs of "BOARD" or "BOARD:COUNT" to `server`.
Result<void> add_boards(std::string_view specification, ServerDescription& server);
// Makes the server a guest: "none", "passthrough", "vgpu" or "vgpu-unlicensed".
Result<void> set_guest(std::string_view kind, ServerDescription& server);
// How processes share GPUs: "slices", "mps", or "mps@N,..." for some GPUs.
Result<void> set_sharing(std::string_view text, ServerDescription& server);
// Reads the text of a description file; an error names the line.
Result<ServerDescription> parse_server_description(std::string_view text);
// Refuses versions that are not MAJOR.MINOR[.PATCH] in digits.
Result<void> check_driver_version(std::string_view version);

}  // namespace tranche::emulator
