// Why a job waits and until when, in sentences.
#pragma once

#include <string>

#include "base/units.h"
#include "model/answer.h"

namespace tranche::cli {

// "position 3, expected by 14:20 (from time limits)", or "".
std::string forecast_text(const Forecast& forecast, Time now);

// Reason, position and expected start, what it waits for, what would help: lines with newlines.
std::string explanation_text(const Explanation& explanation, Time now);

}  // namespace tranche::cli
