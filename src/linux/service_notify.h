// Tells the service manager how the service is (sd_notify); does nothing where there is none.
#pragma once

#include <string_view>
#include <vector>

#include "linux/unique_fd.h"

namespace tranche {

// Start-up is complete: clients may connect.
void notify_ready();
// The service is ending; no more requests are taken.
void notify_stopping();
// One line for `systemctl status`; control characters become spaces.
void notify_status(std::string_view status);

// The sockets that the service manager passed (LISTEN_FDS), close-on-exec; empty where there are none.
// Call once: the variables are removed from the environment.
std::vector<UniqueFd> inherited_sockets();

}  // namespace tranche
