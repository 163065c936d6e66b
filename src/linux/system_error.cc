#include "linux/system_error.h"

#include <cerrno>
#include <cstring>
#include <string>

namespace tranche {
namespace {

ErrorCode code_of(int error_number) {
  switch (error_number) {
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      return ErrorCode::storage_full;
    case ENOENT:
    case ENOTDIR:
    case ESRCH:
      return ErrorCode::not_found;
    case EACCES:
    case EPERM:
    case EROFS:
      return ErrorCode::denied;
    case ECONNREFUSED:
    case ECONNRESET:
    case EPIPE:
    case ENOTCONN:
      return ErrorCode::unavailable;
    case EMFILE:
    case ENFILE:
    case EAGAIN:
      return ErrorCode::over_limit;
    case ETIMEDOUT:
      return ErrorCode::timed_out;
    case EEXIST:
    case EADDRINUSE:
      return ErrorCode::conflict;
    case EMSGSIZE:
    case ENAMETOOLONG:
      return ErrorCode::too_large;
    default:
      return ErrorCode::internal;
  }
}

}  // namespace

Error system_error(std::string_view action, int error_number) {
  const char* name = strerrorname_np(error_number);
  std::string message(action);
  message += ": ";
  message += strerrordesc_np(error_number) != nullptr ? strerrordesc_np(error_number) : "unknown error";
  if (name != nullptr) message.append(" (").append(name).append(")");
  return Error(code_of(error_number), std::move(message));
}

Error system_error(std::string_view action) { return system_error(action, errno); }

}  // namespace tranche
