#include "codec/config.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <map>

#include "codec/config_document.h"
#include "codec/config_keys.h"
#include "codec/json_document.h"
#include "codec/limits.h"
#include "codec/nearest_name.h"

namespace tranche {
namespace {

using config::Entry;
using config::Key;

constexpr size_t kSourcesMax = 256;

class ConfigReader {
 public:
  ConfigReader(const config::Document& document, ConfigPosition* where)
      : document_(document), where_(where) {}

  Result<DaemonConfig> read() {
    for (const Entry& entry : document_.entries) TRY(take(entry));
    config_.policy.users_share_gpu = config_.users_share == UsersShare::always;
    TRY(check_classes());
    TRY(take_hooks_and_listener());
    add_missing_queues();
    for (auto& [path, queue] : queues_) config_.policy.queues.push_back(queue);
    TRY(check_queues());
    return std::move(config_);
  }

 private:
  tl::unexpected<Error> refuse(const ConfigPosition& position, const std::string& problem) {
    *where_ = position;
    return fail(ErrorCode::invalid_argument, config::to_text(position) + ": " + problem);
  }

  Result<void> take(const Entry& entry) {
    constexpr std::string_view kTables[] = {"daemon", "driver", "gpus", "share", "watchdog", "policy",
                                            "class",  "queue",  "hook", "mail",  "api"};
    const std::string& table = entry.path.front();
    if (std::find(std::begin(kTables), std::end(kTables), table) == std::end(kTables)) {
      const std::string what =
          entry.kind == config::Kind::table ? "the table [" + table + "]" : "the key " + json::shown(table);
      return refuse(entry.position, what + " is not known" + nearest_name_hint(table, kTables));
    }
    const bool named = table == "class" || table == "queue" || table == "hook";
    if (entry.path.size() == 1 || (named && entry.path.size() == 2)) return take_table(entry, named);
    if (table == "daemon") return take_key(entry, config::daemon_keys(), config_);
    if (table == "driver") return take_key(entry, config::driver_keys(), config_);
    if (table == "gpus") return take_key(entry, config::gpus_keys(), config_);
    if (table == "mail") return take_key(entry, config::mail_keys(), config_.mail);
    if (table == "api") return take_key(entry, config::api_keys(), config_.api);
    if (table == "hook") return take_key(entry, config::hook_keys(), hooks_[entry.path[1]]);
    if (table == "share") return take_key(entry, config::share_keys(), config_.share);
    if (table == "watchdog") return take_key(entry, config::watchdog_keys(), config_.watchdog);
    if (table == "policy" && entry.path[1] == config::sharing_keys().front().name)
      return take_key(entry, config::sharing_keys(), config_);
    if (table == "policy") return take_key(entry, config::policy_keys(), config_.policy);
    if (table == "queue") return take_key(entry, config::queue_keys(), queues_[entry.path[1]]);
    const auto job_class = from_string<JobClass>(entry.path[1]);
    return take_key(entry, config::class_keys(), config_.policy.classes[static_cast<size_t>(*job_class)]);
  }

  // [daemon], [class], [class.training], [queue."physics/vision"]: tables and nothing else.
  Result<void> take_table(const Entry& entry, bool named) {
    const std::string& table = entry.path.front();
    if (entry.kind != config::Kind::table) {
      const std::string example = named ? "[" + table + ".NAME]" : "[" + table + "]";
      return refuse(entry.position, json::shown(entry.path.back()) + " must be a table: write " + example +
                                        " on a line of its own, and the keys below it");
    }
    if (entry.path.size() == 1) return {};
    const std::string& name = entry.path[1];
    if (table == "class") {
      constexpr std::string_view kClasses[] = {"training", "inference", "interactive"};
      if (from_string<JobClass>(name)) return {};
      return refuse(entry.position,
                    "the class " + json::shown(name) + " is not known" + nearest_name_hint(name, kClasses));
    }
    if (table == "hook") {
      if (std::string problem = config::check_hook_name(name); !problem.empty())
        return refuse(entry.position, problem);
      if (hooks_.size() >= limits::kHooks) return refuse(entry.position, "there are more than 16 hooks");
      hooks_[name].name = name;
      return {};
    }
    if (std::string problem = config::check_queue_path(name); !problem.empty())
      return refuse(entry.position, problem);
    if (queues_.size() >= limits::kQueues) return refuse(entry.position, "there are more than 10000 queues");
    queues_[name].path = name;
    return {};
  }

