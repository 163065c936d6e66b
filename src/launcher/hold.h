// The holder (`tranche-launcher --hold`): a process that does nothing but live in the delegated subtree, so
// that the subtree stays while launcher and daemon come and go.
#pragma once

#include "launcher/launcher_host.h"

namespace tranche::launcher {

// Returns at SIGTERM or SIGINT; removes the subtree if it is empty then.
isolation::Outcome<void> hold_subtree(const Options& options);

}  // namespace tranche::launcher
