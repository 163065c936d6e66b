// errno as an Error.
#pragma once

#include <string_view>

#include "base/error.h"

namespace tranche {

// "<action>: <what errno means>", with the code that fits: no space is storage_full, no entry not_found, no
// permission denied, nobody there unavailable, full tables over_limit, timeouts timed_out, else internal.
Error system_error(std::string_view action, int error_number);
// The same for the calling thread's errno.
Error system_error(std::string_view action);

}  // namespace tranche
