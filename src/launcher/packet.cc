#include "launcher/packet.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "base/failpoint.h"

namespace tranche::launcher {

using isolation::FileDescriptor;

void set_text(char (&target)[wire::kMaxText], std::string_view text) {
  const size_t count = std::min(text.size(), sizeof target - 1);
  if (count > 0) std::memcpy(target, text.data(), count);
  std::memset(target + count, 0, sizeof target - count);
  for (size_t i = 0; i < count; ++i) {
    if (target[i] == '\n' || target[i] == '\r' || target[i] == '\0') target[i] = ' ';
  }
}

PacketConnection::PacketConnection(EventLoop& loop, FileDescriptor socket, OnPacket on_packet,
                                   OnClosed on_closed)
    : loop_(loop),
      socket_(std::move(socket)),
      on_packet_(std::move(on_packet)),
      on_closed_(std::move(on_closed)) {
  loop_.watch(socket_.get(), EPOLLIN, [this](uint32_t events) { on_events(events); });
}

PacketConnection::~PacketConnection() {
  if (socket_) loop_.forget(socket_.get());
}

Sent send_packet(int socket, std::string_view bytes, int file) {
  iovec part{const_cast<char*>(bytes.data()), bytes.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
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
  while (::sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
    if (errno == EINTR) continue;
    return errno == EAGAIN || errno == ENOBUFS ? Sent::later : Sent::lost;
  }
  return Sent::done;
}

void PacketConnection::send_bytes(std::string_view bytes, FileDescriptor file) {
  if (lost_) return;
  failpoint("message.before_sending");
  if (queue_.empty()) {
    const Sent sent = send_packet(socket_.get(), bytes, file.get());
    failpoint("message.sent");
    if (sent == Sent::done) return;
    if (sent == Sent::lost) return lose();
  }
  if (queue_.size() >= kMaxQueued) return lose();
  queue_.push_back({std::string(bytes), std::move(file)});
  loop_.change(socket_.get(), EPOLLIN | EPOLLOUT);
}

// The owner hears of it from the loop, never from inside a call of its own: hang up and let EPOLLHUP tell.
void PacketConnection::lose() {
  lost_ = true;
  queue_.clear();
  ::shutdown(socket_.get(), SHUT_RDWR);
  loop_.change(socket_.get(), EPOLLIN);
}

bool PacketConnection::receive(Packet& packet) {
  char buffer[wire::kMaxLauncherMessage];
  iovec part{buffer, sizeof buffer};
  alignas(cmsghdr) char control[CMSG_SPACE(kMaxPassedFiles * sizeof(int))];
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  const ssize_t count = ::recvmsg(socket_.get(), &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  if (count < 0) return errno == EAGAIN || errno == EINTR;
  size_t files = 0;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const size_t passed = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < passed; ++i) {
      int value = -1;
      std::memcpy(&value, CMSG_DATA(header) + i * sizeof(int), sizeof value);
      FileDescriptor owned(value);
      if (files < kMaxPassedFiles) packet.files[files++] = std::move(owned);
    }
  }
  if ((message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0) return false;
  if (static_cast<size_t>(count) < sizeof packet.header) return false;
  std::memcpy(&packet.header, buffer, sizeof packet.header);
  if (packet.header.size != static_cast<size_t>(count)) return false;
  packet.bytes.assign(buffer, buffer + count);
  return true;
}

void PacketConnection::on_events(uint32_t events) {
  if ((events & EPOLLOUT) != 0) {
    while (!queue_.empty()) {
      const Sent sent = send_packet(socket_.get(), queue_.front().bytes, queue_.front().file.get());
      if (sent == Sent::lost) return lose();
      if (sent == Sent::later) break;
      queue_.pop_front();
    }
    if (queue_.empty()) loop_.change(socket_.get(), EPOLLIN);
  }
  if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) == 0) return;
  Packet packet;
  if (!lost_ && receive(packet)) {
    if (packet.bytes.empty()) return;
    failpoint("message.received");
    on_packet_(packet);
    return;
  }
  lost_ = true;
  loop_.forget(socket_.get());
  socket_.close();
  // The owner may destroy this object, and with it the function.
  const OnClosed closed = std::move(on_closed_);
  closed();
}

}  // namespace tranche::launcher
