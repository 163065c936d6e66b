// Every function that libnvidia-ml.so.1 exports, declared from the one table functions.inc: a definition
// whose parameters differ from the table's does not compile.
#pragma once

#include "emulator/nvml/nvml_abi.h"
#include "emulator/nvml/nvml_requests.h"

namespace tranche::emulator::nvml {

#define X(name, ...) extern "C" __attribute__((visibility("default"))) Return name(__VA_ARGS__);
#include "emulator/nvml/functions.inc"
#undef X
extern "C" __attribute__((visibility("default"))) const char* nvmlErrorString(Return code);

}  // namespace tranche::emulator::nvml
