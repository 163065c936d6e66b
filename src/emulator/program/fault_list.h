// What is broken on the standing server, for people and programs.
#pragma once

#include <string>

#include "emulator/device_model.h"

namespace tranche::emulator {

std::string fault_list_text(DeviceModel& model);
std::string fault_list_json(DeviceModel& model);

}  // namespace tranche::emulator
