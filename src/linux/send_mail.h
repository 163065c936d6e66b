// One message through the machine's sendmail program, as this process's own user. Blocks until the program
// has taken it: for a worker's thread.
#pragma once

#include <string>

#include "base/result.h"
#include "base/units.h"

namespace tranche {

// Runs `program -i -- recipient` with `message` (headers, an empty line, text) as its input and an empty
// environment. Errors: not_found, unavailable (it ended with another code than 0), timed_out (it was ended).
Result<void> send_mail(const std::string& program, const std::string& recipient, const std::string& message,
                       Duration timeout);

}  // namespace tranche
