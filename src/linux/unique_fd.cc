#include "linux/unique_fd.h"

#include <cerrno>

namespace tranche {

void UniqueFd::reset(int file_descriptor) {
  const int closing = std::exchange(file_descriptor_, file_descriptor);
  if (closing < 0) return;
  const int saved_errno = errno;
  ::close(closing);  // never retried: Linux has released the number even when it reports EINTR
  errno = saved_errno;
}

}  // namespace tranche
