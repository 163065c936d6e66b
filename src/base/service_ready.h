// Tells the service manager that a service serves, without a library: for programs that load nothing but libc. The protocol
// is sd_notify(3)'s: one datagram to the socket that NOTIFY_SOCKET names.
#pragma once

namespace tranche {

// Does nothing where no service manager asked for it. Takes NOTIFY_SOCKET out of the environment: no child inherits it.
void tell_service_manager_ready();

}  // namespace tranche
