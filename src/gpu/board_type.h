// The short name of a board, which users ask for (`-G h100-80:2`) and policies price.
#pragma once

#include <string>
#include <string_view>

#include "base/units.h"

namespace tranche {

// From the driver's product name AND the memory, because one name covers boards of several sizes ("A100-PCIE"
// is 40 or 80 GB) and some names lie. Known: t4 rtx4090 l40s a100-40 a100-80 h100-80 h200 b200 a30
// rtxpro6000. Any other becomes a slug of its name, "NVIDIA RTX A6000" -> "rtx-a6000", with "-<GB>" appended
// when it has none, so that boards of one name and different memory differ: [a-z0-9-], 1..40 characters, no
// '-' at either end.
std::string board_type(std::string_view name, MiB memory_total);

}  // namespace tranche
