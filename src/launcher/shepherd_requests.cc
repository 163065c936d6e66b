// The shepherd's second part: what launcher and daemon ask of it.
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/failpoint.h"
#include "launcher/driver_limits.h"
#include "launcher/shepherd.h"

namespace tranche::launcher {

using wire::LauncherKind;
using wire::TaskState;

void Shepherd::reply(uint64_t id, int status, std::string_view text) {
  auto message = make_message<wire::Reply>(LauncherKind::reply, id);
  message.status = status;
  set_text(message.text, text);
  link_.send(message);
}

void Shepherd::on_packet(Packet& packet) {
  const uint64_t id = packet.header.id;
  switch (packet.kind()) {
    case LauncherKind::go:
      return on_go(id);
    case LauncherKind::signal:
      return on_signal(packet);
    case LauncherKind::kill:
      return on_kill(packet);
    case LauncherKind::freeze:
      return on_freeze(id, true);
    case LauncherKind::thaw:
      return on_freeze(id, false);
    case LauncherKind::set_limits:
      return on_set_limits(packet);
    case LauncherKind::set_gpu_memory:
      return on_set_gpu_memory(packet);
    case LauncherKind::attach:
      return on_attach(packet);
    case LauncherKind::start:
    case LauncherKind::open_as_user:
    case LauncherKind::scan:
    case LauncherKind::list:
    case LauncherKind::forget:
    case LauncherKind::exec:
    case LauncherKind::reply:
    case LauncherKind::list_entry:
    case LauncherKind::scan_entry:
    case LauncherKind::prepared:
    case LauncherKind::started:
    case LauncherKind::start_failed:
    case LauncherKind::exited:
    case LauncherKind::tasks_gone:
    case LauncherKind::shepherd_hello:
      break;
  }
  reply(id, ENOSYS, "this task's supervisor is of an older release and does not know this request");
}

void Shepherd::on_go(uint64_t id) {
  if (go_given_) return reply(id, EALREADY, "this attempt has been told to go before");
  if (state() != TaskState::prepared || ending_ != wire::ExitCause::none) {
    return reply(id, ESRCH, "this attempt is not prepared");
  }
  // Recorded first: from here on it may have executed, whoever dies.
  const uint64_t now = boot_time_ns();
  record_.state = static_cast<uint32_t>(TaskState::running);
  record_.end.started_boottime_ns = now;
  if (!write_record()) {
    // A launcher that finds no record of its run would take it for one that never ran, and start it again.
    record_.state = static_cast<uint32_t>(TaskState::prepared);
    record_.end.started_boottime_ns = 0;
    reply(id, EIO, "the task's record cannot be written; is the run folder full?");
    fail_start(wire::StartStage::cgroup, {EIO, "its record cannot be written; is the run folder full?"});
    return check_gone();
  }
  go_given_ = true;
  time_limit_.start(now);
  (void)!::send(birth_channel_.get(), "g", 1, MSG_NOSIGNAL);
  failpoint("go.given");
  reply(id, 0);
}

void Shepherd::on_signal(const Packet& packet) {
  wire::SignalRequest request{};
  const uint64_t id = packet.header.id;
  if (!packet.decode(request) || request.signal < 1 || request.signal > 64)
    return reply(id, EINVAL, "no such signal");
  if (state() != TaskState::running) return reply(id, ESRCH, "the task is not running");
  if (request.scope == static_cast<uint32_t>(wire::SignalScope::whole_task)) {
    processes_->signal_all(request.signal);
  } else if (request.scope == static_cast<uint32_t>(wire::SignalScope::who_catches)) {
    (void)processes_->signal_those_that_catch(request.signal);
  } else {
    signal_main(request.signal);
  }
  reply(id, 0);
}

void Shepherd::on_kill(const Packet& packet) {
  wire::KillRequest request{};
  const uint64_t id = packet.header.id;
  if (!packet.decode(request)) return reply(id, EINVAL, "malformed Kill");
  if (record_.tasks_gone != 0) return reply(id, ESRCH, "the task has ended");
  end_task(wire::ExitCause::killed, go_given_ ? request.grace_ns : 0);
  reply(id, 0);
}

void Shepherd::on_freeze(uint64_t id, bool frozen) {
  if (state() != TaskState::running) return reply(id, ESRCH, "the task is not running");
  if (const auto done = processes_->set_frozen(frozen); !done)
    return reply(id, done.error().error, done.error().text);
  record_.frozen = frozen ? 1 : 0;
  frozen ? time_limit_.freeze(boot_time_ns()) : time_limit_.thaw(boot_time_ns());
  write_record();
  arm_timer();
  reply(id, 0);
}

void Shepherd::on_set_limits(const Packet& packet) {
  wire::SetLimitsRequest request{};
  const uint64_t id = packet.header.id;
  if (!packet.decode(request)) return reply(id, EINVAL, "malformed SetLimits");
  if (request.memory_mib > (uint64_t{1} << 40)) return reply(id, EINVAL, "memory limit out of range");
  if (!processes_ || has_ended()) return reply(id, ESRCH, "the task has ended");
  isolation::TaskLimits limits;
  limits.cpu_milli = request.cpu_milli;
  limits.cpu_limit_milli = request.cpu_limit_milli;
  limits.pids = request.pids_limit;
  limits.memory_mib = request.memory_mib;
  const auto done = processes_->set_limits(limits, request.which);
  if (!done) return reply(id, done.error().error, done.error().text);
  if ((request.which & wire::kSetTimeLimit) != 0) {
    record_.time_limit_ns = request.time_limit_ns;
    time_limit_.set_limit(request.time_limit_ns);
    write_record();
    arm_timer();
  }
  reply(id, 0);
}

void Shepherd::on_set_gpu_memory(const Packet& packet) {
  wire::SetGpuMemory request{};
  const uint64_t id = packet.header.id;
  wire::StartRequest changed = plan_.request;
  if (!packet.decode(request) || request.share_count == 0 || request.share_count != changed.share_count) {
    return reply(id, EINVAL, "the task has other parts of GPUs");
  }
  for (uint32_t i = 0; i < request.share_count; ++i) {
    const bool same_gpu =
        std::memcmp(request.shares[i].uuid, changed.shares[i].uuid, sizeof changed.shares[i].uuid) == 0;
    if (!same_gpu || request.shares[i].limit_bytes == 0 || changed.shares[i].limit_bytes == 0 ||
        request.guarantee_bytes[i] > request.shares[i].limit_bytes) {
      return reply(id, EINVAL, "the task has other parts of GPUs, or a part would be none");
    }
    changed.shares[i].limit_bytes = request.shares[i].limit_bytes;
    changed.guarantee_bytes[i] = request.guarantee_bytes[i];
  }
  if (!processes_ || has_ended() || !arbiter_.has_files())
    return reply(id, ESRCH, "the task has no part of a GPU now");
  // After a restart the daemon says it again.
  if (std::memcmp(&changed, &plan_.request, sizeof changed) == 0) return reply(id, 0);
  if (has_driver_limits_) {
    if (const auto held = set_driver_limits(host_, changed); !held)
      return reply(id, held.error().error, held.error().text);
  }
  plan_.request = changed;
  arbiter_.change(changed);
  reply(id, 0);
}

void Shepherd::on_attach(Packet& packet) {
  const uint64_t id = packet.header.id;
  if ((record_.flags & wire::kStartInteractive) == 0) {
    return reply(id, EINVAL, "the task is not interactive; read its output with tranche logs -f");
  }
  if (has_ended() || client_done_) return reply(id, ESRCH, "the task has ended");
  if (!packet.files[0]) return reply(id, EINVAL, "Attach needs the client's socket");
  lost_client_at_ = 0;
  client_.set_client(std::move(packet.files[0]));
  arm_timer();
  reply(id, 0);
}

}  // namespace tranche::launcher
