// A value or an Error. `std::expected` is not in C++20, and clang refuses g++ 12's header of it.
#pragma once

#include <tl/expected.hpp>
#include <utility>

#include "base/error.h"

namespace tranche {

template <class T>
using Result = tl::expected<T, Error>;

inline tl::unexpected<Error> fail(ErrorCode code, std::string message) {
  return tl::unexpected<Error>(Error(code, std::move(message)));
}
inline tl::unexpected<Error> fail(Error error) { return tl::unexpected<Error>(std::move(error)); }

}  // namespace tranche

#define TRANCHE_CONCAT_(a, b) a##b
#define TRANCHE_CONCAT(a, b) TRANCHE_CONCAT_(a, b)

// Returns the error of `expression` (a Result) from the enclosing function, or goes on.
#define TRY(expression)                                                       \
  do {                                                                        \
    auto try_result_ = (expression);                                          \
    if (!try_result_) return ::tranche::fail(std::move(try_result_).error()); \
  } while (false)

// `TRY_ASSIGN(auto value, f());` declares or assigns the value of a Result, or returns its error.
#define TRY_ASSIGN(target, expression) TRY_ASSIGN_(target, expression, TRANCHE_CONCAT(try_, __LINE__))
#define TRY_ASSIGN_(target, expression, temporary)                      \
  auto temporary = (expression);                                        \
  if (!temporary) return ::tranche::fail(std::move(temporary).error()); \
  target = std::move(*temporary)
