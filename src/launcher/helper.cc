#include "launcher/helper.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "isolation/process_state.h"
#include "isolation/user_file.h"

namespace tranche::launcher {

using isolation::failed;
using isolation::FileDescriptor;
using isolation::Outcome;
using wire::LauncherKind;

namespace {

void send_reply(int socket, uint64_t id, const Outcome<FileDescriptor>& outcome) {
  auto reply = make_message<wire::Reply>(LauncherKind::reply, id);
  if (!outcome) {
    reply.status = outcome.error().error;
    set_text(reply.text, outcome.error().text);
  }
  (void)send_packet(socket, std::string_view(reinterpret_cast<const char*>(&reply), sizeof reply),
                    outcome ? outcome->get() : -1);
}

Outcome<FileDescriptor> open_for(const wire::OpenAsUserRequest& request,
                                 const isolation::Identity& identity) {
  TRY(isolation::become(identity, identity.primary_gid));
  ::umask(0077);
  if (request.mode == static_cast<uint32_t>(wire::OpenMode::write_append)) {
    return isolation::open_log(request.path, identity.uid);
  }
  return isolation::open_input(request.path, false);
}

}  // namespace

HelperSet::HelperSet(EventLoop& loop, const LauncherHost& host, PassOn pass_on)
    : loop_(loop), host_(host), pass_on_(std::move(pass_on)) {}

Outcome<void> HelperSet::open_as_user(const wire::OpenAsUserRequest& request,
                                      const isolation::Identity& identity) {
  return run(request.header.id,
             [&](int socket) { send_reply(socket, request.header.id, open_for(request, identity)); });
}

Outcome<void> HelperSet::scan(const wire::ScanRequest& request) {
  return run(request.header.id, [&](int socket) { scan_processes(host_, request, socket); });
}

Outcome<void> HelperSet::run(uint64_t id, const std::function<void(int socket)>& work) {
  if (helpers_.size() >= kMaxHelpers)
    return failed(EAGAIN, "too many helpers are at work; try again in a moment");
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    return isolation::call_failed("helper's socket");
  FileDescriptor own(ends[0]);
  FileDescriptor other(ends[1]);
  const pid_t pid = ::fork();
  if (pid < 0) return isolation::call_failed("starting a helper");
  if (pid == 0) {
    isolation::unblock_signals();
    ::prctl(PR_SET_NAME, "tranche-helper");
    int kept[] = {other.get()};
    isolation::close_all_but(kept, 1);
    ::alarm(kLongestSeconds);
    work(other.get());
    ::_exit(0);
  }
  other.close();
  const uint64_t serial = next_serial_++;
  Helper& helper = helpers_[serial];
  helper.id = id;
  helper.connection = std::make_unique<PacketConnection>(
      loop_, std::move(own),
      [this, serial](Packet& packet) {
        const auto found = helpers_.find(serial);
        if (found == helpers_.end() || packet.header.id != found->second.id) return;
        if (packet.kind() == LauncherKind::reply) found->second.replied = true;
        pass_on_(packet);
      },
      [this, serial] { on_closed(serial); });
  return {};
}

void HelperSet::on_closed(uint64_t serial) {
  const auto found = helpers_.find(serial);
  if (found == helpers_.end()) return;
  const Helper helper = std::move(found->second);
  helpers_.erase(found);
  if (helper.replied) return;
  Packet packet;
  auto reply = make_message<wire::Reply>(LauncherKind::reply, helper.id);
  reply.status = ETIMEDOUT;
  set_text(reply.text, "no answer within 30 s; is a file server down?");
  packet.header = reply.header;
  packet.bytes.assign(reinterpret_cast<const char*>(&reply),
                      reinterpret_cast<const char*>(&reply) + sizeof reply);
  pass_on_(packet);
}

}  // namespace tranche::launcher
