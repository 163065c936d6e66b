// How an enumeration gets its spelling: one X-macro list, used for the type, its text and the documents.
// The text is what stands in the journal, the API and the command line, so it never changes its meaning.
#pragma once

#include <optional>
#include <string_view>

namespace tranche {

#define TRANCHE_ENUM_VALUE(name) name,
#define TRANCHE_ENUM_TO_TEXT(name) \
  case Self::name:                 \
    return #name;
#define TRANCHE_ENUM_FROM_TEXT(name) \
  if (text == #name) return Self::name;

// Declares `enum class Name { ... }`, `to_string(Name)` and `from_string<Name>(text)` from a list macro.
#define TRANCHE_ENUM(Name, LIST)                                                 \
  enum class Name : unsigned char { LIST(TRANCHE_ENUM_VALUE) };                  \
  constexpr std::string_view to_string(Name value) {                             \
    using Self = Name;                                                           \
    switch (value) { LIST(TRANCHE_ENUM_TO_TEXT) }                                \
    return "?";                                                                  \
  }                                                                              \
  constexpr std::optional<Name> parse_enum(std::string_view text, const Name*) { \
    using Self = Name;                                                           \
    LIST(TRANCHE_ENUM_FROM_TEXT)                                                 \
    return std::nullopt;                                                         \
  }

template <class Enum>
constexpr std::optional<Enum> from_string(std::string_view text) {
  return parse_enum(text, static_cast<const Enum*>(nullptr));
}

}  // namespace tranche
