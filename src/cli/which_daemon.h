// Which daemon on this machine a command speaks to when nothing names one: the server's, or the user's own
// (personal mode) where there is none of the server's.
#pragma once

#include <string>

namespace tranche::cli {

class Session;

// The two words that --socket and TRANCHE_SOCKET take besides paths.
inline constexpr const char* kSystemDaemon = "system";
inline constexpr const char* kPersonalDaemon = "personal";

// Turns "", "system" or "personal" into a socket's path and leaves everything else as it is. Where both
// daemons answer and nothing was said, the server's is taken, and the session is told so.
std::string chosen_socket(Session& session, const std::string& wanted);

}  // namespace tranche::cli
