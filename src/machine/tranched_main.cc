// tranched: one machine's daemon. Runs as the user `tranche`, without any capability; root's part is the
// launcher's. Order of construction:
//   signals blocked -> configuration -> reactor -> NVML host (starts the sampler on first use) -> launcher
//   connection -> daemon (journal recovered) -> HTTP on the Unix socket -> ready

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <string>
#include <vector>

#include "base/failpoint.h"
#include "codec/config.h"
#include "gpu/nvml_host.h"
#include "linux/files.h"
#include "linux/http_server.h"
#include "linux/log.h"
#include "linux/personal_folders.h"
#include "linux/process_identity.h"
#include "linux/sd_event_reactor.h"
#include "linux/service_notify.h"
#include "linux/system_error.h"
#include "linux/worker_thread.h"
#include "machine/arbiter_client.h"
#include "machine/daemon.h"
#include "machine/journal_backup.h"
#include "machine/launcher_task_host.h"
#include "machine/verify_journal.h"

namespace tranche::machine {
namespace {

constexpr const char* kHelp =
    R"(tranched: shares this machine's GPUs among its users

Usage: tranched [--config FILE] [--personal] [--ready-fd N]
       tranched personal-folders
       tranched check-config [FILE]
       tranched verify-journal STATE_DIRECTORY
       tranched backup STATE_DIRECTORY FILE
       tranched restore FILE STATE_DIRECTORY

