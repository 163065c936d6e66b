#include "launcher/arbiter_link.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "wire/guard.h"

namespace tranche::launcher {

using isolation::call_failed;
using isolation::FileDescriptor;
using isolation::Outcome;

ArbiterLink::ArbiterLink(EventLoop& loop, std::string run_folder)
    : loop_(loop), run_folder_(std::move(run_folder)), retry_(loop, [this] { connect(); }) {}

Outcome<void> ArbiterLink::make_files(const wire::StartRequest& request, bool held_by_driver) {
  registration_.header = {sizeof registration_, wire::kArbiterProtocolVersion,
                          static_cast<uint16_t>(wire::ArbiterKind::register_task), 1};
  registration_.key = request.key;
  registration_.uid = request.uid;
  change(request);
  registration_.held_by_driver = held_by_driver ? 1 : 0;
  listener_ = FileDescriptor(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  page_ = FileDescriptor(::memfd_create("tranche-leases", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!listener_ || !page_ || ::ftruncate(page_.get(), TRANCHE_GUARD_PAGE_BYTES) != 0 ||
      ::fcntl(page_.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return call_failed("making the task's socket to the arbiter");
  }
  return {};
}

void ArbiterLink::change(const wire::StartRequest& request) {
  registration_.gpu_count = request.share_count;
  std::copy(std::begin(request.shares), std::end(request.shares), std::begin(registration_.gpus));
  std::copy(std::begin(request.guarantee_bytes), std::end(request.guarantee_bytes),
            std::begin(registration_.guarantee_bytes));
  if (limits_ && !rewrite_limits())
    ::dprintf(STDERR_FILENO, "tranche-shepherd: the task's limits cannot be written\n");
}

Outcome<void> ArbiterLink::write_limits(const std::string& path) {
  if (!listener_) return {};
  constexpr int kFlags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
  limits_ = FileDescriptor(::open(path.c_str(), kFlags, 0444));
  if (!limits_ || ::fchmod(limits_.get(), 0444) != 0 || !rewrite_limits())
    return call_failed("writing the task's limits");
  return {};
}

bool ArbiterLink::rewrite_limits() {
  std::array<tranche_guard_gpu, wire::kMaxGpusPerTask> gpus{};
  for (uint32_t i = 0; i < registration_.gpu_count; ++i) {
    std::memcpy(gpus[i].uuid, registration_.gpus[i].uuid, sizeof gpus[i].uuid);
    gpus[i].limit_bytes = registration_.gpus[i].limit_bytes;
  }
  const size_t size = registration_.gpu_count * sizeof gpus[0];
  return ::pwrite(limits_.get(), gpus.data(), size, 0) == static_cast<ssize_t>(size);
}

void ArbiterLink::start() {
  if (listener_) connect();
}

void ArbiterLink::connect() {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::snprintf(address.sun_path, sizeof address.sun_path, "%s/arbiter.sock", run_folder_.c_str());
  FileDescriptor socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (socket && ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) {
    connection_ = std::move(socket);
    if (send_registration()) {
      pause_ns_ = kFirstPauseNs;
      loop_.watch(connection_.get(), EPOLLIN, [this](uint32_t) { on_events(); });
      return;
    }
    connection_.close();
  }
  pause_ns_ = std::min(pause_ns_ * 2, kLongestPauseNs);
  retry_.arm(boot_time_ns() + pause_ns_);
}

bool ArbiterLink::send_registration() {
  const int files[2] = {listener_.get(), page_.get()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof files)] = {};
  iovec part{&registration_, sizeof registration_};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof files);
  std::memcpy(CMSG_DATA(header), files, sizeof files);
  return ::sendmsg(connection_.get(), &message, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof registration_);
}

void ArbiterLink::on_events() {
  wire::ArbiterReply reply{};
  const ssize_t count = ::recv(connection_.get(), &reply, sizeof reply, MSG_DONTWAIT);
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (count <= 0) return lose();
  if (reply.status != 0) {
    ::dprintf(STDERR_FILENO, "tranche-shepherd: the arbiter refuses job %llu: %s\n",
              static_cast<unsigned long long>(registration_.key.job), std::strerror(reply.status));
  }
}

void ArbiterLink::lose() {
  loop_.forget(connection_.get());
  connection_.close();
  pause_ns_ = kFirstPauseNs;
  retry_.arm(boot_time_ns() + pause_ns_);
}

void ArbiterLink::forget() {
  if (!connection_) return;
  wire::ForgetTask message{};
  message.header = {sizeof message, wire::kArbiterProtocolVersion,
                    static_cast<uint16_t>(wire::ArbiterKind::forget_task), 2};
  message.key = registration_.key;
  (void)!::send(connection_.get(), &message, sizeof message, MSG_NOSIGNAL);
}

}  // namespace tranche::launcher
