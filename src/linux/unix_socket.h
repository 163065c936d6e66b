// Unix sockets: made, connected, accepted; messages with file descriptors; who is at the other end.
//
// Every descriptor is close-on-exec from birth. Paths longer than 107 bytes are refused (sun_path).
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/units.h"
#include "linux/unique_fd.h"

namespace tranche {

enum class SocketKind { kStream, kPacket };  // SOCK_STREAM, SOCK_SEQPACKET

// What the kernel says about the process that connected, at the time it connected.
struct PeerCredentials {
  pid_t pid = 0;
  uid_t uid = 0;
  gid_t gid = 0;
  std::vector<gid_t> groups;  // supplementary
};

// SO_PEERCRED and SO_PEERGROUPS.
Result<PeerCredentials> peer_credentials(int socket);

// A blocking socket. Nobody listening, or no such path, is `unavailable`.
Result<UniqueFd> connect_unix(const std::string& path, SocketKind kind);

// A non-blocking listening socket at `path` with permission bits `mode`. A socket that nobody serves any more
// is replaced; one that is served is a `conflict`; anything else at that path is left alone and refused. The
// name appears by rename, so clients never see it without its mode or before it listens.
Result<UniqueFd> listen_unix(const std::string& path, SocketKind kind, mode_t mode, int backlog = 128);

// A pair of connected blocking sockets.
Result<std::pair<UniqueFd, UniqueFd>> unix_socket_pair(SocketKind kind);

inline constexpr size_t kMessageFdsMax = 16;

// Sends `data` (at least one byte) with the borrowed `file_descriptors` (at most kMessageFdsMax) as one
// message. Never raises SIGPIPE. `unavailable` when the other end is gone, `over_limit` when a non-blocking
// socket is full (nothing is sent then). On a stream all of `data` is sent, waiting if it must.
Result<void> send_message(int socket, std::span<const std::byte> data,
                          std::span<const int> file_descriptors = {});

struct ReceivedMessage {
  size_t size = 0;  // bytes put in the buffer; 0 is the end: the other side closed
  std::vector<UniqueFd> file_descriptors;
};

// One message (kPacket) or what is there (kStream). A message or a set of descriptors that does not fit is
// `too_large` (all descriptors closed). `timed_out` when a non-blocking socket has nothing.
Result<ReceivedMessage> receive_message(int socket, std::span<std::byte> buffer);

// Waits until `socket` is readable; `timed_out` after `timeout`.
Result<void> wait_readable(int socket, Duration timeout);

}  // namespace tranche
