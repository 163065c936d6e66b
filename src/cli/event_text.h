// A row of the journal for people: one line for the event and one for each decision.
#pragma once

#include <string>

#include "codec/event_json.h"

namespace tranche::cli {

std::string event_text(const JournalRow& row);

}  // namespace tranche::cli
