#include "base/error.h"

#include "base/assert.h"

namespace tranche {
namespace {

struct CodeRow {
  std::string_view name;
  int status;
  int exit;
};

constexpr CodeRow kCodes[] = {
#define TRANCHE_ERROR_ROW(code, status, exit_code) {#code, status, exit_code},
    TRANCHE_ERROR_CODES(TRANCHE_ERROR_ROW)
#undef TRANCHE_ERROR_ROW
};

const CodeRow& row(ErrorCode code) {
  const auto index = static_cast<size_t>(code);
  TRANCHE_ASSERT(index < std::size(kCodes));
  return kCodes[index];
}

}  // namespace

std::string_view to_string(ErrorCode code) { return row(code).name; }
int http_status(ErrorCode code) { return row(code).status; }
int exit_code(ErrorCode code) { return row(code).exit; }

Error::Error(ErrorCode code, std::string message)
    : detail_(std::make_unique<Detail>(Detail{code, std::move(message)})) {}

Error Error::with_context(std::string_view context) && {
  detail_->message.insert(0, std::string(context) + ": ");
  return std::move(*this);
}

}  // namespace tranche
