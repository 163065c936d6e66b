#include "launcher/launcher.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "launcher/launcher_link.h"

namespace tranche::launcher {

using isolation::call_failed;
using isolation::FileDescriptor;
using isolation::Outcome;
using wire::LauncherKind;

namespace {

constexpr const char* kDaemonSocket = "launcher.sock";
constexpr int kBacklog = 4096;

bool read_peer(int socket, ucred& peer) {
  socklen_t size = sizeof peer;
  return ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0;
}

FileDescriptor accept_from(const FileDescriptor& listener) {
  return FileDescriptor(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
}

}  // namespace

Launcher::Launcher(const LauncherHost& host)
    : host_(host),
      users_(host.options.first_ordinary_uid),
      tasks_(loop_, host, [this](std::string_view bytes) { to_daemon(bytes); }),
      helpers_(loop_, host, [this](Packet& packet) {
        to_daemon(std::string_view(packet.bytes.data(), packet.bytes.size()), std::move(packet.files[0]));
      }) {}

// Bound under another name, given its owner, and renamed when it listens: whoever sees the name can connect.
Outcome<FileDescriptor> Launcher::listen_at(const char* name, uint32_t uid, uint32_t gid) {
  const std::string temporary = "." + std::string(name) + ".new";
  const int folder = host_.run_folder.get();
  FileDescriptor socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return call_failed("making a socket");
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d/%s", folder, temporary.c_str());
  ::unlinkat(folder, temporary.c_str(), 0);
  const mode_t former = ::umask(0177);
  const int bound = ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
  ::umask(former);
  if (bound != 0) return call_failed(std::string("binding ") + name);
  if (::fchownat(folder, temporary.c_str(), uid, gid, AT_SYMLINK_NOFOLLOW) != 0 ||
      ::listen(socket.get(), kBacklog) != 0 || ::renameat(folder, temporary.c_str(), folder, name) != 0) {
    return call_failed(std::string("listening on ") + name);
  }
  return socket;
}

Outcome<void> Launcher::open() {
  ::prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
  watch_signals();
  TRY_ASSIGN(shepherd_listener_, listen_at(kShepherdSocket, ::geteuid(), ::getegid()));
  loop_.watch(shepherd_listener_.get(), EPOLLIN, [this](uint32_t) { accept_shepherd(); });
  tasks_.restore();
  TRY_ASSIGN(daemon_listener_, listen_at(kDaemonSocket, host_.daemon_uid, host_.daemon_gid));
  loop_.watch(daemon_listener_.get(), EPOLLIN, [this](uint32_t) { accept_daemon(); });
  return {};
}

void Launcher::run() {
  while (!ended_) loop_.run_once();
}

void Launcher::watch_signals() {
  signals_ = make_signal_file({SIGCHLD, SIGTERM, SIGINT, SIGHUP, SIGPIPE});
  loop_.watch(signals_.get(), EPOLLIN, [this](uint32_t) {
    const uint64_t signals = drain_signal_file(signals_.get());
    reap();
    ended_ = (signals & (signal_bit(SIGTERM) | signal_bit(SIGINT))) != 0;
  });
}

void Launcher::reap() {
  int status = 0;
  int pid = 0;
  while ((pid = ::waitpid(-1, &status, WNOHANG)) > 0) {
    exec_sessions_.erase(pid);
    tasks_.on_reaped(pid, status);
  }
}

void Launcher::accept_daemon() {
  FileDescriptor socket = accept_from(daemon_listener_);
  ucred peer{};
  if (!socket || !read_peer(socket.get(), peer)) return;
  if (peer.uid != 0 && peer.uid != host_.daemon_uid) return;
  tasks_.drop_pending();
  daemon_ = std::make_unique<PacketConnection>(
      loop_, std::move(socket), [this](Packet& packet) { on_request(packet); }, [this] { daemon_.reset(); });
}

void Launcher::accept_shepherd() {
  FileDescriptor socket = accept_from(shepherd_listener_);
  ucred peer{};
  if (!socket || !read_peer(socket.get(), peer) || peer.uid != ::geteuid()) return;
  const uint64_t serial = next_newcomer_++;
  const int duplicate = ::fcntl(socket.get(), F_DUPFD_CLOEXEC, 3);
  auto kept = std::make_shared<FileDescriptor>(duplicate);
  newcomers_[serial] = std::make_unique<PacketConnection>(
      loop_, std::move(socket),
      [this, serial, peer, kept](Packet& packet) {
        wire::ShepherdHello hello{};
        const bool valid =
            packet.kind() == LauncherKind::shepherd_hello && packet.decode(hello, sizeof packet.header);
        const auto connection = std::move(newcomers_[serial]);
        newcomers_.erase(serial);
        if (valid) tasks_.on_hello(hello.record, peer.pid, std::move(*kept));
      },
      [this, serial] { newcomers_.erase(serial); });
}

void Launcher::to_daemon(std::string_view bytes, FileDescriptor file) {
  if (daemon_ != nullptr) daemon_->send_bytes(bytes, std::move(file));
}

void Launcher::reply(uint64_t id, int status, std::string_view text, uint32_t entries) {
  auto message = make_message<wire::Reply>(LauncherKind::reply, id);
  message.status = status;
  message.entries = entries;
  set_text(message.text, text);
  if (daemon_ != nullptr) daemon_->send(message);
}

}  // namespace tranche::launcher
