#include "machine/launcher_task_host.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/failpoint.h"
#include "linux/log.h"
#include "linux/unix_socket.h"
#include "machine/device_uuid.h"
#include "machine/gang_ports.h"
#include "machine/launch_block.h"

namespace tranche::machine {
namespace {

constexpr Duration kConnectAgainAfter{100 * kMillisecond.count()};
// A shepherd finds a new launcher within 20 ms (launcher/launcher_link.h), a cgroup can be removed within 5.
constexpr Duration kAskAgainAfter{20 * kMillisecond.count()};
constexpr Duration kAskAgainAtMost = kSecond;
constexpr size_t kPacketsAtATime = 256;  // then the loop turns, so that clients are heard

wire::TaskKey to_wire(const TaskKey& task) { return {task.job.value(), task.rank, task.attempt}; }
TaskKey from_wire(const wire::TaskKey& key) { return {JobId(key.job), key.rank, key.attempt}; }

// Texts come from a fixed field; root's side closes them, but nothing depends on that.
template <size_t kSize>
std::string text_of(const char (&field)[kSize]) {
  return std::string(field, ::strnlen(field, kSize));
}

// Copies what the sender knows over zeroes: fields are only ever added at the end (wire/launcher.h).
template <class Message>
Message read_message(const char* bytes, size_t size) {
  Message message{};
  std::memcpy(&message, bytes, std::min(size, sizeof message));
  return message;
}

std::string stage_text(wire::StartStage stage) {
  switch (stage) {
    case wire::StartStage::none:
      return "unknown";
    case wire::StartStage::request:
      return "its launch block was refused";
    case wire::StartStage::cgroup:
      return "its cgroup could not be made";
    case wire::StartStage::devices:
      return "its device filter could not be set";
    case wire::StartStage::namespaces:
      return "its namespaces could not be made";
    case wire::StartStage::identity:
      return "its user's identity could not be taken on";
    case wire::StartStage::directory:
      return "its directory cannot be entered";
    case wire::StartStage::files:
      return "an input or output file cannot be opened";
    case wire::StartStage::execute:
      return "its command cannot be executed";
    case wire::StartStage::cancelled:
      return "cancelled before it started";
    case wire::StartStage::supervisor:
      return "its supervisor was lost";
  }
  return "unknown";
}

StartFailure failure_of(uint32_t stage_number, int32_t error, const std::string& text) {
  const auto stage = static_cast<wire::StartStage>(stage_number);
  StartFailure failure;
  failure.cancelled = stage == wire::StartStage::cancelled;
  failure.of_the_job = stage == wire::StartStage::directory || stage == wire::StartStage::files ||
                       stage == wire::StartStage::execute || stage == wire::StartStage::identity ||
                       stage == wire::StartStage::request;
  failure.stage = stage_text(stage);
  if (stage == wire::StartStage::execute) failure.code = error == ENOENT ? 127 : 126;
  failure.text = text.empty() ? failure.stage : text;
  return failure;
}

ExitCause cause_of(uint32_t cause) {
  switch (static_cast<wire::ExitCause>(cause)) {
    case wire::ExitCause::exited:
      return ExitCause::exited;
    case wire::ExitCause::signalled:
      return ExitCause::signalled;
    case wire::ExitCause::time_limit:
      return ExitCause::time_limit;
    case wire::ExitCause::killed:
      return ExitCause::killed;
    case wire::ExitCause::oom:
      return ExitCause::out_of_memory;
    case wire::ExitCause::none:
    case wire::ExitCause::unknown:
      return ExitCause::lost;
  }
  return ExitCause::lost;
}

TaskEnd end_of(const wire::TaskEnd& from) {
  TaskEnd end;
  end.cause = cause_of(from.cause);
  end.code = std::max(0, from.exit_code);
  end.signal = from.signal;
  end.cpu_time = Duration(static_cast<int64_t>(from.user_time_ns + from.system_time_ns));
  end.memory_peak = MiB(static_cast<int64_t>(from.memory_peak_bytes >> 20));
  return end;
}

TaskRecord record_of(const wire::TaskRecord& from) {
  TaskRecord record;
  record.task = from_wire(from.key);
  switch (static_cast<wire::TaskState>(from.state)) {
    case wire::TaskState::preparing:
      record.state = TaskRecord::State::preparing;
      break;
    case wire::TaskState::prepared:
      record.state = TaskRecord::State::prepared;
      break;
    case wire::TaskState::running:
      record.state = TaskRecord::State::running;
      break;
    case wire::TaskState::start_failed:
      record.state = TaskRecord::State::start_failed;
      break;
    case wire::TaskState::exited:
      record.state = TaskRecord::State::exited;
      break;
  }
  record.all_gone = from.tasks_gone != 0;
  record.pid = from.task_pid;
  const size_t gpus = std::min<size_t>(from.gpu_count, wire::kMaxGpusPerTask);
  record.gpu_minors.assign(from.gpu_minors, from.gpu_minors + gpus);
  std::sort(record.gpu_minors.begin(), record.gpu_minors.end());
  record.time_limit = Duration(static_cast<int64_t>(std::min<uint64_t>(from.time_limit_ns, INT64_MAX)));
  record.failure = failure_of(from.stage, from.error, text_of(from.text));
  record.end = end_of(from.end);
  return record;
}

}  // namespace

LauncherTaskHost::LauncherTaskHost(Reactor& reactor, std::string socket_path, bool emulated)
    : reactor_(reactor), path_(std::move(socket_path)), emulated_(emulated) {}

void LauncherTaskHost::open(TaskListener& listener) {
  listener_ = &listener;
  connect();
}

void LauncherTaskHost::connect() {
  again_.reset();
  auto socket = connect_unix(path_, SocketKind::kPacket);
  if (!socket) {
    again_ = reactor_.at(reactor_.clock().since_boot() + kConnectAgainAfter, [this] { connect(); });
    return;
  }
  ::fcntl(socket->get(), F_SETFL, O_NONBLOCK);
  socket_ = std::move(*socket);
  readable_ = reactor_.on_readable(socket_.get(), [this] { receive(); });
  listener_->on_connected();
}

void LauncherTaskHost::disconnected() {
  if (!socket_.is_open()) return;
  log(LogLevel::warning, "launcher_lost");
  readable_.reset();
  writable_.reset();
  socket_.reset();
  outbox_.clear();
  repeats_.clear();  // reconciling asks for what is still wanted
  const auto unanswered = std::exchange(outstanding_, {});
  again_ = reactor_.at(reactor_.clock().since_boot() + kConnectAgainAfter, [this] { connect(); });
  for (const auto& [id, request] : unanswered) {
    if (request.replied) request.replied(EPIPE, "the launcher went away");
  }
  listener_->on_disconnected();
}

template <class Message>
void LauncherTaskHost::send(Message message, wire::LauncherKind kind, Outstanding outstanding,
                            std::vector<UniqueFd> file_descriptors) {
  if (!socket_.is_open()) {
    if (outstanding.replied) {
      reactor_.post(
          [replied = std::move(outstanding.replied)] { replied(EPIPE, "the launcher is not running"); });
    }
    return;
  }
  message.header.size = sizeof message;
  message.header.version = wire::kLauncherProtocolVersion;
  message.header.kind = static_cast<uint16_t>(kind);
  message.header.id = next_id_++;
  outstanding_[message.header.id] = std::move(outstanding);
  Packet packet;
  packet.bytes.assign(reinterpret_cast<const char*>(&message), sizeof message);
  packet.file_descriptors = std::move(file_descriptors);
  outbox_.push_back(std::move(packet));
  failpoint("launcher_message.before_sending");
  flush();
  failpoint("launcher_message.sent");
}

void LauncherTaskHost::flush() {
  writable_.reset();
  while (!outbox_.empty()) {
    const Packet& packet = outbox_.front();
    std::vector<int> borrowed;
    for (const UniqueFd& fd : packet.file_descriptors) borrowed.push_back(fd.get());
    const auto sent = send_message(socket_.get(), std::as_bytes(std::span(packet.bytes)), borrowed);
    if (!sent && sent.error().code() == ErrorCode::over_limit) {
      writable_ = reactor_.on_writable(socket_.get(), [this] { flush(); });
      return;
    }
    if (!sent) {
      // The end of the connection is also readable; it is dealt with there, not inside a caller's send.
      reactor_.post([this] { disconnected(); });
      return;
    }
    outbox_.pop_front();
  }
}

void LauncherTaskHost::receive() {
  char buffer[wire::kMaxLauncherMessage];
  for (size_t i = 0; i < kPacketsAtATime; ++i) {
    const auto message = receive_message(socket_.get(), std::as_writable_bytes(std::span(buffer)));
    if (!message) {
      if (message.error().code() == ErrorCode::timed_out) return;
      return disconnected();
    }
    if (message->size == 0) return disconnected();
    failpoint("launcher_message.received");
    dispatch(buffer, message->size);
    failpoint("launcher_message.handled");
    if (!socket_.is_open()) return;
  }
}

void LauncherTaskHost::dispatch(const char* bytes, size_t size) {
  if (size < sizeof(wire::MessageHeader)) return;
  const auto header = read_message<wire::MessageHeader>(bytes, size);
  switch (static_cast<wire::LauncherKind>(header.kind)) {
    case wire::LauncherKind::reply:
      return take_reply(read_message<wire::Reply>(bytes, size));
    case wire::LauncherKind::list_entry: {
      const auto request = outstanding_.find(header.id);
      if (request == outstanding_.end() || !request->second.records) return;
      request->second.records->push_back(record_of(read_message<wire::ListEntry>(bytes, size).record));
      return;
    }
    case wire::LauncherKind::scan_entry: {
      const auto request = outstanding_.find(header.id);
      if (request == outstanding_.end() || !request->second.holders) return;
      const auto entry = read_message<wire::ScanEntry>(bytes, size);
      request->second.holders->push_back(
          {entry.pid, entry.uid, entry.gpu_minor, from_wire(entry.key), text_of(entry.command)});
      return;
    }
    case wire::LauncherKind::prepared:
      return listener_->on_prepared(from_wire(read_message<wire::TaskEvent>(bytes, size).key));
    case wire::LauncherKind::started: {
      const auto event = read_message<wire::StartedEvent>(bytes, size);
      return listener_->on_started(from_wire(event.key), event.task_pid);
    }
    case wire::LauncherKind::start_failed: {
      const auto event = read_message<wire::StartFailedEvent>(bytes, size);
      return listener_->on_start_failed(from_wire(event.key),
                                        failure_of(event.stage, event.error, text_of(event.text)));
    }
    case wire::LauncherKind::exited: {
      const auto event = read_message<wire::ExitedEvent>(bytes, size);
      return listener_->on_exited(from_wire(event.key), end_of(event.end));
    }
    case wire::LauncherKind::tasks_gone:
      return listener_->on_all_gone(from_wire(read_message<wire::TaskEvent>(bytes, size).key));
    case wire::LauncherKind::start:
    case wire::LauncherKind::go:
    case wire::LauncherKind::signal:
    case wire::LauncherKind::kill:
    case wire::LauncherKind::freeze:
    case wire::LauncherKind::thaw:
    case wire::LauncherKind::set_limits:
    case wire::LauncherKind::set_gpu_memory:
    case wire::LauncherKind::open_as_user:
    case wire::LauncherKind::scan:
    case wire::LauncherKind::list:
    case wire::LauncherKind::forget:
    case wire::LauncherKind::attach:
    case wire::LauncherKind::exec:
    case wire::LauncherKind::shepherd_hello:
      return;  // the daemon's own; so are kinds that only a newer launcher knows
  }
}

void LauncherTaskHost::take_reply(const wire::Reply& reply) {
  const auto found = outstanding_.find(reply.header.id);
  if (found == outstanding_.end()) return;
  const Outstanding request = std::move(found->second);
  outstanding_.erase(found);
  if (request.replied) request.replied(reply.status, text_of(reply.text));
}

void LauncherTaskHost::start(const LaunchPlan& plan, UniqueFd client) {
  const auto refuse = [this, task = plan.task](bool of_the_job, const std::string& text) {
    reactor_.post([this, task, of_the_job, text] {
      listener_->on_start_failed(task, {of_the_job, false, text, "the launcher refused it", 0});
    });
  };
  const auto block = encode_launch_block(plan);
  if (!block) return refuse(true, block.error().message());
  auto memory = seal_in_memory(*block);
  if (!memory) return refuse(false, memory.error().message());
  if (plan.gpu_minors.size() > wire::kMaxGpusPerTask)
    return refuse(true, "more GPUs than one task can have (64)");

  wire::StartRequest request{};
  request.key = to_wire(plan.task);
  request.uid = plan.owner.uid;
  request.gid = plan.owner.gid;
  request.flags = (plan.interactive ? wire::kStartInteractive : 0) |
                  (plan.terminal ? wire::kStartTerminal : 0) | (emulated_ ? wire::kStartEmulatedNodes : 0) |
                  (plan.job_shares ? wire::kStartJobShares : 0) |
                  (plan.memory == MiB{} ? wire::kStartMemoryUnlimited : 0);
  request.cpu_milli = static_cast<uint32_t>(plan.cpu.count());
  request.pids_limit = plan.processes_max;
  request.memory_mib = static_cast<uint64_t>(plan.memory.count());
  request.time_limit_ns = static_cast<uint64_t>(plan.time_limit.count());
  request.limit_signal = plan.signal.number;
  request.limit_signal_before_ns = static_cast<uint64_t>(plan.signal.before.count());
  request.grace_ns = static_cast<uint64_t>(plan.grace.count());
  request.terminal_rows = plan.terminal_rows;
  request.terminal_columns = plan.terminal_columns;
  request.gpu_count = static_cast<uint16_t>(plan.gpu_minors.size());
  std::copy(plan.gpu_minors.begin(), plan.gpu_minors.end(), request.gpu_minors);
  if (plan.memory_shares.size() > wire::kMaxGpusPerTask)
    return refuse(true, "more parts than one task can have (64)");
  for (const MemoryShare& share : plan.memory_shares) {
    wire::MemoryShare& target = request.shares[request.share_count++];
    if (!parse_device_uuid(share.uuid, target.uuid))
      return refuse(false, "GPU " + share.uuid + " has no proper UUID");
    target.limit_bytes = static_cast<uint64_t>(share.limit.count()) << 20;
    request.guarantee_bytes[request.share_count - 1] = static_cast<uint64_t>(share.guarantee.count()) << 20;
  }

  std::vector<UniqueFd> passed;
  passed.push_back(std::move(*memory));
  if (plan.interactive) passed.push_back(std::move(client));
  Outstanding outstanding;
  outstanding.replied = [this, task = plan.task](int32_t status, const std::string& text) {
    if (status == 0 || status == EPIPE) return;  // a lost launcher is dealt with by reconciling
    if (status == EEXIST) return;                // it has the task already: list() tells the rest
    const bool of_the_job = status == EPERM || status == EINVAL;
    listener_->on_start_failed(task, {of_the_job, false, text, "the launcher refused it", 0});
  };
  send(request, wire::LauncherKind::start, std::move(outstanding), std::move(passed));
}

void LauncherTaskHost::send_task(const TaskKey& task, wire::LauncherKind kind, Replied replied,
                                 std::vector<UniqueFd> file_descriptors) {
  wire::TaskRequest request{};
  request.key = to_wire(task);
  Outstanding outstanding;
  outstanding.replied = std::move(replied);
  send(request, kind, std::move(outstanding), std::move(file_descriptors));
}

// What a task's shepherd or its cgroup is not ready for yet is asked again, less and less often, for as long
// as this launcher lives.
LauncherTaskHost::Replied LauncherTaskHost::again_while_busy(Duration pause, Again ask) {
  return [this, pause, ask = std::move(ask)](int32_t status, const std::string&) {
    if (status != EAGAIN && status != EBUSY && status != EOWNERDEAD) return;
    const uint64_t id = ++last_repeat_;
    repeats_[id] = reactor_.at(reactor_.clock().since_boot() + pause, [this, id, pause, ask] {
      const auto self = repeats_.extract(id);
      ask(std::min(pause * 2, kAskAgainAtMost));
    });
  };
}

void LauncherTaskHost::go(const TaskKey& task) { send_go(task, kAskAgainAfter); }
void LauncherTaskHost::forget(const TaskKey& task) { send_forget(task, kAskAgainAfter); }
void LauncherTaskHost::kill(const TaskKey& task, Duration grace) { send_kill(task, grace, kAskAgainAfter); }

void LauncherTaskHost::send_go(const TaskKey& task, Duration pause) {
  send_task(task, wire::LauncherKind::go,
            again_while_busy(pause, [this, task](Duration next) { send_go(task, next); }));
}

void LauncherTaskHost::send_forget(const TaskKey& task, Duration pause) {
  send_task(task, wire::LauncherKind::forget,
            again_while_busy(pause, [this, task](Duration next) { send_forget(task, next); }));
}

void LauncherTaskHost::send_kill(const TaskKey& task, Duration grace, Duration pause) {
  wire::KillRequest request{};
  request.key = to_wire(task);
  request.grace_ns = static_cast<uint64_t>(std::max<int64_t>(0, grace.count()));
  Outstanding outstanding;
  outstanding.replied =
      again_while_busy(pause, [this, task, grace](Duration next) { send_kill(task, grace, next); });
  send(request, wire::LauncherKind::kill, std::move(outstanding));
}

void LauncherTaskHost::set_time_limit(const TaskKey& task, Duration limit) {
  wire::SetLimitsRequest request{};
  request.key = to_wire(task);
  request.which = wire::kSetTimeLimit;
  request.time_limit_ns = static_cast<uint64_t>(limit.count());
  send(request, wire::LauncherKind::set_limits, {});
}

void LauncherTaskHost::set_gpu_memory(const TaskKey& task, const std::vector<MemoryShare>& shares) {
  wire::SetGpuMemory request{};
  request.key = to_wire(task);
  for (const MemoryShare& share : shares) {
    if (request.share_count == wire::kMaxGpusPerTask) return;
    const uint32_t place = request.share_count++;
    if (!parse_device_uuid(share.uuid, request.shares[place].uuid)) return;
    request.shares[place].limit_bytes = static_cast<uint64_t>(share.limit.count()) << 20;
    request.guarantee_bytes[place] = static_cast<uint64_t>(share.guarantee.count()) << 20;
  }
  send(request, wire::LauncherKind::set_gpu_memory, {});
}

void LauncherTaskHost::freeze(const TaskKey& task, bool frozen) {
  send_task(task, frozen ? wire::LauncherKind::freeze : wire::LauncherKind::thaw, {});
}

void LauncherTaskHost::notify(const TaskKey& task, int32_t signal) {
  wire::SignalRequest request{};
  request.key = to_wire(task);
  request.signal = signal;
  request.scope = static_cast<uint32_t>(wire::SignalScope::who_catches);
  send(request, wire::LauncherKind::signal, {});
}

void LauncherTaskHost::attach(const TaskKey& task, UniqueFd client, std::function<void(Result<void>)> done) {
  std::vector<UniqueFd> passed;
  passed.push_back(std::move(client));
  send_task(
      task, wire::LauncherKind::attach,
      [done = std::move(done)](int32_t status, const std::string& text) {
        if (status == 0) return done({});
        done(fail(ErrorCode::conflict, text));
      },
      std::move(passed));
}

void LauncherTaskHost::exec(const LaunchPlan& plan, UniqueFd client, std::function<void(Result<void>)> done) {
  auto block = encode_launch_block(plan);
  if (!block) return done(fail(std::move(block).error()));
  auto memory = seal_in_memory(*block);
  if (!memory) return done(fail(std::move(memory).error()));
  wire::ExecRequest request{};
  request.key = to_wire(plan.task);
  request.uid = plan.owner.uid;
  request.flags = plan.terminal ? wire::kStartTerminal : 0;
  request.terminal_rows = plan.terminal_rows;
  request.terminal_columns = plan.terminal_columns;
  std::vector<UniqueFd> passed;
  passed.push_back(std::move(*memory));
  passed.push_back(std::move(client));
  Outstanding outstanding;
  outstanding.replied = [done = std::move(done)](int32_t status, const std::string& text) {
    if (status == 0) return done({});
    done(fail(ErrorCode::conflict, text));
  };
  send(request, wire::LauncherKind::exec, std::move(outstanding), std::move(passed));
}

void LauncherTaskHost::list(Listed listed) {
  auto records = std::make_shared<std::vector<TaskRecord>>();
  Outstanding outstanding;
  outstanding.records = records;
  outstanding.replied = [records, listed = std::move(listed)](int32_t status, const std::string& text) {
    if (status != 0) return listed(fail(ErrorCode::unavailable, text));
    listed(std::move(*records));
  };
  struct ListRequest {
    wire::MessageHeader header;
  };
  send(ListRequest{}, wire::LauncherKind::list, std::move(outstanding));
}

void LauncherTaskHost::scan(const std::vector<uint32_t>& gpu_minors, Scanned scanned) {
  auto holders = std::make_shared<std::vector<NodeHolder>>();
  Outstanding outstanding;
  outstanding.holders = holders;
  outstanding.replied = [holders, scanned = std::move(scanned)](int32_t status, const std::string& text) {
    if (status != 0) return scanned(fail(ErrorCode::unavailable, text));
    scanned(std::move(*holders));
  };
  wire::ScanRequest request{};
  request.gpu_count = static_cast<uint32_t>(std::min<size_t>(gpu_minors.size(), wire::kMaxGpusPerTask));
  std::copy_n(gpu_minors.begin(), request.gpu_count, request.gpu_minors);
  send(request, wire::LauncherKind::scan, std::move(outstanding));
}

bool LauncherTaskHost::ports_are_free(uint16_t first, uint16_t count) { return can_listen(first, count); }

}  // namespace tranche::machine