  template <class Target>
  Result<void> take_key(const Entry& entry, std::span<const Key<Target>> keys, Target& target) {
    const bool is_named = entry.path[0] == "class" || entry.path[0] == "queue" || entry.path[0] == "hook";
    const size_t level = is_named ? 2 : 1;
    const std::string& name = entry.path[level];
    for (const Key<Target>& key : keys) {
      if (key.name != name) continue;
      if (entry.path.size() > level + 1)
        return refuse(entry.position, json::shown(name) + " takes a value, not keys");
      const std::string problem = key.take(entry, target);
      return problem.empty() ? Result<void>() : refuse(entry.position, name + " " + problem);
    }
    std::vector<std::string_view> names;
    for (const Key<Target>& key : keys) names.push_back(key.name);
    return refuse(entry.position, "the key " + json::shown(name) + " is not known in " +
                                      table_of(entry, level) + nearest_name_hint(name, names));
  }

  static std::string table_of(const Entry& entry, size_t level) {
    if (level == 1) return "[" + entry.path[0] + "]";
    const std::string& name = entry.path[1];
    return "[" + entry.path[0] + "." + (entry.path[0] == "queue" ? "\"" + name + "\"" : name) + "]";
  }

  // Where a key was set, or its file if it was not.
  ConfigPosition position_of(const std::vector<std::string>& path) const {
    const auto found = document_.by_path.find(path);
    if (found != document_.by_path.end()) return document_.entries[found->second].position;
    return document_.entries.empty() ? ConfigPosition{}
                                     : ConfigPosition{document_.entries.front().position.origin, 0, 0};
  }

  Result<void> take_hooks_and_listener() {
    for (auto& [name, hook] : hooks_) {
      if (hook.url.empty()) {
        return refuse(position_of({"hook", name}),
                      "the hook " + json::shown(name) + " has no url: say where it posts to");
      }
      config_.hooks.push_back(std::move(hook));
    }
    if (config_.api.listen.empty()) return {};
    if (!config_.api.certificate.empty() && !config_.api.key.empty()) return {};
    return refuse(position_of({"api", "listen"}),
                  "listen needs certificate and key in [api]: TCP is served with TLS only");
  }

  Result<void> check_classes() {
    for (size_t i = 0; i < kJobClassCount; ++i) {
      const ClassPolicy& policy = config_.policy.classes[i];
      if (policy.time_limit_default <= policy.time_limit_max) continue;
      const std::string name(to_string(static_cast<JobClass>(i)));
      ConfigPosition position = position_of({"class", name, "time_limit"});
      if (position.line == 0) position = position_of({"class", name, "time_limit_max"});
      return refuse(position, "time_limit of class " + name +
                                  " is above its time_limit_max: raise time_limit_max or lower time_limit");
    }
    return {};
  }

  // Parents that only their children name, and the default queue, so that the policy is whole.
  void add_missing_queues() {
    std::vector<std::string> paths = {config_.policy.default_queue};
    for (const auto& [path, queue] : queues_) paths.push_back(path);
    for (const std::string& path : paths) {
      for (size_t slash = path.find('/'); slash != std::string::npos; slash = path.find('/', slash + 1)) {
        queues_[path.substr(0, slash)].path = path.substr(0, slash);
      }
      queues_[path].path = path;
    }
  }

  Result<void> check_queues() {
    for (const QueuePolicy& queue : config_.policy.queues) {
      if (queue.quota && queue.limit && *queue.quota > *queue.limit) {
        return refuse(position_of({"queue", queue.path, "quota"}),
                      "the quota of queue " + json::shown(queue.path) +
                          " is above its limit: raise the limit or lower the quota");
      }
      TRY(check_ancestors(queue));
    }
    return {};
  }

  Result<void> check_ancestors(const QueuePolicy& queue) {
    if (!queue.quota) return {};
    for (size_t slash = queue.path.rfind('/'); slash != std::string::npos && slash > 0;
         slash = queue.path.rfind('/', slash - 1)) {
      const QueuePolicy& parent = queues_[queue.path.substr(0, slash)];
      if (!parent.limit || *queue.quota <= *parent.limit) continue;
      return refuse(position_of({"queue", queue.path, "quota"}),
                    "the quota of queue " + json::shown(queue.path) + " is above the limit of " +
                        json::shown(parent.path) + " and could never be used: lower it or raise that limit");
    }
    return {};
  }

