#include "codec/config_keys.h"

#include <algorithm>

#include "base/quantity_text.h"
#include "base/utf8.h"
#include "codec/duration_text.h"
#include "codec/json_decoder.h"
#include "codec/json_document.h"
#include "codec/limits.h"
#include "codec/nearest_name.h"

namespace tranche::config {
namespace {

// What a value is, in an error.
std::string shown_value(const Entry& entry) {
  return entry.kind == Kind::text ? json::shown(entry.text) : entry.text.substr(0, 40);
}

// The member that a pointer to member points to, and the struct that it is in.
template <class MemberPointer>
struct MemberOf;
template <class Member, class Base>
struct MemberOf<Member Base::*> {
  using Object = Base;
  using Type = Member;
};
template <auto kMember>
using Object = typename MemberOf<decltype(kMember)>::Object;
template <auto kMember>
using Member = typename MemberOf<decltype(kMember)>::Type;

template <auto kMember>
std::string take_switch(const Entry& entry, Object<kMember>& target) {
  if (entry.kind != Kind::boolean) return "must be true or false, not " + shown_value(entry);
  target.*kMember = entry.flag;
  return "";
}

template <auto kMember, int64_t kLow, int64_t kHigh>
std::string take_integer(const Entry& entry, Object<kMember>& target) {
  if (entry.kind != Kind::integer || entry.integer < kLow || entry.integer > kHigh) {
    return "must be a whole number from " + std::to_string(kLow) + " to " + std::to_string(kHigh) + ", not " +
           shown_value(entry);
  }
  target.*kMember = static_cast<Member<kMember>>(entry.integer);
  return "";
}

// GPUs as people write them, 2 or 0.5, into thousandths. The decimal has its shortest form, so "0.5" is
// exactly what was written.
template <auto kMember>
std::string take_gpus(const Entry& entry, Object<kMember>& target) {
  constexpr std::string_view kAdvice =
      "must be a number of GPUs from 0 to 1000000 with at most three places, like 2 or 0.5, not ";
  if (entry.kind == Kind::text) {
    return std::string(kAdvice) + shown_value(entry) + ": write the number without quotes and without unit";
  }
  if (entry.kind != Kind::integer && entry.kind != Kind::decimal)
    return std::string(kAdvice) + shown_value(entry);
  const auto thousandths = parse_thousandths(
      entry.text.ends_with(".0") ? entry.text.substr(0, entry.text.size() - 2) : entry.text);
  if (!thousandths || *thousandths > limits::kQueueComputeMilliMax)
    return std::string(kAdvice) + shown_value(entry);
  target.*kMember = MilliGpu(*thousandths);
  return "";
}

template <auto kMember, int64_t kLow, int64_t kHigh>
std::string take_duration(const Entry& entry, Object<kMember>& target) {
  if (entry.kind != Kind::text) {
    return "must be a duration in quotes with its unit, like \"90s\", \"30m\", \"2h\" or \"7d\", not " +
           shown_value(entry);
  }
  const auto duration = parse_exact_duration(entry.text);
  if (!duration) return duration.error().message();
  if (duration->count() < kLow || duration->count() > kHigh) {
    return "must be from " + format_exact_duration(Duration(kLow)) + " to " +
           format_exact_duration(Duration(kHigh)) + ", not " + shown_value(entry);
  }
  target.*kMember = *duration;
  return "";
}

template <auto kMember>
std::string take_size(const Entry& entry, Object<kMember>& target) {
  if (entry.kind == Kind::integer)
    return "must be a size in quotes with its unit, like \"64M\" or \"2G\", not " + entry.text;
  if (entry.kind != Kind::text)
    return "must be a size in quotes, like \"64M\" or \"2G\", not " + shown_value(entry);
  const auto size = parse_memory(entry.text);
  if (!size) return size.error().message();
  target.*kMember = *size;
  return "";
}

// A scan reads every process's descriptors.
constexpr int64_t kLeastScan = 100 * kMillisecond.count();

bool has_control_characters(std::string_view text) {
  return std::any_of(text.begin(), text.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte < 0x20 || byte == 0x7f;
  });
}

template <auto kMember, size_t kBytesMax>
std::string take_path(const Entry& entry, Object<kMember>& target) {
  if (entry.kind != Kind::text) return "must be a path in quotes, not " + shown_value(entry);
  if (!entry.text.empty() && (!entry.text.starts_with('/') || has_control_characters(entry.text))) {
    return "must be an absolute path, not " + shown_value(entry);
  }
  if (entry.text.size() > kBytesMax) return "must be at most " + std::to_string(kBytesMax) + " bytes long";
  target.*kMember = entry.text;
  return "";
}

template <auto kMember>
std::string take_required_path(const Entry& entry, Object<kMember>& target) {
  if (entry.kind == Kind::text && entry.text.empty()) return "must not be empty";
  return take_path<kMember, limits::kPathBytes>(entry, target);
}

template <auto kMember>
std::string take_names(const Entry& entry, Object<kMember>& target) {
  if (entry.kind != Kind::list)
    return "must be a list of names, like [\"ada\", \"grace\"], not " + shown_value(entry);
  if (entry.list.size() > 1000) return "must have at most 1000 names";
  for (const std::string& name : entry.list) {
    if (name.empty() || name.size() > limits::kNameBytes || !is_printable_text(name)) {
      return "must be a list of names of at most 128 bytes, and " + json::shown(name) + " is none";
    }
  }
  target.*kMember = entry.list;
  return "";
}

std::string take_managed_gpus(const Entry& entry, DaemonConfig& target) {
  if (entry.kind == Kind::text && entry.text == "all") {
    target.manage.clear();
    return "";
  }
  if (entry.kind != Kind::list) return "must be \"all\" or a list of UUIDs, not " + shown_value(entry);
  if (entry.list.empty()) return "must name at least one GPU, or be \"all\"";
  for (const std::string& uuid : entry.list) {
    if (!uuid.starts_with("GPU-") || uuid.size() > limits::kNameBytes || !is_printable_text(uuid)) {
      return json::shown(uuid) +
             " is not a GPU's UUID: write it as nvidia-smi -L shows it, like \"GPU-5c2a...\"";
    }
  }
  target.manage = entry.list;
  return "";
}

std::string take_log_level(const Entry& entry, DaemonConfig& target) {
  const auto level = entry.kind == Kind::text ? from_string<LogThreshold>(entry.text) : std::nullopt;
  if (!level) return "must be \"error\", \"warning\", \"info\" or \"debug\", not " + shown_value(entry);
  target.log_level = *level;
  return "";
}

std::string take_mode(const Entry& entry, DaemonConfig& target) {
  const auto mode = entry.kind == Kind::text ? from_string<DaemonMode>(entry.text) : std::nullopt;
  if (!mode) return "must be \"manage\" or \"observe\", not " + shown_value(entry);
  target.mode = *mode;
  return "";
}

std::string take_emulated(const Entry& entry, DaemonConfig& target) {
  if (entry.kind == Kind::boolean)
    target.emulated = entry.flag ? EmulatedNodes::yes : EmulatedNodes::no;
  else if (entry.kind == Kind::text && entry.text == "auto")
    target.emulated = EmulatedNodes::automatic;
  else
    return "must be \"auto\", true or false, not " + shown_value(entry);
  return "";
}

std::string take_recovery(const Entry& entry, DaemonConfig& target) {
  const bool known = entry.kind == Kind::text && (entry.text == "automatic" || entry.text == "operator");
  if (!known) return "must be \"automatic\" or \"operator\", not " + shown_value(entry);
  target.operator_recovery = entry.text == "operator";
  return "";
}

std::string take_scan_interval(const Entry& entry, DaemonConfig& target) {
  std::string problem = take_duration<&DaemonConfig::scan_interval, 0, kHour.count()>(entry, target);
  if (problem.empty() && target.scan_interval > Duration{} && target.scan_interval < Duration(kLeastScan))
    return "must be at least 100ms, or \"0s\" for never";
  return problem;
}

std::string take_users_share(const Entry& entry, DaemonConfig& target) {
  if (entry.kind == Kind::boolean)
    target.users_share = entry.flag ? UsersShare::always : UsersShare::never;
  else if (entry.kind == Kind::text && entry.text == "enforced")
    target.users_share = UsersShare::enforced;
  else
    return "must be \"enforced\", true or false, not " + shown_value(entry);
  return "";
}

// One of an enumeration's words.
template <auto kMember>
std::string take_word(const Entry& entry, Object<kMember>& target) {
  using Enum = Member<kMember>;
  if (const auto value = entry.kind == Kind::text ? from_string<Enum>(entry.text) : std::nullopt) {
    target.*kMember = *value;
    return "";
  }
  std::string words;
  for (int i = 0; to_string(static_cast<Enum>(i)) != "?"; ++i)
    words += (words.empty() ? "\"" : ", \"") + std::string(to_string(static_cast<Enum>(i))) + "\"";
  return "must be one of " + words + ", not " + shown_value(entry);
}

// The signals that a program can be told with and may catch.
std::string take_recall_signal(const Entry& entry, SharePolicy& target) {
  constexpr std::pair<std::string_view, int32_t> kSignals[] = {{"none", 0},  {"HUP", 1},  {"USR1", 10},
                                                               {"USR2", 12}, {"URG", 23}, {"WINCH", 28}};
  for (const auto& [name, number] : kSignals) {
    if (entry.kind != Kind::text || entry.text != name) continue;
    target.recall_signal = number;
    return "";
  }
  return "must be \"URG\", \"USR1\", \"USR2\", \"HUP\", \"WINCH\" or \"none\", not " + shown_value(entry);
}

std::string take_listen(const Entry& entry, ListenConfig& target) {
  const size_t colon = entry.kind == Kind::text ? entry.text.rfind(':') : std::string::npos;
  const bool has_address = colon != std::string::npos && colon > 0 && entry.text.size() <= limits::kNameBytes;
  const bool has_port =
      has_address && parse_integer(std::string_view(entry.text).substr(colon + 1), 1, 65535, "a port");
  if (!has_port && (entry.kind != Kind::text || !entry.text.empty())) {
    return "must be a numeric address with a port, like \"0.0.0.0:7443\" or \"[::]:7443\", not " +
           shown_value(entry);
  }
  target.listen = entry.text;
  return "";
}

template <auto kMember>
std::string take_line(const Entry& entry, Object<kMember>& target) {
  if (entry.kind != Kind::text || entry.text.size() > limits::kNameBytes || !is_printable_text(entry.text) ||
      entry.text.find_first_of(" <>,;\"'") != std::string::npos) {
    return "must be a word in quotes, not " + shown_value(entry);
  }
  target.*kMember = entry.text;
  return "";
}

std::string take_url(const Entry& entry, HookConfig& target) {
  const bool is_web = entry.text.starts_with("https://") || entry.text.starts_with("http://");
  if (entry.kind != Kind::text || !is_web || entry.text.size() > limits::kPathBytes ||
      !is_printable_text(entry.text) || entry.text.find(' ') != std::string::npos) {
    return "must be an address that begins with https:// or http://, not " + shown_value(entry);
  }
  target.url = entry.text;
  return "";
}

std::string take_hook_events(const Entry& entry, HookConfig& target) {
  if (entry.kind != Kind::list)
    return "must be a list, like [\"started\", \"ended\"], not " + shown_value(entry);
  for (const std::string& event : entry.list) {
    if (event != "started" && event != "ended" && event != "failed")
      return "may name \"started\", \"ended\" and \"failed\", not " + json::shown(event);
  }
  target.events = entry.list;
  return "";
}

// The model's flag says what is not.
std::string take_head_reservation(const Entry& entry, Policy& target) {
  if (entry.kind != Kind::boolean) return "must be true or false, not " + shown_value(entry);
  target.no_head_reservation = !entry.flag;
  return "";
}

template <auto kMember>
std::string take_choice(const Entry& entry, Object<kMember>& target) {
  const auto value = entry.kind == Kind::text ? from_string<Member<kMember>>(entry.text) : std::nullopt;
  if (value) {
    target.*kMember = *value;
    return "";
  }
  std::string names;
  for (const std::string_view name : json::detail::enum_texts<Member<kMember>>())
    names += (names.empty() ? "\"" : ", \"") + std::string(name) + "\"";
  return "must be one of " + names + ", not " + shown_value(entry);
}

// CPUs as people write them, 2 or 0.5, into thousandths.
template <auto kMember>
std::string take_cpus(const Entry& entry, Object<kMember>& target) {
  const bool is_number = entry.kind == Kind::integer || entry.kind == Kind::decimal;
  const auto thousandths = parse_thousandths(
      entry.text.ends_with(".0") ? entry.text.substr(0, entry.text.size() - 2) : entry.text);
  if (!is_number || !thousandths || *thousandths > limits::kCpuMilliMax) {
    return "must be a number of CPUs from 0 to 1000000 with at most three places, like 16 or 0.5, not " +
           shown_value(entry);
  }
  target.*kMember = MilliCpu(*thousandths);
  return "";
}

// One GPU is what is meant where nothing is said.
std::string take_reclaim_surplus(const Entry& entry, Policy& target) {
  std::string problem = take_gpus<&Policy::reclaim_surplus>(entry, target);
  if (target.reclaim_surplus == kWholeGpu) target.reclaim_surplus.reset();
  return problem;
}

std::string take_default_queue(const Entry& entry, Policy& target) {
  if (entry.kind != Kind::text) return "must be a queue's path in quotes, not " + shown_value(entry);
  if (std::string problem = check_queue_path(entry.text); !problem.empty()) return problem;
  target.default_queue = entry.text;
  return "";
}

// sun_path of Linux is 108 bytes, with its NUL.
constexpr size_t kSocketPathBytes = 107;
constexpr int64_t kLongest = kDurationMax.count();
// The kernel's own bound of pid numbers (PID_MAX_LIMIT).
constexpr int64_t kProcessesMax = 4'194'304;

constexpr Key<DaemonConfig> kDaemonKeys[] = {
    {"mode", "choice", "\"manage\"", take_mode},
    {"run_dir", "path", "\"/run/tranche\"", take_required_path<&DaemonConfig::run_dir>},
    {"state_dir", "path", "\"/var/lib/tranche\"", take_required_path<&DaemonConfig::state_dir>},
    {"socket", "path", "\"\"", take_path<&DaemonConfig::socket, kSocketPathBytes>},
    {"cgroup_root", "path", "\"\"", take_path<&DaemonConfig::cgroup_root, limits::kPathBytes>},
    {"operator_groups", "list", "[\"tranche-operators\"]", take_names<&DaemonConfig::operator_groups>},
    {"operator_users", "list", "[]", take_names<&DaemonConfig::operator_users>},
    {"log_level", "choice", "\"info\"", take_log_level},
    {"journal_ballast", "size", "\"64M\"", take_size<&DaemonConfig::journal_ballast>},
    {"snapshot_rows", "number", "10000", take_integer<&DaemonConfig::snapshot_rows, 0, 1'000'000'000>},
    {"task_processes_max", "number", "16384",
     take_integer<&DaemonConfig::task_processes_max, 16, kProcessesMax>},
};
constexpr Key<DaemonConfig> kDriverKeys[] = {
    {"library_dir", "path", "\"\"", take_path<&DaemonConfig::library_dir, limits::kPathBytes>},
    {"emulated", "choice", "\"auto\"", take_emulated},
};
constexpr Key<DaemonConfig> kGpusKeys[] = {
    {"manage", "list", "\"all\"", take_managed_gpus},
    {"sample_interval", "duration", "\"1s\"",
     take_duration<&DaemonConfig::sample_interval, 100 * kMillisecond.count(), kHour.count()>},
    {"scan_interval", "duration", "\"10s\"", take_scan_interval},
    {"recovery", "choice", "\"automatic\"", take_recovery},
};
constexpr Key<Policy> kPolicyKeys[] = {
    {"default_queue", "text", "\"default\"", take_default_queue},
    {"half_life", "duration", "\"7d\"", take_duration<&Policy::usage_half_life, 0, kLongest>},
    {"minimum_runtime", "duration", "\"10m\"", take_duration<&Policy::minimum_runtime, 0, kLongest>},
    {"grace", "duration", "\"30s\"", take_duration<&Policy::grace_default, 0, kDay.count()>},
    {"backfill", "switch", "true", take_switch<&Policy::backfill>},
    {"jobs_per_user_max", "number", "20000", take_integer<&Policy::jobs_per_user_max, 1, 1'000'000>},
    {"head_reservation", "switch", "true", take_head_reservation},
    {"backfill_order", "choice", "\"queue\"", take_choice<&Policy::backfill_order>},
    {"placement", "choice", "\"pack\"", take_choice<&Policy::placement>},
    {"gpu_placement", "choice", "\"pack\"", take_choice<&Policy::gpu_placement>},
    {"share_unit", "GPUs", "0", take_gpus<&Policy::share_unit>},
    {"reclaim_surplus", "GPUs", "1", take_reclaim_surplus},
    {"consolidation_moves", "number", "0", take_integer<&Policy::consolidation_moves, 0, limits::kTasksMax>},
    {"topology_levels", "list", "[]", take_names<&Policy::topology_levels>},
    {"only_action", "choice", "\"all\"", take_choice<&Policy::only_action>},
};
constexpr Key<DaemonConfig> kSharingKeys[] = {
    {"users_share_gpu", "choice", "\"enforced\"", take_users_share},
};
constexpr Key<SharePolicy> kShareKeys[] = {
    {"recall_signal", "choice", "\"URG\"", take_recall_signal},
    {"recall_grace", "duration", "\"30s\"", take_duration<&SharePolicy::recall_grace, 0, kDay.count()>},
    {"recall_end", "choice", "\"requeue\"", take_word<&SharePolicy::recall_end>},
};
constexpr Key<WatchdogPolicy> kWatchdogKeys[] = {
    {"pause_after", "duration", "\"0s\"", take_duration<&WatchdogPolicy::pause_after, 0, kDay.count()>},
    {"end_after", "duration", "\"0s\"", take_duration<&WatchdogPolicy::end_after, 0, kDay.count()>},
    {"unguarded", "choice", "\"report\"", take_word<&WatchdogPolicy::unguarded>},
    {"foreign", "choice", "\"drain\"", take_word<&WatchdogPolicy::foreign>},
};
constexpr Key<HookConfig> kHookKeys[] = {
    {"url", "text", "", take_url},
    {"secret_file", "path", "\"\"", take_path<&HookConfig::secret_file, limits::kPathBytes>},
    {"ca_file", "path", "\"\"", take_path<&HookConfig::ca_file, limits::kPathBytes>},
    {"all_jobs", "switch", "false", take_switch<&HookConfig::all_jobs>},
    {"alerts", "switch", "false", take_switch<&HookConfig::alerts>},
    {"private_address", "switch", "false", take_switch<&HookConfig::private_address>},
    {"events", "list", "[\"ended\"]", take_hook_events},
};
constexpr Key<MailConfig> kMailKeys[] = {
    {"program", "path", "\"\"", take_path<&MailConfig::program, limits::kPathBytes>},
    {"domain", "text", "\"\"", take_line<&MailConfig::domain>},
    {"from", "text", "\"tranche\"", take_line<&MailConfig::from>},
};
constexpr Key<ListenConfig> kApiKeys[] = {
    {"listen", "text", "\"\"", take_listen},
    {"certificate", "path", "\"\"", take_path<&ListenConfig::certificate, limits::kPathBytes>},
    {"key", "path", "\"\"", take_path<&ListenConfig::key, limits::kPathBytes>},
    {"connections_max", "number", "512", take_integer<&ListenConfig::connections_max, 1, 10'000>},
    {"connections_per_address_max", "number", "64",
     take_integer<&ListenConfig::connections_per_address_max, 1, 10'000>},
};
constexpr Key<ClassPolicy> kClassKeys[] = {
    {"priority", "number", "",
     take_integer<&ClassPolicy::priority, -limits::kPriorityMax, limits::kPriorityMax>},
    {"preemptible", "switch", "", take_switch<&ClassPolicy::preemptible>},
    {"time_limit", "duration", "\"1d\"",
     take_duration<&ClassPolicy::time_limit_default, kSecond.count(), kLongest>},
    {"time_limit_max", "duration", "\"7d\"",
     take_duration<&ClassPolicy::time_limit_max, kSecond.count(), kLongest>},
};
constexpr Key<QueuePolicy> kQueueKeys[] = {
    {"quota", "GPUs", "", take_gpus<&QueuePolicy::quota>},
    {"limit", "GPUs", "", take_gpus<&QueuePolicy::limit>},
    {"weight", "number", "1", take_integer<&QueuePolicy::weight, 0, limits::kWeightMax>},
    {"priority", "number", "0",
     take_integer<&QueuePolicy::priority, -limits::kPriorityMax, limits::kPriorityMax>},
    {"user_limit", "GPUs", "", take_gpus<&QueuePolicy::user_limit>},
    {"quota_cpu", "CPUs", "", take_cpus<&QueuePolicy::quota_cpu>},
    {"limit_cpu", "CPUs", "", take_cpus<&QueuePolicy::limit_cpu>},
    {"quota_memory", "size", "", take_size<&QueuePolicy::quota_memory>},
    {"limit_memory", "size", "", take_size<&QueuePolicy::limit_memory>},
};

}  // namespace

std::span<const Key<DaemonConfig>> daemon_keys() { return kDaemonKeys; }
std::span<const Key<DaemonConfig>> driver_keys() { return kDriverKeys; }
std::span<const Key<DaemonConfig>> gpus_keys() { return kGpusKeys; }
std::span<const Key<Policy>> policy_keys() { return kPolicyKeys; }
std::span<const Key<DaemonConfig>> sharing_keys() { return kSharingKeys; }
std::span<const Key<SharePolicy>> share_keys() { return kShareKeys; }
std::span<const Key<WatchdogPolicy>> watchdog_keys() { return kWatchdogKeys; }
std::span<const Key<HookConfig>> hook_keys() { return kHookKeys; }
std::span<const Key<MailConfig>> mail_keys() { return kMailKeys; }
std::span<const Key<ListenConfig>> api_keys() { return kApiKeys; }
std::span<const Key<ClassPolicy>> class_keys() { return kClassKeys; }
std::span<const Key<QueuePolicy>> queue_keys() { return kQueueKeys; }

std::string check_hook_name(std::string_view name) {
  const bool good = !name.empty() && name.size() <= 32 && name != "mail" &&
                    std::all_of(name.begin(), name.end(), [](char c) {
                      return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
                    });
  if (good) return "";
  return json::shown(name) +
         " is not a hook's name: write up to 32 of a-z, 0-9, dash and underscore, and not mail";
}

std::string check_queue_path(std::string_view path) {
  constexpr std::string_view kAdvice =
      ": write one to seven names of a-z, 0-9, dot, dash and underscore with / between them, like "
      "\"physics/vision\"";
  // One level is left for the user's leaf.
  size_t levels = 1;
  bool good =
      !path.empty() && path.size() <= limits::kQueuePathBytes && path.front() != '/' && path.back() != '/';
  for (size_t i = 0; i < path.size(); ++i) {
    const char c = path[i];
    if (c == '/') {
      ++levels;
      good = good && path[i - (i > 0 ? 1 : 0)] != '/';
    } else {
      good = good && ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-');
    }
  }
  if (good && levels < limits::kQueueLevels) return "";
  return json::shown(path) + " is not a queue's path" + std::string(kAdvice);
}

}  // namespace tranche::config
