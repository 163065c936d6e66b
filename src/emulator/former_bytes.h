// What a process leaves in a GPU's memory when it ends, for whoever is given that memory next.
//
// Device memory is a file in memory of its process (device_memory.h) and dies with it. Its first part, the
// window, lies in a file of the server instead, one a GPU, which outlives everybody: row by row, as many as
// kWindows, one for the process in the same row of the process table. Whoever comes to a row finds there what
// its last owner left, however that ended. Only one living process has a row, so nobody sees what is still in
// use.
//
// Bounded: a GPU keeps at most kWindows * kWindowBytes; pages that were never touched cost nothing. Processes
// in later rows, and on servers whose file system is short of room, have no window and begin with clean
// memory. Threading: none of its own.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"

namespace tranche::emulator {

inline constexpr uint64_t kWindowBytes = uint64_t{4} << 20;  // two device pages
inline constexpr uint32_t kWindows = 32;

// The file of a GPU in the server's folder. Its name begins as those of all files with device bytes do.
std::string former_bytes_path(const std::string& directory, uint32_t gpu);

// Makes the files of a new server, of mode 0666, empty.
Result<void> make_former_bytes(const std::string& directory, uint32_t gpu_count);
void remove_former_bytes(const std::string& directory);

// Maps the window of row `slot` at `address`, which is mapped already; returns the file, open, or -1 if there
// is no window to be had. The offset of the window in the file is slot * kWindowBytes.
int map_window(const std::string& directory, uint32_t gpu, uint32_t slot, void* address);

}  // namespace tranche::emulator
