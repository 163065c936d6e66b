// Errors about one option, in one style.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "base/result.h"

namespace tranche::cli {

inline tl::unexpected<Error> invalid(std::string message) {
  return fail(ErrorCode::invalid_argument, std::move(message));
}

// A parser's own sentence, with the option that it is about.
inline tl::unexpected<Error> about(std::string_view option, Error error) {
  return fail(std::move(error).with_context(option));
}

#define TRY_OPTION(target, option, expression)                                  \
  auto TRANCHE_CONCAT(option_, __LINE__) = (expression);                        \
  if (!TRANCHE_CONCAT(option_, __LINE__)) {                                     \
    return about(option, std::move(TRANCHE_CONCAT(option_, __LINE__)).error()); \
  }                                                                             \
  target = std::move(*TRANCHE_CONCAT(option_, __LINE__))

}  // namespace tranche::cli
