// The text of levels/*.level, compiled in: driver_level_data.cc is made of them by CMakeLists.txt.
#pragma once

#include <span>
#include <string_view>

namespace tranche::emulator {

struct DriverLevelText {
  int branch;
  std::string_view text;
};

// Oldest first.
std::span<const DriverLevelText> driver_level_texts();

}  // namespace tranche::emulator
