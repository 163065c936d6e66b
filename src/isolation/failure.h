// What went wrong on the root side: an errno for programs and a sentence for people. The daemon's ErrorCode
// is not used here, because these travel in fixed-width messages whose status is an errno.
#pragma once

#include <string>
#include <string_view>
#include <tl/expected.hpp>

#include "base/result.h"

namespace tranche::isolation {

struct Failure {
  int error = 0;  // errno value, never 0
  std::string text;
};

template <class T>
using Outcome = tl::expected<T, Failure>;

// "`what`: No such file or directory", from an errno.
Failure system_failure(int error, std::string_view what);
inline tl::unexpected<Failure> failed(int error, std::string text) {
  return tl::unexpected<Failure>(Failure{error, std::move(text)});
}
// With the errno of the system call that just failed.
tl::unexpected<Failure> call_failed(std::string_view what);

}  // namespace tranche::isolation

namespace tranche {
// Lets TRY and TRY_ASSIGN of base/result.h pass a Failure on.
inline tl::unexpected<isolation::Failure> fail(isolation::Failure failure) {
  return tl::unexpected<isolation::Failure>(std::move(failure));
}
}  // namespace tranche
