#include "gpu/sampler_link.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "linux/process_identity.h"
#include "linux/system_error.h"
#include "linux/unix_socket.h"

extern char** environ;

namespace tranche {
namespace {

constexpr int kChildSocket = 3;
constexpr int kPacketsInOneGo = 64;  // then other work of the reactor has its turn

struct SpawnSetup {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  SpawnSetup() {
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
  }
  ~SpawnSetup() {
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
  }
  SpawnSetup(const SpawnSetup&) = delete;
  SpawnSetup& operator=(const SpawnSetup&) = delete;
};

// The daemon blocks signals and ignores SIGPIPE; a child inherits both unless told otherwise.
int prepare(SpawnSetup& setup, int socket) {
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  int error = posix_spawn_file_actions_adddup2(&setup.actions, socket, kChildSocket);
  if (error == 0)
    error = posix_spawn_file_actions_addopen(&setup.actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  if (error == 0) error = posix_spawnattr_setsigmask(&setup.attributes, &none);
  if (error == 0) error = posix_spawnattr_setsigdefault(&setup.attributes, &all);
  if (error == 0) {
    error = posix_spawnattr_setflags(&setup.attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  }
  return error;
}

Result<pid_t> spawn(const std::string& program, std::vector<std::string>& arguments, int socket) {
  SpawnSetup setup;
  const int prepared = prepare(setup, socket);
  if (prepared != 0) return fail(system_error("preparing to start " + program, prepared));
  arguments.insert(arguments.begin(), {program, "--socket", std::to_string(kChildSocket)});
  std::vector<char*> pointers;
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  pid_t pid = 0;
  const int error =
      posix_spawn(&pid, program.c_str(), &setup.actions, &setup.attributes, pointers.data(), environ);
  if (error != 0) return fail(system_error("starting " + program, error));
  return pid;
}

}  // namespace

void ProcessReaper::add(pid_t pid, UniqueFd pidfd) {
  processes_.push_back({pid, std::move(pidfd), nullptr});
  const auto process = std::prev(processes_.end());
  process->watch = reactor_.on_readable(process->pidfd.get(), [this, process] {
    int status = 0;
    if (::waitpid(process->pid, &status, WNOHANG) != 0) processes_.erase(process);
  });
}

SamplerLink::SamplerLink(Reactor& reactor, ProcessReaper& reaper, Observer& observer)
    : reactor_(reactor), reaper_(reaper), observer_(observer), buffer_(sampler::kMessageMax) {}

Result<std::unique_ptr<SamplerLink>> SamplerLink::start(Reactor& reactor, ProcessReaper& reaper,
                                                        Observer& observer, const std::string& program,
                                                        std::vector<std::string> arguments) {
  std::unique_ptr<SamplerLink> link(new SamplerLink(reactor, reaper, observer));
  TRY_ASSIGN(auto sockets, unix_socket_pair(SocketKind::kPacket));
  link->socket_ = std::move(sockets.first);
  TRY_ASSIGN(link->pid_, spawn(program, arguments, sockets.second.get()));
  sockets.second.reset();
  TRY_ASSIGN(link->pidfd_, open_pidfd(link->pid_));
  link->watch_ = reactor.on_readable(link->socket_.get(), [raw = link.get()] { raw->receive(); });
  return link;
}

SamplerLink::~SamplerLink() {
  watch_.reset();
  if (pid_ == 0) return;
  // Our own child, not reaped yet: the number cannot have come to mean another process.
  ::kill(pid_, SIGKILL);
  if (pidfd_.is_open()) reaper_.add(pid_, std::move(pidfd_));
}

bool SamplerLink::request(sampler::Kind kind, uint64_t id, uint32_t gpu) {
  sampler::Request message;
  message.header = {.size = sizeof message, .version = sampler::kProtocolVersion, .kind = kind, .id = id};
  message.gpu = gpu;
  return ::send(socket_.get(), &message, sizeof message, MSG_NOSIGNAL | MSG_DONTWAIT) ==
         static_cast<ssize_t>(sizeof message);
}

void SamplerLink::receive() {
  for (int i = 0; i < kPacketsInOneGo && !silenced_; ++i) {
    const ssize_t size = ::recv(socket_.get(), buffer_.data(), buffer_.size(), MSG_DONTWAIT | MSG_TRUNC);
    if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
    std::string reason;
    if (size <= 0) {
      reason = "tranche-sampler has ended";
    } else if (static_cast<size_t>(size) > buffer_.size() ||
               !dispatch(std::span(buffer_).first(static_cast<size_t>(size)))) {
      reason = "tranche-sampler has sent what is no message of this version";
    }
    if (reason.empty()) continue;
    if (!silenced_) {
      watch_.reset();
      silence();
      observer_.sampler_ended(reason);
    }
    return;
  }
}

bool SamplerLink::dispatch(std::span<const std::byte> packet) {
  using sampler::Kind;
  const auto deliver = [&]<class Message>(void (Observer::*arrived)(const Message&), size_t size_min) {
    const auto message = sampler::decode<Message>(packet, size_min);
    if (message) (observer_.*arrived)(*message);
    return message.has_value();
  };
  if (packet.size() < sizeof(sampler::Header)) return false;
  sampler::Header header;
  std::memcpy(&header, packet.data(), sizeof header);
  if (header.size != packet.size() || header.version != sampler::kProtocolVersion) return false;
  switch (header.kind) {
    case Kind::inventory:
      return deliver(&Observer::inventory_arrived, sizeof(sampler::Inventory));
    case Kind::gpu:
      return deliver(&Observer::gpu_arrived, sizeof(sampler::Gpu));
    case Kind::gpu_problem:
      return deliver(&Observer::gpu_problem_arrived, sizeof(sampler::GpuProblem));
    case Kind::mig_device:
      return deliver(&Observer::mig_device_arrived, sizeof(sampler::MigDevice));
    case Kind::xid:
      return deliver(&Observer::xid_arrived, sizeof(sampler::Xid));
    case Kind::user_name:
      return deliver(&Observer::user_name_arrived, sizeof(sampler::UserName));
    case Kind::inventory_end:
      observer_.inventory_ended();
      return true;
    case Kind::reading: {
      const size_t head = offsetof(sampler::Reading, processes);
      const auto message = sampler::decode<sampler::Reading>(packet, head);
      if (!message || message->process_count > sampler::kProcessesMax ||
          packet.size() != head + message->process_count * sizeof(sampler::Process)) {
        return false;
      }
      observer_.reading_arrived(*message);
      return true;
    }
    case Kind::progress: {
      const size_t head = offsetof(sampler::Progress, activities);
      const auto message = sampler::decode<sampler::Progress>(packet, head);
      if (!message || message->count > sampler::kGpusMax + 1 ||
          packet.size() != head + message->count * sizeof(sampler::Activity)) {
        return false;
      }
      observer_.progress_arrived(*message);
      return true;
    }
    case Kind::check:
    case Kind::resume:
      return false;
  }
  return false;
}

}  // namespace tranche
