// Packets over SEQPACKET sockets: what the arbiter needs of the kernel, and nothing that waits.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <utility>

namespace tranche::arbiter {

// Owns one descriptor; -1 is none.
class OwnedFile {
 public:
  OwnedFile() = default;
  explicit OwnedFile(int value) : value_(value) {}
  OwnedFile(OwnedFile&& other) noexcept : value_(std::exchange(other.value_, -1)) {}
  OwnedFile& operator=(OwnedFile&& other) noexcept;
  ~OwnedFile();

  int get() const { return value_; }
  explicit operator bool() const { return value_ >= 0; }

 private:
  int value_ = -1;
};

inline constexpr size_t kMaxPassedFiles = 2;

struct ReceivedPacket {
  ssize_t size = -1;  // 0: the peer is gone; -1: nothing there; -2: not a packet of ours
  char bytes[8192];
  OwnedFile files[kMaxPassedFiles];
};

// Reads one packet, if there is one.
void receive(int socket, ReceivedPacket& packet);
// False when the peer does not take it: it has left more answers unread than its socket holds, or is gone.
bool send_packet(int socket, const void* bytes, size_t size, int file = -1);

struct Peer {
  int32_t pid = 0;
  uint32_t uid = 0;
  OwnedFile process;  // pidfd; empty when the process is gone
};
Peer peer_of(int socket);

OwnedFile open_process(int32_t pid);
// Field 22 of /proc/PID/stat; 0 if there is no such process.
uint64_t start_ticks_of(int32_t pid);

}  // namespace tranche::arbiter
