// Who asks, as the kernel says (SO_PEERCRED, SO_PEERGROUPS), and what that person may do.
#pragma once

#include <cstdint>
#include <string>

#include "codec/config.h"
#include "linux/unix_socket.h"
#include "machine/user_directory.h"

namespace tranche::machine {

struct Caller {
  uint32_t uid = 0;
  uint32_t gid = 0;
  std::string user;
  bool is_operator = false;
  uint64_t token = 0;  // that it came with; 0: from the machine itself

  // Whether this caller may see what a job of `owner` runs, and end it.
  bool may_control(uint32_t owner_uid) const { return is_operator || uid == owner_uid; }
};

Caller identify_caller(const PeerCredentials& peer, const DaemonConfig& config, UserDirectory& users);

}  // namespace tranche::machine
