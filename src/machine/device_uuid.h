// UUIDs of GPUs and MIG instances: text as NVML spells it, and the 16 bytes that CUDA and the wire have.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tranche::machine {

// "GPU-8-4-4-4-12" or "MIG-...". False: it is none.
bool parse_device_uuid(std::string_view text, uint8_t (&uuid)[16]);
// 32 digits, the same for both spellings.
std::string device_uuid_digits(const uint8_t (&uuid)[16]);
// The same of text; "" if it is none.
std::string device_uuid_digits(std::string_view text);

}  // namespace tranche::machine
