// Where a daemon of one user, without root, keeps its things: by the XDG Base Directory Specification.
//
// - run: $XDG_RUNTIME_DIR/tranche, or /tmp/tranche-<uid> where the login has made no runtime folder; where
//   the user's daemon has its socket already, that one.
// - state: $XDG_STATE_HOME/tranche/<host name> ($HOME/.local/state by default), since machines may share
//   homes.
// - config: $XDG_CONFIG_HOME/tranche/tranche.toml ($HOME/.config by default).
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/result.h"

namespace tranche {

struct PersonalFolders {
  std::string run;
  std::string state;
  std::string config;  // a file, which need not be there
};

// A variable of the environment, or "".
using Variable = std::function<std::string(const char* name)>;

// Makes nothing. An error says which variable is missing or is no absolute path.
Result<PersonalFolders> personal_folders(const Variable& variable, uint32_t uid);

// Where the socket of a personal daemon may be, likeliest first: a login by cron or ssh may lack the variable
// that the daemon was started with. Only in folders that belong to `uid`, as anybody may make one in /tmp.
std::vector<std::string> personal_sockets(const Variable& variable, uint32_t uid);

}  // namespace tranche