  const config::Document& document_;
  ConfigPosition* where_;
  DaemonConfig config_;
  std::map<std::string, QueuePolicy> queues_;  // by path
  std::map<std::string, HookConfig> hooks_;    // by name
};

tl::unexpected<Error> cannot_read(const std::string& path, ConfigPosition* where) {
  const int error = errno;
  if (where != nullptr) *where = {path, 0, 0};
  return fail(error == ENOENT ? ErrorCode::not_found : ErrorCode::unavailable,
              path + ": cannot be read: " + std::strerror(error));
}

Result<std::string> read_file(const std::string& path, ConfigPosition* where) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY);
  if (file < 0) return cannot_read(path, where);
  std::string text;
  char buffer[16384];
  constexpr size_t kBytesMax =
      (size_t{1} << 20) + 1;  // one more than is accepted, so that too much is noticed
  ssize_t count = 0;
  while (text.size() < kBytesMax && (count = ::read(file, buffer, sizeof buffer)) > 0) {
    text.append(buffer, static_cast<size_t>(count));
  }
  if (count < 0) {
    const auto error = cannot_read(path, where);
    ::close(file);
    return fail(error.value().clone());
  }
  ::close(file);
  return text;
}

// The *.toml of a directory in lexical order; none if it does not exist.
Result<std::vector<std::string>> list_drop_ins(const std::string& directory, ConfigPosition* where) {
  std::vector<std::string> paths;
  DIR* handle = ::opendir(directory.c_str());
  if (handle == nullptr) {
    if (errno == ENOENT) return paths;
    return cannot_read(directory, where);
  }
  while (const dirent* entry = ::readdir(handle)) {
    const std::string_view name = entry->d_name;
    if (name.ends_with(".toml") && !name.starts_with('.'))
      paths.push_back(directory + "/" + std::string(name));
  }
  ::closedir(handle);
  std::sort(paths.begin(), paths.end());
  return paths;
}

template <class Target>
void list_keys(std::string_view table, std::span<const Key<Target>> keys, std::vector<ConfigKey>* out) {
  for (const Key<Target>& key : keys)
    out->push_back({table, key.name, key.kind, std::string(key.default_text)});
}

}  // namespace

Result<DaemonConfig> parse_config(std::span<const ConfigSource> sources, ConfigPosition* where) {
  ConfigPosition ignored;
  if (where == nullptr) where = &ignored;
  if (sources.size() > kSourcesMax) {
    return fail(ErrorCode::too_large, "there are more than 256 configuration files: put them together");
  }
  config::Document document;
  for (const ConfigSource& source : sources) TRY(config::merge_source(source, &document, where));
  return ConfigReader(document, where).read();
}

Result<DaemonConfig> parse_config_text(std::string_view text, std::string_view origin,
                                       ConfigPosition* where) {
  const ConfigSource source{std::string(origin), std::string(text)};
  return parse_config(std::span(&source, 1), where);
}

Result<DaemonConfig> load_config(const std::string& path, ConfigPosition* where) {
  std::vector<ConfigSource> sources;
  TRY_ASSIGN(std::string text, read_file(path, where));
  sources.push_back({path, std::move(text)});
  const size_t slash = path.rfind('/');
  const std::string directory = slash == std::string::npos ? "." : path.substr(0, slash);
  TRY_ASSIGN(const std::vector<std::string> drop_ins, list_drop_ins(directory + "/conf.d", where));
  for (const std::string& drop_in : drop_ins) {
    TRY_ASSIGN(std::string drop_in_text, read_file(drop_in, where));
    sources.push_back({drop_in, std::move(drop_in_text)});
  }
  return parse_config(sources, where);
}

std::vector<ConfigKey> config_keys() {
  std::vector<ConfigKey> keys;
  list_keys("daemon", config::daemon_keys(), &keys);
  list_keys("driver", config::driver_keys(), &keys);
  list_keys("gpus", config::gpus_keys(), &keys);
  list_keys("share", config::share_keys(), &keys);
  list_keys("watchdog", config::watchdog_keys(), &keys);
  list_keys("policy", config::policy_keys(), &keys);
  list_keys("policy", config::sharing_keys(), &keys);
  list_keys("hook.NAME", config::hook_keys(), &keys);
  list_keys("mail", config::mail_keys(), &keys);
  list_keys("api", config::api_keys(), &keys);
  list_keys("class.NAME", config::class_keys(), &keys);
  list_keys("queue.PATH", config::queue_keys(), &keys);
  return keys;
}

}  // namespace tranche
