#include "linux/unix_socket.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstring>

#include "base/assert.h"
#include "linux/system_error.h"

namespace tranche {
namespace {

constexpr size_t kGroupsMax = 65536;  // NGROUPS_MAX of Linux

int type_of(SocketKind kind) { return kind == SocketKind::kStream ? SOCK_STREAM : SOCK_SEQPACKET; }

Result<sockaddr_un> address_of(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof address.sun_path || path.find('\0') != std::string::npos) {
    return fail(ErrorCode::invalid_argument,
                "the socket path '" + path + "' must have 1 to 107 bytes: choose a shorter folder");
  }
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  return address;
}

const sockaddr* generic(const sockaddr_un& address) { return reinterpret_cast<const sockaddr*>(&address); }

Result<UniqueFd> connect_with(const std::string& path, int type) {
  TRY_ASSIGN(const sockaddr_un address, address_of(path));
  UniqueFd socket(::socket(AF_UNIX, type | SOCK_CLOEXEC, 0));
  if (!socket.is_open()) return fail(system_error("making a socket"));
  int status = 0;
  do {
    status = ::connect(socket.get(), generic(address), sizeof address);
  } while (status != 0 && errno == EINTR);
  if (status == 0) return socket;
  if (errno == ENOENT || errno == ECONNREFUSED) {
    return fail(ErrorCode::unavailable, "nobody serves " + path);
  }
  return fail(system_error("connecting to " + path));
}

// Succeeds when `path` is free or holds a socket that nobody serves.
Result<void> check_replaceable(const std::string& path, SocketKind kind) {
  struct stat status = {};
  if (::lstat(path.c_str(), &status) != 0) {
    if (errno == ENOENT) return {};
    return fail(system_error("looking at " + path));
  }
  if (!S_ISSOCK(status.st_mode)) {
    return fail(ErrorCode::conflict, path + " exists and is not a socket: remove it or choose another path");
  }
  // Non-blocking: one that is served but busy (EAGAIN) must not hold us up.
  auto served = connect_with(path, type_of(kind) | SOCK_NONBLOCK);
  if (served || served.error().code() == ErrorCode::over_limit)
    return fail(ErrorCode::conflict, path + " is served by another process: stop that one first");
  if (served.error().code() != ErrorCode::unavailable) return fail(std::move(served).error());
  return {};
}

Result<void> bind_and_listen(int socket, const std::string& path, mode_t mode, int backlog) {
  TRY_ASSIGN(const sockaddr_un address, address_of(path));
  if (::bind(socket, generic(address), sizeof address) != 0) return fail(system_error("binding " + path));
  if (::chmod(path.c_str(), mode) != 0) return fail(system_error("setting the mode of " + path));
  if (::listen(socket, backlog) != 0) return fail(system_error("listening at " + path));
  return {};
}

void take_descriptors(const msghdr& message, std::vector<UniqueFd>& taken) {
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr;
       part = CMSG_NXTHDR(const_cast<msghdr*>(&message), part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int descriptor = -1;
      std::memcpy(&descriptor, CMSG_DATA(part) + i * sizeof(int), sizeof(int));
      taken.emplace_back(descriptor);
    }
  }
}

Result<void> wait_writable(int socket) {
  pollfd entry = {socket, POLLOUT, 0};
  while (::poll(&entry, 1, -1) < 0) {
    if (errno != EINTR) return fail(system_error("waiting for a socket"));
  }
  return {};
}

}  // namespace

Result<PeerCredentials> peer_credentials(int socket) {
  ucred credentials = {};
  socklen_t size = sizeof credentials;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) {
    return fail(system_error("asking who is at the other end of a socket"));
  }
  PeerCredentials peer{credentials.pid, credentials.uid, credentials.gid, std::vector<gid_t>(32)};
  while (true) {
    auto bytes = static_cast<socklen_t>(peer.groups.size() * sizeof(gid_t));
    const int status = ::getsockopt(socket, SOL_SOCKET, SO_PEERGROUPS, peer.groups.data(), &bytes);
    // ERANGE tells the size that is needed.
    if (status != 0 && (errno != ERANGE || bytes / sizeof(gid_t) > kGroupsMax)) {
      return fail(system_error("asking for the groups at the other end of a socket"));
    }
    peer.groups.resize(bytes / sizeof(gid_t));
    if (status == 0) return peer;
  }
}

