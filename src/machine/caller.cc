#include "machine/caller.h"

#include <unistd.h>

#include <algorithm>

namespace tranche::machine {

Caller identify_caller(const PeerCredentials& peer, const DaemonConfig& config, UserDirectory& users) {
  Caller caller{peer.uid, peer.gid, users.name(peer.uid), peer.uid == 0};
  if (config.personal && peer.uid == ::geteuid()) caller.is_operator = true;
  const auto& names = config.operator_users;
  if (std::find(names.begin(), names.end(), caller.user) != names.end()) caller.is_operator = true;
  for (const std::string& group : config.operator_groups) {
    const bool member = users.is_group(group, peer.gid) ||
                        std::any_of(peer.groups.begin(), peer.groups.end(),
                                    [&](uint32_t gid) { return users.is_group(group, gid); });
    if (member) caller.is_operator = true;
  }
  return caller;
}

}  // namespace tranche::machine
