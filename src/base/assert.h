// Programmer errors end the process, in every build; what comes from outside is never asserted on.
#pragma once

namespace tranche {

// Prints `expression`, `file` and `line` to stderr and aborts.
[[noreturn]] void assertion_failed(const char* expression, const char* file, int line);

}  // namespace tranche

#define TRANCHE_ASSERT(expression) \
  (static_cast<bool>(expression) ? void(0) : ::tranche::assertion_failed(#expression, __FILE__, __LINE__))
