// What `status` and `boards` print: a table for people, JSON for programs.
#pragma once

#include <string>

#include "emulator/device_model.h"

namespace tranche::emulator {

std::string status_text(DeviceModel& model);
std::string status_json(DeviceModel& model);
std::string boards_text();
std::string boards_json();

}  // namespace tranche::emulator
