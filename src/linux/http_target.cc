#include "linux/http_target.h"

#include <algorithm>

namespace tranche {
namespace {

int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

bool is_control(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte < 0x20 || byte == 0x7f;
}

enum class Part { kPath, kQuery };

Result<std::string> decode(std::string_view text, Part part) {
  std::string decoded;
  decoded.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (c == '%') {
      const int high = i + 2 < text.size() ? hex_value(text[i + 1]) : -1;
      const int low = i + 2 < text.size() ? hex_value(text[i + 2]) : -1;
      if (high < 0 || low < 0) {
        return fail(ErrorCode::invalid_argument,
                    "the address has a '%' without two hexadecimal digits: write %25");
      }
      c = static_cast<char>(high * 16 + low);
      i += 2;
      if (part == Part::kPath && (c == '/' || is_control(c))) {
        return fail(ErrorCode::invalid_argument, "the path holds an encoded '/' or control character");
      }
    } else if (c == '+' && part == Part::kQuery) {
      c = ' ';
    }
    if (c == '\0' || (part == Part::kPath && is_control(c))) {
      return fail(ErrorCode::invalid_argument, "the address holds a control character");
    }
    decoded += c;
  }
  return decoded;
}

}  // namespace

Result<HttpTarget> parse_http_target(std::string_view target) {
  if (target.size() > kTargetLengthMax) {
    return fail(ErrorCode::too_large,
                "the address is longer than " + std::to_string(kTargetLengthMax) + " bytes");
  }
  if (target.empty() || target.front() != '/') {
    return fail(ErrorCode::invalid_argument, "the address must start with '/'");
  }
  const size_t question = std::min(target.find('?'), target.size());
  HttpTarget parsed;
  TRY_ASSIGN(parsed.path, decode(target.substr(0, question), Part::kPath));
  std::string_view rest = target.substr(std::min(question + 1, target.size()));
  while (!rest.empty()) {
    const std::string_view pair = rest.substr(0, rest.find('&'));
    rest.remove_prefix(std::min(pair.size() + 1, rest.size()));
    if (pair.empty()) continue;
    if (parsed.query.size() == kQueryParametersMax) {
      return fail(ErrorCode::invalid_argument,
                  "the address has more than " + std::to_string(kQueryParametersMax) + " parameters");
    }
    const size_t equals = std::min(pair.find('='), pair.size());
    TRY_ASSIGN(std::string name, decode(pair.substr(0, equals), Part::kQuery));
    TRY_ASSIGN(std::string value, decode(pair.substr(std::min(equals + 1, pair.size())), Part::kQuery));
    parsed.query.emplace_back(std::move(name), std::move(value));
  }
  return parsed;
}

std::string percent_encode(std::string_view text) {
  constexpr char kHex[] = "0123456789ABCDEF";
  std::string encoded;
  for (const char c : text) {
    const bool is_alphanumeric = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (is_alphanumeric || c == '-' || c == '.' || c == '_' || c == '~') {
      encoded += c;
    } else {
      const auto byte = static_cast<unsigned char>(c);
      encoded += '%';
      encoded += kHex[byte >> 4];
      encoded += kHex[byte & 15];
    }
  }
  return encoded;
}

}  // namespace tranche
