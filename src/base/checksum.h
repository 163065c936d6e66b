// CRC-32 (IEEE 802.3, reflected polynomial 0xEDB88320): finds damage, not malice.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tranche {

// The checksum of `bytes` after what gave `before`: checksum("ab") == checksum("b", checksum("a")).
inline uint32_t checksum(std::string_view bytes, uint32_t before = 0) {
  static constexpr auto kTable = [] {
    std::array<uint32_t, 256> table{};
    for (uint32_t i = 0; i < 256; ++i) {
      uint32_t value = i;
      for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1) != 0 ? 0xEDB88320U : 0U);
      table[i] = value;
    }
    return table;
  }();
  uint32_t crc = ~before;
  for (const char c : bytes) crc = (crc >> 8) ^ kTable[(crc ^ static_cast<unsigned char>(c)) & 0xFF];
  return ~crc;
}

// Bytes with their checksum behind them, and what stood before it; nothing, if it does not fit.
inline std::string with_checksum(std::string bytes) {
  const uint32_t sum = checksum(bytes);
  for (int shift = 0; shift < 32; shift += 8) bytes += static_cast<char>((sum >> shift) & 0xff);
  return bytes;
}
inline std::optional<std::string_view> without_checksum(std::string_view bytes) {
  if (bytes.size() < 4) return std::nullopt;
  const std::string_view content = bytes.substr(0, bytes.size() - 4);
  uint32_t sum = 0;
  for (size_t i = 0; i < 4; ++i)
    sum |= uint32_t{static_cast<unsigned char>(bytes[content.size() + i])} << (8 * i);
  if (checksum(content) != sum) return std::nullopt;
  return content;
}

}  // namespace tranche
