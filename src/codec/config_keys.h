// Every key of the configuration: its name, its kind, its default and what takes its value. Used by
// config.cc.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "codec/config.h"
#include "codec/config_document.h"

namespace tranche::config {

template <class Target>
struct Key {
  std::string_view name;
  std::string_view kind;
  std::string_view default_text;  // as TOML
  // Puts the value into `target`; answers what is wrong with it, "" if nothing.
  std::string (*take)(const Entry& entry, Target& target);
};

std::span<const Key<DaemonConfig>> daemon_keys();
std::span<const Key<DaemonConfig>> driver_keys();
std::span<const Key<DaemonConfig>> gpus_keys();
std::span<const Key<Policy>> policy_keys();
std::span<const Key<DaemonConfig>> sharing_keys();  // of [policy] too
std::span<const Key<SharePolicy>> share_keys();
std::span<const Key<WatchdogPolicy>> watchdog_keys();
std::span<const Key<HookConfig>> hook_keys();
std::span<const Key<MailConfig>> mail_keys();
std::span<const Key<ListenConfig>> api_keys();
std::span<const Key<ClassPolicy>> class_keys();
std::span<const Key<QueuePolicy>> queue_keys();

// What is wrong with the name of a hook, "" if nothing.
std::string check_hook_name(std::string_view name);
// What is wrong with a queue path in the configuration, "" if nothing.
std::string check_queue_path(std::string_view path);

}  // namespace tranche::config
