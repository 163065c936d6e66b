// A shepherd's way to the launcher: the socket it was born with, and when the launcher has died, a connection
// to the next one, sought with a growing pause for as long as the shepherd lives.
#pragma once

#include <functional>
#include <memory>

#include "launcher/packet.h"

namespace tranche::launcher {

class LauncherLink {
 public:
  // `record` is borrowed; it is what a new launcher is told first.
  LauncherLink(EventLoop& loop, int run_folder, const wire::TaskRecord& record,
               isolation::FileDescriptor socket, PacketConnection::OnPacket on_packet);

  // Dropped when no launcher is there: the record file and the next hello hold what events say.
  template <class Message>
  void send(const Message& message) {
    if (connection_ != nullptr) connection_->send(message);
  }
  bool is_connected() const { return connection_ != nullptr; }
  // Everything sent has been handed to the kernel, or there is nobody to hand it to.
  bool is_drained() const { return connection_ == nullptr || connection_->is_drained(); }
  // One attempt now. For a shepherd that is about to end: a launcher that accepted must be told.
  void try_connect();

 private:
  static constexpr uint64_t kFirstPauseNs = 20'000'000;
  static constexpr uint64_t kLongestPauseNs = 1'000'000'000;

  void adopt(isolation::FileDescriptor socket);
  void on_closed();

  EventLoop& loop_;
  int run_folder_;
  const wire::TaskRecord& record_;
  PacketConnection::OnPacket on_packet_;
  std::unique_ptr<PacketConnection> connection_;
  uint64_t pause_ns_ = kFirstPauseNs;
  BootTimer retry_;
};

inline constexpr const char* kShepherdSocket = "shepherd.sock";

}  // namespace tranche::launcher
