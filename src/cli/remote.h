// A daemon of another machine: https://HOST:PORT in the place of a socket's path.
//
//   TRANCHE_HOST=https://hopper.example.org:7443
//   TRANCHE_TOKEN_FILE=~/.config/tranche/token      what `tranche token create` printed; readable by oneself
//   only TRANCHE_CA_FILE=FILE                            whom to believe; default: the system's authorities
//
// TLS is spoken by a program of its own, tranche-remote, so that this one stays quick to start.
#pragma once

namespace tranche::cli {

class Session;

// For main: how clients of this process reach such a daemon. The session outlives all clients.
void use_remote_daemons(const Session& session);

}  // namespace tranche::cli