Result<UniqueFd> connect_unix(const std::string& path, SocketKind kind) {
  return connect_with(path, type_of(kind));
}
Result<UniqueFd> listen_unix(const std::string& path, SocketKind kind, mode_t mode, int backlog) {
  TRY(check_replaceable(path, kind));
  UniqueFd socket(::socket(AF_UNIX, type_of(kind) | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.is_open()) return fail(system_error("making a socket"));
  const std::string temporary = path + "." + std::to_string(::getpid());
  ::unlink(temporary.c_str());  // of an earlier process with this number
  auto listening = bind_and_listen(socket.get(), temporary, mode, backlog);
  if (listening && ::rename(temporary.c_str(), path.c_str()) != 0) {
    listening = fail(system_error("naming the socket " + path));
  }
  if (!listening) {
    ::unlink(temporary.c_str());
    return fail(std::move(listening).error());
  }
  return socket;
}

Result<std::pair<UniqueFd, UniqueFd>> unix_socket_pair(SocketKind kind) {
  int ends[2];
  if (::socketpair(AF_UNIX, type_of(kind) | SOCK_CLOEXEC, 0, ends) != 0) {
    return fail(system_error("making a pair of sockets"));
  }
  return std::pair(UniqueFd(ends[0]), UniqueFd(ends[1]));
}

Result<void> send_message(int socket, std::span<const std::byte> data,
                          std::span<const int> file_descriptors) {
  TRANCHE_ASSERT(!data.empty() && file_descriptors.size() <= kMessageFdsMax);
  alignas(cmsghdr) char control[CMSG_SPACE(kMessageFdsMax * sizeof(int))] = {};
  bool is_first = true;
  while (!data.empty()) {
    iovec part = {const_cast<std::byte*>(data.data()), data.size()};
    msghdr message = {};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    if (is_first && !file_descriptors.empty()) {
      message.msg_control = control;
      message.msg_controllen = CMSG_SPACE(file_descriptors.size_bytes());
      cmsghdr* header = CMSG_FIRSTHDR(&message);
      header->cmsg_level = SOL_SOCKET;
      header->cmsg_type = SCM_RIGHTS;
      header->cmsg_len = CMSG_LEN(file_descriptors.size_bytes());
      std::memcpy(CMSG_DATA(header), file_descriptors.data(), file_descriptors.size_bytes());
    }
    const ssize_t size = ::sendmsg(socket, &message, MSG_NOSIGNAL);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0 && errno == EAGAIN && !is_first) {  // half a message must not be left on a stream
      TRY(wait_writable(socket));
      continue;
    }
    if (size < 0) return fail(system_error("sending a message"));
    data = data.subspan(static_cast<size_t>(size));
    is_first = false;
  }
  return {};
}

Result<ReceivedMessage> receive_message(int socket, std::span<std::byte> buffer) {
  TRANCHE_ASSERT(!buffer.empty());
  alignas(cmsghdr) char control[CMSG_SPACE(kMessageFdsMax * sizeof(int))];
  iovec part = {buffer.data(), buffer.size()};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  ssize_t size = 0;
  do {
    size = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  } while (size < 0 && errno == EINTR);
  if (size < 0 && errno == EAGAIN) return fail(ErrorCode::timed_out, "no message is there yet");
  if (size < 0 && errno == ECONNRESET) return ReceivedMessage{};
  if (size < 0) return fail(system_error("receiving a message"));
  ReceivedMessage received;
  received.size = static_cast<size_t>(size);
  take_descriptors(message, received.file_descriptors);
  if ((message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0) {
    return fail(ErrorCode::too_large, "a message or its descriptors do not fit");
  }
  return received;
}

Result<void> wait_readable(int socket, Duration timeout) {
  const int64_t milliseconds = (timeout.count() + kMillisecond.count() - 1) / kMillisecond.count();
  pollfd entry = {socket, POLLIN, 0};
  int count = 0;
  do {
    count = ::poll(&entry, 1, static_cast<int>(milliseconds < INT_MAX ? milliseconds : INT_MAX));
  } while (count < 0 && errno == EINTR);
  if (count < 0) return fail(system_error("waiting for a socket"));
  if (count == 0)
    return fail(ErrorCode::timed_out, "no answer within " + std::to_string(milliseconds) + " ms");
  return {};
}

}  // namespace tranche