  --config FILE     the configuration (default /etc/tranche/tranche.toml if it exists)
  --personal        for one user, without root, in the user's own folders (XDG); see tranche-up start --personal
  personal-folders  print these: of sockets, of the state, and the configuration file
  --ready-fd N      write a line to descriptor N when clients may connect
  check-config      parse the configuration, say what it means, and end
  verify-journal    recompute every recorded decision, from the first row and from each snapshot, and
                    compare, and end
  backup            copy the journal into one new file, also while tranched writes it
  restore           put a backup in the journal's place; tranched must not run
  --version, --help

Examples:
  tranched --config /etc/tranche/tranche.toml
  tranched verify-journal /var/lib/tranche
)";

struct Arguments {
  std::string config;
  bool personal = false;
  int ready_fd = -1;
};

int complain(const Error& error) {
  std::fprintf(stderr, "tranched: %s\n", error.message().c_str());
  return exit_code(error.code());
}

Result<DaemonConfig> read_config_file(const std::string& path) {
  if (path.empty() && ::access(std::string(kConfigPath).c_str(), F_OK) != 0)
    return parse_config_text("", "defaults");
  return load_config(path.empty() ? std::string(kConfigPath) : path);
}

std::string environment_variable(const char* name) {
  const char* value = ::getenv(name);
  return value == nullptr ? "" : value;
}

// The folders are the user's whatever the file says: one that names others is meant for another daemon.
Result<DaemonConfig> read_personal_config(std::string path) {
  TRY_ASSIGN(const PersonalFolders folders, personal_folders(environment_variable, ::geteuid()));
  if (path.empty() && ::access(folders.config.c_str(), F_OK) == 0) path = folders.config;
  DaemonConfig config;
  if (!path.empty()) {
    TRY_ASSIGN(config, load_config(path));
  } else {
    TRY_ASSIGN(config, parse_config_text("", "defaults"));
  }
  const DaemonConfig standard;
  if (config.run_dir != standard.run_dir || config.state_dir != standard.state_dir ||
      !config.socket.empty()) {
    return fail(ErrorCode::invalid_argument,
                path + ": take daemon.run_dir, state_dir and socket out; in personal mode they are " +
                    folders.run + " and " + folders.state);
  }
  config.personal = true;
  config.run_dir = folders.run;
  config.state_dir = folders.state;
  return config;
}

Result<DaemonConfig> read_config(const Arguments& arguments) {
  return arguments.personal ? read_personal_config(arguments.config) : read_config_file(arguments.config);
}

int print_personal_folders() {
  const auto folders = personal_folders(environment_variable, ::geteuid());
  if (!folders) return complain(folders.error());
  std::printf("%s\n%s\n%s\n", folders->run.c_str(), folders->state.c_str(), folders->config.c_str());
  return 0;
}

// Programs of one build stand beside one another.
std::string sibling_program(const std::string& name) {
  char path[4096] = {};
  const ssize_t length = ::readlink("/proc/self/exe", path, sizeof path - 1);
  const std::string self = length > 0 ? std::string(path, static_cast<size_t>(length)) : "";
  return self.substr(0, self.rfind('/') + 1) + name;
}

LogLevel log_level(LogThreshold threshold) {
  switch (threshold) {
    case LogThreshold::error:
      return LogLevel::error;
    case LogThreshold::warning:
      return LogLevel::warning;
    case LogThreshold::info:
      return LogLevel::info;
    case LogThreshold::debug:
      return LogLevel::debug;
  }
  return LogLevel::info;
}

std::unique_ptr<Worker> journal_thread(Reactor& reactor) {
  WorkerThread::Options options;
  options.name = "journal";
  options.group_size_max = 1;  // a failing read must not fail the write beside it
  return std::make_unique<WorkerThread>(reactor, std::move(options));
}

// A receiver that hangs holds up its own notices only.
std::unique_ptr<Worker> hook_thread(Reactor& reactor, const std::string& name) {
  WorkerThread::Options options;
  options.name = name.substr(0, 15);
  options.queue_capacity = 16;
  options.group_size_max = 1;
  return std::make_unique<WorkerThread>(reactor, std::move(options));
}

// GPU nodes that are block devices are the emulator's: NVIDIA's driver makes character devices only.
bool has_emulated_nodes(const DaemonConfig& config) {
  if (config.emulated != EmulatedNodes::automatic) return config.emulated == EmulatedNodes::yes;
  struct stat node {};
  return ::stat("/dev/nvidiactl", &node) == 0 && S_ISBLK(node.st_mode);
}

// The API on TCP; null if it is not asked for. Trouble with it must not keep those on the machine out.
std::unique_ptr<HttpServer> open_to_network(Reactor& reactor, const ListenConfig& config, ApiServer& api) {
  if (config.listen.empty()) return nullptr;
  const auto opened = [&]() -> Result<std::unique_ptr<HttpServer>> {
    constexpr size_t kPemBytesMax = size_t{1} << 20;
    constexpr Duration kPatience = 10 * kSecond;
    struct stat key_file {};
    if (::stat(config.key.c_str(), &key_file) == 0 && (key_file.st_mode & 007) != 0) {
      return fail(ErrorCode::denied,
                  "everybody may use the key " + config.key + ": chmod 640 it, and replace it");
    }
    HttpServer::Options options;
    TRY_ASSIGN(options.tls_certificate, read_file(config.certificate, kPemBytesMax));
    TRY_ASSIGN(options.tls_key, read_file(config.key, kPemBytesMax));
    options.connections_max = config.connections_max;
    options.connections_per_uid_max = config.connections_per_address_max;
    options.request_timeout = kPatience;  // the handshake is within it
    const auto handle = [&api](HttpRequest request, Responder responder) {
      api.handle(std::move(request), std::move(responder));
    };
    TRY_ASSIGN(std::unique_ptr<HttpServer> server, HttpServer::create(reactor, handle, std::move(options)));
    TRY(server->listen_tls(config.listen));
    return server;
  };
  auto server = opened();
  if (!server) {
    log(LogLevel::error, "network_closed", {{"listen", config.listen}, {"error", server.error()}});
    return nullptr;
  }
  log(LogLevel::info, "network_open", {{"listen", config.listen}});
  return std::move(*server);
}

Result<void> serve(const Arguments& arguments) {
  TRY_ASSIGN(DaemonConfig config, read_config(arguments));
  config.emulated = has_emulated_nodes(config) ? EmulatedNodes::yes : EmulatedNodes::no;
  set_log_level(log_level(config.log_level));
  TRY_ASSIGN(const std::unique_ptr<SdEventReactor> reactor, SdEventReactor::create());
  TRY_ASSIGN(std::string boot, boot_id());

  NvmlHostOptions gpu_options;
  gpu_options.sampler_program = sibling_program("tranche-sampler");
  gpu_options.library_dir = config.library_dir;
  gpu_options.sample_period = config.sample_interval;
  gpu_options.probe_period = 30 * config.sample_interval;
  NvmlHost gpus(*reactor, gpu_options);
  LauncherTaskHost tasks(*reactor, config.run_dir + "/launcher.sock", config.emulated == EmulatedNodes::yes);
  ArbiterClient arbiter(*reactor, config.run_dir + "/arbiter.sock");
  UserDirectory users(reactor->clock());

  TRY_ASSIGN(const std::unique_ptr<Daemon> daemon,
             Daemon::create({*reactor, gpus, tasks, users, config, std::move(boot), journal_thread(*reactor),
                             [arguments] { return read_config(arguments); }, &arbiter,
                             [&reactor](const std::string& name) { return hook_thread(*reactor, name); }}));
  TRY_ASSIGN(const std::unique_ptr<HttpServer> server, HttpServer::create(
                                                           *reactor,
                                                           [&](HttpRequest request, Responder responder) {
                                                             daemon->api().handle(std::move(request),
                                                                                  std::move(responder));
                                                           },
                                                           HttpServer::Options()));
  const auto stop = [&] { daemon->finish([&] { reactor->stop(); }); };
  const auto on_term = reactor->on_signal(SIGTERM, stop);
  const auto on_int = reactor->on_signal(SIGINT, stop);
  const auto on_hangup = reactor->on_signal(SIGHUP, [&] {
    const auto summary = daemon->reload();
    if (!summary) log(LogLevel::error, "reload_refused", {{"error", summary.error()}});
  });

  std::unique_ptr<HttpServer> network;
  Result<void> listening;
  daemon->start([&] {
    std::vector<UniqueFd> inherited = inherited_sockets();
    listening = inherited.empty()
                    ? server->listen_unix_path(config.socket_path(), config.personal ? 0600 : 0666)
                    : server->listen_inherited(std::move(inherited.front()));
    if (!listening) return reactor->stop();
    network = open_to_network(*reactor, config.api, daemon->api());
    log(LogLevel::info, "ready", {{"socket", config.socket_path()}, {"version", TRANCHE_VERSION}});
    notify_ready();
    if (arguments.ready_fd >= 0) {
      (void)write_all(arguments.ready_fd, "ready\n");
      ::close(arguments.ready_fd);
    }
  });
  tasks.open(daemon->listener());
  reactor->enable_watchdog();
  TRY(reactor->run());
  notify_stopping();
  return listening;
}

int check_config(const std::string& path) {
  const auto config = read_config_file(path);
  if (!config) return complain(config.error());
  for (const std::string& sentence : explain_config(*config)) std::printf("%s\n", sentence.c_str());
  return 0;
}

int verify(const std::string& state_directory) {
  const auto verdict = verify_journal(state_directory);
  if (!verdict) return complain(verdict.error());
  std::printf(
      "rows %llu, recomputed %llu, different %zu\nstate hash %016llx recomputed, %016llx restored\n%s\n",
      static_cast<unsigned long long>(verdict->rows), static_cast<unsigned long long>(verdict->recomputed),
      verdict->different.size(), static_cast<unsigned long long>(verdict->state_hash_recomputed),
      static_cast<unsigned long long>(verdict->state_hash_restored),
      verdict->holds() ? "the journal holds" : "the journal does NOT hold");
  for (const SnapshotVerdict& snapshot : verdict->snapshots) {
    std::printf("snapshot at row %llu %s\n", static_cast<unsigned long long>(snapshot.seq),
                !snapshot.unreadable.empty() ? ("is passed over: " + snapshot.unreadable).c_str()
                : snapshot.holds             ? "leads to the same state"
                                             : "does NOT lead to the same state");
  }
  for (const uint64_t seq : verdict->different) {
    std::printf("row %llu differs\n", static_cast<unsigned long long>(seq));
  }
  return verdict->holds() ? 0 : 1;
}

int back_up(const std::string& state_directory, const std::string& file) {
  const auto rows = back_up_journal(state_directory, file);
  if (!rows) return complain(rows.error());
  std::printf("%s holds %llu rows\n", file.c_str(), static_cast<unsigned long long>(*rows));
  return 0;
}

int restore(const std::string& file, const std::string& state_directory) {
  const UniqueFd backup(::open(file.c_str(), O_RDONLY | O_CLOEXEC));
  if (!backup.is_open()) return complain(system_error("open " + file));
  if (const auto became = become_owner(state_directory); !became) return complain(became.error());
  std::string replaced;
  const auto rows = restore_journal(backup, state_directory, &replaced);
  if (!rows) return complain(rows.error());
  std::printf("%s/journal.db holds %llu rows\n", state_directory.c_str(),
              static_cast<unsigned long long>(*rows));
  if (!replaced.empty()) std::printf("what was there is kept as %s\n", replaced.c_str());
  return 0;
}

int usage(const std::string& what) {
  std::fprintf(stderr, "tranched: %s; `tranched --help` shows what there is\n", what.c_str());
  return 2;
}

int run(const std::vector<std::string>& words) {
  if (!words.empty() && words[0] == "check-config") return check_config(words.size() > 1 ? words[1] : "");
  if (!words.empty() && words[0] == "verify-journal") {
    return words.size() == 2 ? verify(words[1]) : usage("verify-journal needs the state directory");
  }
  if (!words.empty() && words[0] == "backup") {
    return words.size() == 3 ? back_up(words[1], words[2])
                             : usage("backup needs the state directory and a new file");
  }
  if (!words.empty() && words[0] == "restore") {
    return words.size() == 3 ? restore(words[1], words[2])
                             : usage("restore needs the backup and the state directory");
  }
  if (!words.empty() && words[0] == "personal-folders") return print_personal_folders();
  Arguments arguments;
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i] == "--help" || words[i] == "-h") return std::fputs(kHelp, stdout) < 0 ? 1 : 0;
    if (words[i] == "--version") return std::printf("tranched %s\n", TRANCHE_VERSION) < 0 ? 1 : 0;
    if (words[i] == "--personal") {
      arguments.personal = true;
      continue;
    }
    if (i + 1 == words.size()) return usage("unknown option " + words[i] + ", or one without its value");
    if (words[i] == "--config") {
      arguments.config = words[++i];
    } else if (words[i] == "--ready-fd") {
      arguments.ready_fd = std::atoi(words[++i].c_str());
    } else {
      return usage("unknown option " + words[i]);
    }
  }
  if (arguments.personal && ::geteuid() == 0)
    return usage("--personal is for an ordinary user, not for root");
  block_service_signals();
  arm_failpoints(FailpointRole::daemon);
  const Result<void> served = serve(arguments);
  return served ? 0 : complain(served.error());
}

}  // namespace
}  // namespace tranche::machine

int main(int argc, char** argv) {
  return tranche::machine::run(std::vector<std::string>(argv + 1, argv + argc));
}
