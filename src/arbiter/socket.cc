#include "arbiter/socket.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace tranche::arbiter {
namespace {

constexpr int kPeerPidFile = 77;  // SO_PEERPIDFD, Linux 6.5

}  // namespace

OwnedFile& OwnedFile::operator=(OwnedFile&& other) noexcept {
  if (this != &other) {
    if (value_ >= 0) ::close(value_);
    value_ = std::exchange(other.value_, -1);
  }
  return *this;
}

OwnedFile::~OwnedFile() {
  if (value_ >= 0) ::close(value_);
}

void receive(int socket, ReceivedPacket& packet) {
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kMaxPassedFiles)];
  iovec part{packet.bytes, sizeof packet.bytes};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  packet.size = ::recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  for (OwnedFile& file : packet.files) file = OwnedFile();
  if (packet.size < 0) {
    packet.size = errno == EAGAIN || errno == EINTR ? -1 : 0;
    return;
  }
  size_t count = 0;
  for (cmsghdr* part_of = CMSG_FIRSTHDR(&message); part_of != nullptr;
       part_of = CMSG_NXTHDR(&message, part_of)) {
    if (part_of->cmsg_level != SOL_SOCKET || part_of->cmsg_type != SCM_RIGHTS) continue;
    const size_t files = (part_of->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < files; ++i) {
      int file = -1;
      std::memcpy(&file, CMSG_DATA(part_of) + i * sizeof(int), sizeof file);
      OwnedFile owned(file);
      if (count < kMaxPassedFiles) packet.files[count++] = std::move(owned);
    }
  }
  if ((message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0) packet.size = -2;
}

bool send_packet(int socket, const void* bytes, size_t size, int file) {
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  iovec part{const_cast<void*>(bytes), size};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (file >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &file, sizeof file);
  }
  return ::sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL) == static_cast<ssize_t>(size);
}

OwnedFile open_process(int32_t pid) { return OwnedFile(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0))); }

uint64_t start_ticks_of(int32_t pid) {
  char path[64];
  std::snprintf(path, sizeof path, "/proc/%d/stat", pid);
  const OwnedFile file(::open(path, O_RDONLY | O_CLOEXEC));
  char text[1024];
  const ssize_t length = file ? ::read(file.get(), text, sizeof text - 1) : -1;
  if (length <= 0) return 0;
  text[length] = '\0';
  const char* field = std::strrchr(text, ')');  // a command's name may hold blanks and brackets
  for (int number = 2; field != nullptr && number < 22; ++number) field = std::strchr(field + 1, ' ');
  return field == nullptr ? 0 : std::strtoull(field, nullptr, 10);
}

Peer peer_of(int socket) {
  Peer peer;
  ucred credentials{};
  socklen_t size = sizeof credentials;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) return peer;
  peer.pid = credentials.pid;
  peer.uid = credentials.uid;
  int process = -1;
  size = sizeof process;
  if (::getsockopt(socket, SOL_SOCKET, kPeerPidFile, &process, &size) == 0) {
    ::fcntl(process, F_SETFD, FD_CLOEXEC);
    peer.process = OwnedFile(process);
  } else if (errno == ENOPROTOOPT) {
    peer.process = open_process(peer.pid);
  }
  return peer;
}

}  // namespace tranche::arbiter
