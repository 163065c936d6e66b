// What a PEM file of certificates says about itself.
#pragma once

#include <string_view>

#include "base/result.h"
#include "base/units.h"

namespace tranche {

// When the first certificate of `pem` stops to be valid.
Result<Time> certificate_end(std::string_view pem);

}  // namespace tranche
