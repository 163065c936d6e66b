// The whole policy as JSON, as it stands inside PolicyChanged.
//
// Threading: pure functions. Errors: corrupt, with the path of the field.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "model/policy.h"

namespace tranche {

std::string encode_policy(const Policy& policy);
Result<Policy> decode_policy(std::string_view json);

}  // namespace tranche
