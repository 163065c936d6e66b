// What the daemon asks of the launcher. Nothing in a request is believed: sizes, flags, users and files are
// checked here, what a user wrote (the launch block) in the shepherd.
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <set>

#include "base/failpoint.h"
#include "isolation/mount_view.h"
#include "launcher/exec_session.h"
#include "launcher/launch_block.h"
#include "launcher/launcher.h"
#include "launcher/record_file.h"
#include "launcher/shepherd.h"

namespace tranche::launcher {

using isolation::call_failed;
using isolation::failed;
using isolation::FileDescriptor;
using isolation::Outcome;
using wire::LauncherKind;

namespace {

constexpr size_t kMaxExecSessions = 512;
constexpr uint64_t kMaxMemoryMib = uint64_t{1} << 40;

Outcome<void> check_start(const wire::StartRequest& request) {
  if (request.key.job == 0 || request.key.attempt == 0)
    return failed(EINVAL, "Start: job and attempt count from 1");
  if ((request.flags & ~wire::kStartKnownFlags) != 0)
    return failed(EINVAL, "Start: unknown flags; is the launcher older?");
  const bool interactive = (request.flags & wire::kStartInteractive) != 0;
  if (!interactive && (request.flags & wire::kStartTerminal) != 0) {
    return failed(EINVAL, "Start: a terminal needs an interactive client");
  }
  if (request.memory_mib == 0 && (request.flags & wire::kStartMemoryUnlimited) == 0) {
    return failed(EINVAL, "Start: no memory limit given");
  }
  if (request.memory_mib > kMaxMemoryMib) return failed(EINVAL, "Start: memory limit out of range");
  if (request.gpu_count > wire::kMaxGpusPerTask) return failed(EINVAL, "Start: more than 64 GPUs");
  const std::set<uint32_t> distinct(request.gpu_minors, request.gpu_minors + request.gpu_count);
  if (distinct.size() != request.gpu_count) return failed(EINVAL, "Start: a GPU is named twice");
  if (request.share_count > wire::kMaxGpusPerTask) return failed(EINVAL, "Start: more than 64 shares");
  if (request.limit_signal < 0 || request.limit_signal > 64) return failed(EINVAL, "Start: no such signal");
  return {};
}

bool is_stream_socket(int file) {
  int type = 0;
  socklen_t size = sizeof type;
  return ::getsockopt(file, SOL_SOCKET, SO_TYPE, &type, &size) == 0 && type == SOCK_STREAM;
}

}  // namespace

void Launcher::on_request(Packet& packet) {
  switch (packet.kind()) {
    case LauncherKind::start:
      return on_start(packet);
    case LauncherKind::open_as_user:
      return on_open_as_user(packet);
    case LauncherKind::scan:
      return on_scan(packet);
    case LauncherKind::list:
      return on_list(packet.header.id);
    case LauncherKind::exec:
      return on_exec(packet);
    case LauncherKind::go:
    case LauncherKind::signal:
    case LauncherKind::kill:
    case LauncherKind::freeze:
    case LauncherKind::thaw:
    case LauncherKind::set_limits:
    case LauncherKind::set_gpu_memory:
    case LauncherKind::attach:
    case LauncherKind::forget:
      return on_task_request(packet);
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
  reply(packet.header.id, ENOSYS, "this launcher does not know the request; update it");
}

void Launcher::on_start(Packet& packet) {
  const uint64_t id = packet.header.id;
  auto plan = plan_start(packet);
  if (!plan) return reply(id, plan.error().error, plan.error().text);
  const uint64_t job = plan->request.key.job;
  const Outcome<void> started = start_shepherd(std::move(*plan));
  if (started) return reply(id, 0);
  if (!tasks_.has_task_of(job)) isolation::remove_job_space(host_.jobs_folder.get(), std::to_string(job));
  reply(id, started.error().error, started.error().text);
}

Outcome<isolation::Identity> Launcher::find_user(uint32_t uid) {
  if (!host_.options.personal) return users_.find(uid);
  if (uid != ::geteuid()) return failed(EPERM, "this is another user's personal launcher");
  return isolation::own_identity();
}

Outcome<TaskPlan> Launcher::plan_start(Packet& packet) {
  TaskPlan plan;
  if (!packet.decode(plan.request, wire::kStartRequestFirstSize)) return failed(EINVAL, "Start: too short");
  const wire::StartRequest& request = plan.request;
  TRY(check_start(request));
  if (tasks_.contains(request.key) || record_exists(host_.tasks_folder.get(), request.key)) {
    return failed(EEXIST, "this attempt has been started before; Forget it or use the next attempt");
  }
  if (tasks_.size() >= host_.options.max_tasks)
    return failed(EAGAIN, "the launcher's limit of tasks is reached (--max-tasks)");
  TRY_ASSIGN(plan.identity, find_user(request.uid));
  // Without root nobody changes groups.
  if (host_.options.personal) plan.request.gid = plan.identity.primary_gid;
  if (request.gid == 0 || !isolation::is_member(plan.identity, request.gid)) {
    return failed(EPERM, plan.identity.name + " is not a member of group " + std::to_string(request.gid));
  }
  if (!host_.options.personal) {
    TRY_ASSIGN(plan.nodes, isolation::find_gpu_nodes(request.gpu_minors, request.gpu_count));
    TRY_ASSIGN(plan.device_filter, device_filters_.find(plan.nodes));
  }
  plan.launch_block = std::move(packet.files[0]);
  if (!plan.launch_block) return failed(EINVAL, "Start: the launch block is missing");
  TRY(check_seals(plan.launch_block.get()));
  if ((request.flags & wire::kStartInteractive) == 0) return plan;
  plan.client = std::move(packet.files[1]);
  if (!plan.client || !is_stream_socket(plan.client.get())) {
    return failed(EINVAL, "Start: an interactive task needs the client's stream socket");
  }
  return plan;
}

Outcome<void> Launcher::start_shepherd(TaskPlan plan) {
  const wire::StartRequest& request = plan.request;
  if ((request.flags & wire::kStartJobShares) != 0 && !host_.options.personal) {
    TRY(isolation::make_job_space(host_.jobs_folder.get(), std::to_string(request.key.job)));
  }
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) {
    return call_failed("making the shepherd's socket");
  }
  FileDescriptor own(ends[0]);
  FileDescriptor shepherds(ends[1]);
  failpoint("shepherd.before_fork");
  const pid_t pid = ::fork();
  if (pid < 0) return call_failed("starting a shepherd");
  if (pid == 0) {
    set_failpoint_role(FailpointRole::shepherd);
    const isolation::CgroupTree& cgroups = host_.cgroups;
    int kept[] = {shepherds.get(),        plan.launch_block.get(),  plan.client.get(), plan.device_filter,
                  host_.run_folder.get(), host_.tasks_folder.get(), cgroups.unified(), cgroups.v1_memory(),
                  cgroups.v1_cpu(),       cgroups.v1_pids()};
    isolation::close_all_but(kept, std::size(kept));
    run_shepherd(host_, std::move(plan), std::move(shepherds));
  }
  failpoint("shepherd.forked");
  wire::TaskRecord record{};
  record.key = request.key;
  record.uid = request.uid;
  record.state = static_cast<uint32_t>(wire::TaskState::preparing);
  record.flags = request.flags;
  record.shepherd_pid = pid;
  tasks_.add(record, std::move(own));
  return {};
}

void Launcher::on_exec(Packet& packet) {
  const uint64_t id = packet.header.id;
  const Outcome<void> started = start_exec(packet);
  reply(id, started ? 0 : started.error().error, started ? "" : started.error().text);
}

// Who may is the daemon's to decide; that it is the task's own user who comes in is held here too.
Outcome<void> Launcher::start_exec(Packet& packet) {
  wire::ExecRequest request{};
  if (!packet.decode(request)) return failed(EINVAL, "Exec: too short");
  if ((request.flags & ~(wire::kStartTerminal | wire::kStartMergeStderr)) != 0) {
    return failed(EINVAL, "Exec: unknown flags; is the launcher older?");
  }
  if (exec_sessions_.size() >= kMaxExecSessions)
    return failed(EAGAIN, "too many commands are at work inside jobs");
  const wire::TaskRecord record = read_record(host_.tasks_folder.get(), request.key);
  if (record.state != static_cast<uint32_t>(wire::TaskState::running) || record.task_pid <= 0) {
    return failed(ESRCH, "the task is not running");
  }
  if (record.uid != request.uid) return failed(EPERM, "the task is another user's");
  ExecPlan exec;
  wire::StartRequest& start = exec.plan.request;
  start.key = request.key;
  start.uid = request.uid;
  start.flags = request.flags | (record.flags & (wire::kStartEmulatedNodes | wire::kStartNoNewPrivileges)) |
                wire::kStartInteractive;
  start.terminal_rows = request.terminal_rows;
  start.terminal_columns = request.terminal_columns;
  TRY_ASSIGN(exec.plan.identity, find_user(request.uid));
  start.gid = exec.plan.identity.primary_gid;
  exec.plan.launch_block = std::move(packet.files[0]);
  if (!exec.plan.launch_block) return failed(EINVAL, "Exec: the launch block is missing");
  TRY(check_seals(exec.plan.launch_block.get()));
  exec.plan.client = std::move(packet.files[1]);
  if (!exec.plan.client || !is_stream_socket(exec.plan.client.get())) {
    return failed(EINVAL, "Exec: the client's stream socket is missing");
  }
  exec.record = record;
  TRY(open_main_process(record, !host_.options.personal, exec));
  const pid_t pid = ::fork();
  if (pid < 0) return call_failed("starting a session");
  if (pid == 0) {
    const isolation::CgroupTree& cgroups = host_.cgroups;
    int kept[] = {exec.plan.launch_block.get(), exec.plan.client.get(),   exec.process.get(),
                  exec.mount_namespace.get(),   exec.ipc_namespace.get(), cgroups.unified(),
                  cgroups.v1_memory(),          cgroups.v1_cpu(),         cgroups.v1_pids()};
    isolation::close_all_but(kept, std::size(kept));
    run_exec_session(host_, std::move(exec));
  }
  exec_sessions_.insert(pid);
  return {};
}

void Launcher::on_open_as_user(const Packet& packet) {
  const uint64_t id = packet.header.id;
  wire::OpenAsUserRequest request{};
  if (!packet.decode(request) || request.path[wire::kMaxPath - 1] != '\0' || request.path[0] != '/' ||
      request.mode > static_cast<uint32_t>(wire::OpenMode::write_append)) {
    return reply(id, EINVAL, "OpenAsUser needs an absolute path and a known mode");
  }
  const auto identity = find_user(request.uid);
  if (!identity) return reply(id, identity.error().error, identity.error().text);
  if (const auto begun = helpers_.open_as_user(request, *identity); !begun) {
    reply(id, begun.error().error, begun.error().text);
  }
}

void Launcher::on_scan(const Packet& packet) {
  const uint64_t id = packet.header.id;
  wire::ScanRequest request{};
  if (!packet.decode(request) || request.gpu_count > wire::kMaxGpusPerTask) {
    return reply(id, EINVAL, "Scan: malformed");
  }
  if (const auto begun = helpers_.scan(request); !begun) reply(id, begun.error().error, begun.error().text);
}

void Launcher::on_list(uint64_t id) {
  uint32_t count = 0;
  for (const wire::TaskRecord& record : tasks_.list()) {
    auto entry = make_message<wire::ListEntry>(LauncherKind::list_entry, id);
    entry.record = record;
    if (daemon_ != nullptr) daemon_->send(entry);
    ++count;
  }
  reply(id, 0, {}, count);
}

void Launcher::on_task_request(Packet& packet) {
  const uint64_t id = packet.header.id;
  wire::TaskRequest request{};
  if (!packet.decode(request)) return reply(id, EINVAL, "the request is too short to name a task");
  if (packet.kind() != LauncherKind::forget) return tasks_.forward(packet, request.key);
  const int status = tasks_.forget(request.key);
  reply(id, status, status == 0 ? "" : "processes of the task are left, or its cgroup is not empty yet");
}

}  // namespace tranche::launcher
