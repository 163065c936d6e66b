// Which branches an input took: rooms that are built with AddressSanitizer call in at each
// (cmake/Tranche.cmake). Without it nothing is counted.
#pragma once

#include <cstddef>

namespace tranche::fuzz {

// Before an input.
void forget_branches();
// Whether the last input took a branch, or took one more often by an order of magnitude, than any before.
bool took_new_branches();
// How many pairs of branches were ever taken.
size_t branches_known();

}  // namespace tranche::fuzz
