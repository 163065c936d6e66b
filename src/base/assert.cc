#include "base/assert.h"

#include <cstdio>
#include <cstdlib>

namespace tranche {

void assertion_failed(const char* expression, const char* file, int line) {
  std::fprintf(stderr, "tranche: assertion failed: %s (%s:%d)\n", expression, file, line);
  std::abort();
}

}  // namespace tranche
