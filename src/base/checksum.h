// CRC-32 (IEEE 802.3, reflected polynomial 0xEDB88320): finds damage, not malice.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tranche {

// kChecksumTables[n][b]: what byte b adds n bytes further on.
inline constexpr auto kChecksumTables = [] {
  std::array<std::array<uint32_t, 256>, 8> tables{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1) != 0 ? 0xEDB88320U : 0U);
    tables[0][i] = value;
  }
  for (size_t n = 1; n < 8; ++n) {
    for (size_t i = 0; i < 256; ++i)
      tables[n][i] = (tables[n - 1][i] >> 8) ^ tables[0][tables[n - 1][i] & 0xff];
  }
  return tables;
}();

// The checksum of `bytes` after what gave `before`: checksum("ab") == checksum("b", checksum("a")).
inline uint32_t checksum(std::string_view bytes, uint32_t before = 0) {
  const auto& tables = kChecksumTables;
  const auto byte = [&](size_t at) { return uint32_t{static_cast<unsigned char>(bytes[at])}; };
  uint32_t crc = ~before;
  size_t at = 0;
  for (; at + 8 <= bytes.size(); at += 8) {
    crc ^= byte(at) | byte(at + 1) << 8 | byte(at + 2) << 16 | byte(at + 3) << 24;
    crc = tables[7][crc & 0xff] ^ tables[6][(crc >> 8) & 0xff] ^ tables[5][(crc >> 16) & 0xff] ^
          tables[4][crc >> 24] ^ tables[3][byte(at + 4)] ^ tables[2][byte(at + 5)] ^ tables[1][byte(at + 6)] ^
          tables[0][byte(at + 7)];
  }
  for (; at < bytes.size(); ++at) crc = (crc >> 8) ^ tables[0][(crc ^ byte(at)) & 0xff];
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
