// The daemon's configuration: /etc/tranche/tranche.toml, then conf.d/*.toml beside it in lexical order. A
// later file overrides single keys of an earlier one. Every key is in docs/configuration.md.
//
// Errors: invalid_argument, one sentence that starts with "file:line:column: " and says what to write.
// Unknown keys are errors, with the nearest known one. Nothing is half applied: all or an error. Threading:
// pure, but for load_config(), which reads files.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/units.h"
#include "model/enums.h"
#include "model/policy.h"

namespace tranche {

inline constexpr std::string_view kConfigPath = "/etc/tranche/tranche.toml";

#define TRANCHE_LOG_LEVEL(X) X(error) X(warning) X(info) X(debug)
TRANCHE_ENUM(LogThreshold, TRANCHE_LOG_LEVEL)

// Whether the device nodes are the emulator's. automatic: yes if the driver library says that it is one.
#define TRANCHE_EMULATED_NODES(X) X(no) X(yes) X(automatic)
TRANCHE_ENUM(EmulatedNodes, TRANCHE_EMULATED_NODES)

// Whether parts of one GPU may be different users'. enforced: only where the hardware or the driver itself
// holds each to its part, whatever its programs do.
#define TRANCHE_USERS_SHARE(X) X(never) X(enforced) X(always)
TRANCHE_ENUM(UsersShare, TRANCHE_USERS_SHARE)

// What becomes of a job that borrowed memory beyond its guarantee and does not give it back in time.
#define TRANCHE_RECALL_END(X) X(requeue) X(cancel) X(never)
TRANCHE_ENUM(RecallEnd, TRANCHE_RECALL_END)

// [share]: memory that is lent beyond guarantees (`--gpu-mem 10G..20G`).
struct SharePolicy {
  int32_t recall_signal = 23;  // SIGURG: programs that do not ask for it ignore it; 0: none
  Duration recall_grace{30 * kSecond.count()};
  RecallEnd recall_end = RecallEnd::requeue;
  bool operator==(const SharePolicy&) const = default;
};

// What is done about memory that a job takes past the guard within its part.
#define TRANCHE_UNGUARDED(X) X(ignore) X(report) X(act)
TRANCHE_ENUM(Unguarded, TRANCHE_UNGUARDED)

// What is done about processes of users that use a GPU outside of any job. drain: named, and the GPU gets no
// new job. name: named. adopt: named, and what they hold is not given out again. ignore: nothing.
#define TRANCHE_FOREIGN(X) X(drain) X(name) X(adopt) X(ignore)
TRANCHE_ENUM(Foreign, TRANCHE_FOREIGN)

// [watchdog]: what the driver says that jobs hold, against what they may.
struct WatchdogPolicy {
  Duration pause_after;  // of holding too much; zero: never
  Duration end_after;    // the same
  Unguarded unguarded = Unguarded::report;
  Foreign foreign = Foreign::drain;
  bool operator==(const WatchdogPolicy&) const = default;
};

// [hook.NAME]: an address that is told of jobs by a signed POST.
struct HookConfig {
  std::string name;
  std::string url;                              // http:// or https://
  std::string secret_file;                      // the key of the signature; "": none
  std::string ca_file;                          // whom to believe; "": the system's authorities
  bool all_jobs = false;                        // else only jobs that ask for it with --notify
  bool alerts = false;                          // a GPU fails or is drained
  bool private_address = false;                 // may lead to loopback, link-local and private addresses
  std::vector<std::string> events = {"ended"};  // of all_jobs
  bool operator==(const HookConfig&) const = default;
};

// [mail]: the machine's own sendmail program.
struct MailConfig {
  std::string program;  // "": no mail
  std::string domain;   // behind the user's name; "": none, local delivery
  std::string from = "tranche";
  bool operator==(const MailConfig&) const = default;
};

// [api]: the HTTP API on TCP, with TLS and tokens.
struct ListenConfig {
  std::string listen;       // "0.0.0.0:7443", "[::]:7443"; "": the Unix socket only
  std::string certificate;  // files, PEM
  std::string key;
  uint32_t connections_max = 512;
  uint32_t connections_per_address_max = 64;
  bool operator==(const ListenConfig&) const = default;
};

// manage: jobs are taken, started and held to what they were given. observe: who uses the GPUs is named and
// added up, and nothing else.
#define TRANCHE_DAEMON_MODE(X) X(manage) X(observe)
TRANCHE_ENUM(DaemonMode, TRANCHE_DAEMON_MODE)

struct DaemonConfig {
  bool personal = false;  // of one user, without root (tranched --personal); no key
  // [daemon]
  DaemonMode mode = DaemonMode::manage;
  std::string run_dir = "/run/tranche";        // sockets and what lives as long as the machine is up
  std::string state_dir = "/var/lib/tranche";  // journal, snapshots, owner-only store
  std::string socket;                          // "" is <run_dir>/tranche.sock: see socket_path()
  std::string cgroup_root;                     // "" is found
  std::vector<std::string> operator_groups = {"tranche-operators"};
  std::vector<std::string> operator_users;  // root always is one
  LogThreshold log_level = LogThreshold::info;
  MiB journal_ballast{64};              // given up when the disk fills
  uint32_t snapshot_rows = 10'000;      // of the journal, between two snapshots; 0: none are taken
  uint32_t task_processes_max = 16384;  // processes and threads that one task may have at a time
  // [driver]
  std::string library_dir;  // "" is found; may hold the emulator's libraries
  EmulatedNodes emulated = EmulatedNodes::automatic;
  // [gpus]
  std::vector<std::string> manage;  // UUIDs; empty is all
  Duration sample_interval = kSecond;
  Duration scan_interval{10 *
                         kSecond.count()};  // between searches for users of GPUs outside of jobs; 0: none
  // [hook.NAME], by name; [mail]; [api]
  std::vector<HookConfig> hooks;
  MailConfig mail;
  ListenConfig api;
  // [share], [watchdog]
  SharePolicy share;
  WatchdogPolicy watchdog;
  // [policy], [class.*], [queue.*]: normalised, ready for PolicyChanged, but that policy.users_share_gpu says
  // what holds where nothing is enforced: the daemon raises it where parts are.
  UsersShare users_share = UsersShare::enforced;
  bool operator_recovery = false;  // a GPU that failed comes back by an operator alone, not by itself
  // [policy], [class.*], [queue.*]: normalised, ready for PolicyChanged
  Policy policy;
  bool operator==(const DaemonConfig&) const = default;

