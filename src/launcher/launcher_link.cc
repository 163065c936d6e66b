#include "launcher/launcher_link.h"

#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cstdio>

namespace tranche::launcher {

using isolation::FileDescriptor;

LauncherLink::LauncherLink(EventLoop& loop, int run_folder, const wire::TaskRecord& record,
                           FileDescriptor socket, PacketConnection::OnPacket on_packet)
    : loop_(loop),
      run_folder_(run_folder),
      record_(record),
      on_packet_(std::move(on_packet)),
      retry_(loop, [this] { try_connect(); }) {
  adopt(std::move(socket));
}

void LauncherLink::adopt(FileDescriptor socket) {
  connection_ =
      std::make_unique<PacketConnection>(loop_, std::move(socket), on_packet_, [this] { on_closed(); });
}

void LauncherLink::on_closed() {
  connection_.reset();
  pause_ns_ = kFirstPauseNs;
  retry_.arm(boot_time_ns() + pause_ns_);
}

void LauncherLink::try_connect() {
  if (connection_ != nullptr) return;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d/%s", run_folder_,
                kShepherdSocket);
  FileDescriptor socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (socket && ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) {
    adopt(std::move(socket));
    auto hello = make_message<wire::ShepherdHello>(wire::LauncherKind::shepherd_hello);
    hello.record = record_;
    connection_->send(hello);
    return;
  }
  pause_ns_ = std::min(pause_ns_ * 2, kLongestPauseNs);
  retry_.arm(boot_time_ns() + pause_ns_);
}

}  // namespace tranche::launcher
