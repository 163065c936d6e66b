// Packets of wire/launcher.h over SEQPACKET sockets: bounded receiving with passed descriptors, and sending
// that never blocks.
#pragma once

#include <cstring>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "isolation/file.h"
#include "launcher/event_loop.h"
#include "wire/launcher.h"

namespace tranche::launcher {

inline constexpr size_t kMaxPassedFiles = 2;

// One received packet. Its header has been checked: size is that of the packet.
struct Packet {
  wire::MessageHeader header{};
  std::vector<char> bytes;  // the whole packet
  isolation::FileDescriptor files[kMaxPassedFiles];

  wire::LauncherKind kind() const { return static_cast<wire::LauncherKind>(header.kind); }

  // The struct in this packet, missing tail zeroed; false if the packet is shorter than the first version of
  // it.
  template <class Message>
  bool decode(Message& message, size_t least = sizeof(Message)) const {
    if (bytes.size() < least) return false;
    message = Message{};
    std::memcpy(&message, bytes.data(), std::min(bytes.size(), sizeof message));
    return true;
  }
};

// A struct with its header filled in.
template <class Message>
Message make_message(wire::LauncherKind kind, uint64_t id = 0) {
  Message message{};
  message.header = {sizeof(Message), wire::kLauncherProtocolVersion, static_cast<uint16_t>(kind), id};
  return message;
}

// Copies as much of `text` as fits, on one line and NUL-terminated.
void set_text(char (&target)[wire::kMaxText], std::string_view text);

enum class Sent { done, later, lost };
// One packet, without blocking.
Sent send_packet(int socket, std::string_view bytes, int file);

// Owns one connection. Packets that the peer does not take are queued up to a bound; a peer that exceeds it,
// sends what is no packet, or hangs up has lost the connection: `closed` is called once, from the loop.
class PacketConnection {
 public:
  using OnPacket = std::function<void(Packet&)>;
  using OnClosed = std::function<void()>;

  PacketConnection(EventLoop& loop, isolation::FileDescriptor socket, OnPacket on_packet, OnClosed on_closed);
  ~PacketConnection();
  PacketConnection(const PacketConnection&) = delete;
  PacketConnection& operator=(const PacketConnection&) = delete;

  template <class Message>
  void send(const Message& message, isolation::FileDescriptor file = {}) {
    static_assert(sizeof(Message) <= wire::kMaxLauncherMessage);
    send_bytes(std::string_view(reinterpret_cast<const char*>(&message), sizeof message), std::move(file));
  }
  // An already encoded packet, its trailing newer fields included.
  void send_bytes(std::string_view bytes, isolation::FileDescriptor file = {});
  bool is_drained() const { return queue_.empty(); }

 private:
  struct Queued {
    std::string bytes;
    isolation::FileDescriptor file;
  };

  static constexpr size_t kMaxQueued = 65536;  // packets: every task of a full launcher in one List

  bool receive(Packet& packet);
  void on_events(uint32_t events);
  void lose();

  EventLoop& loop_;
  isolation::FileDescriptor socket_;
  OnPacket on_packet_;
  OnClosed on_closed_;
  std::deque<Queued> queue_;
  bool lost_ = false;
};

}  // namespace tranche::launcher
