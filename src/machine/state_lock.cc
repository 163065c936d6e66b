#include "machine/state_lock.h"

#include <fcntl.h>
#include <sys/file.h>

#include <cerrno>

#include "linux/system_error.h"

namespace tranche::machine {

Result<UniqueFd> lock_state(const std::string& state_directory) {
  const std::string path = state_directory + "/lock";
  UniqueFd file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file.is_open()) return fail(system_error("open " + path));
  if (::flock(file.get(), LOCK_EX | LOCK_NB) == 0) return file;
  if (errno != EWOULDBLOCK) return fail(system_error("lock " + path));
  return fail(ErrorCode::conflict, state_directory +
                                       " is in use by another tranched: stop it first (`tranche-up stop`, or "
                                       "`systemctl stop tranched`)");
}

}  // namespace tranche::machine
