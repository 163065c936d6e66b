#include "machine/device_uuid.h"

namespace tranche::machine {

bool parse_device_uuid(std::string_view text, uint8_t (&uuid)[16]) {
  const size_t dash = text.find('-');
  if (dash == std::string_view::npos) return false;
  size_t digits = 0;
  for (const char c : text.substr(dash + 1)) {
    if (c == '-') continue;
    const char lower = static_cast<char>(c | 0x20);
    const int value = c >= '0' && c <= '9' ? c - '0' : lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
    if (value < 0 || digits == 2 * sizeof uuid) return false;
    uint8_t& byte = uuid[digits / 2];
    byte = static_cast<uint8_t>(digits % 2 == 0 ? value << 4 : byte | value);
    ++digits;
  }
  return digits == 2 * sizeof uuid;
}

std::string device_uuid_digits(const uint8_t (&uuid)[16]) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const uint8_t byte : uuid) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

std::string device_uuid_digits(std::string_view text) {
  uint8_t uuid[16];
  return parse_device_uuid(text, uuid) ? device_uuid_digits(uuid) : std::string();
}

}  // namespace tranche::machine