  std::string socket_path() const { return socket.empty() ? run_dir + "/tranche.sock" : socket; }
};

struct ConfigSource {
  std::string origin;  // file name as it stands in errors
  std::string text;
};

// Where an error is; line and column from 1, 0 if it belongs to no line.
struct ConfigPosition {
  std::string origin;
  uint32_t line = 0;
  uint32_t column = 0;
};

// Parses, merges in the given order, validates and normalises. `where`, if given, receives the position of
// the error, for answers that carry it apart from the sentence.
Result<DaemonConfig> parse_config(std::span<const ConfigSource> sources, ConfigPosition* where = nullptr);
Result<DaemonConfig> parse_config_text(std::string_view text, std::string_view origin,
                                       ConfigPosition* where = nullptr);

// Reads `path` and `<directory of path>/conf.d/*.toml`. A missing `path` is an error; a missing conf.d is
// not.
Result<DaemonConfig> load_config(const std::string& path, ConfigPosition* where = nullptr);

// What the policy means, in sentences for `tranche config explain`.
std::vector<std::string> explain_policy(const Policy& policy);
// The same with how GPUs are shared and watched.
std::vector<std::string> explain_config(const DaemonConfig& config);

// "2 GPUs", "1 GPU", "0.5 GPU".
std::string format_gpus(MilliGpu amount);

// One key of the configuration, as the code knows it; docs/configuration.md is compared with this.
struct ConfigKey {
  std::string_view table;  // "daemon", "class.NAME", "queue.PATH"
  std::string_view name;
  std::string_view kind;  // "text", "path", "switch", "duration", "GPUs", "size", "number", "list", "choice"
  std::string default_text;  // as TOML; "" if none
};
std::vector<ConfigKey> config_keys();

}  // namespace tranche
