#include "machine/user_directory.h"

#include <grp.h>
#include <pwd.h>

#include <algorithm>
#include <vector>

namespace tranche::machine {
namespace {

constexpr Duration kRememberFor = kMinute;
constexpr size_t kUsersMax = 10'000;

std::optional<uint32_t> look_up_group(const std::string& name) {
  group entry{};
  group* found = nullptr;
  std::vector<char> buffer(1 << 16);
  if (::getgrnam_r(name.c_str(), &entry, buffer.data(), buffer.size(), &found) != 0 || found == nullptr) {
    return std::nullopt;
  }
  return found->gr_gid;
}

std::vector<uint32_t> look_up_groups(const UserRecord& user) {
  constexpr size_t kGroupsMax = 65536;  // NGROUPS_MAX of Linux
  std::vector<gid_t> groups(64);
  int count = static_cast<int>(groups.size());
  while (::getgrouplist(user.name.c_str(), user.gid, groups.data(), &count) < 0) {
    const auto wanted = static_cast<size_t>(std::max(count, 0));
    if (wanted > kGroupsMax || wanted <= groups.size()) return {user.gid};
    groups.resize(wanted);
  }
  groups.resize(static_cast<size_t>(count));
  return {groups.begin(), groups.end()};
}

}  // namespace

const UserRecord* UserDirectory::find(uint32_t uid) {
  const Duration now = clock_.since_boot();
  const auto remembered = users_.find(uid);
  if (remembered != users_.end() && now < remembered->second.until) {
    return remembered->second.record ? &*remembered->second.record : nullptr;
  }
  if (users_.size() >= kUsersMax) users_.clear();
  Remembered& fresh = users_[uid];
  fresh = {look_up(uid), now + kRememberFor};
  return fresh.record ? &*fresh.record : nullptr;
}

std::string UserDirectory::name(uint32_t uid) {
  const UserRecord* user = find(uid);
  return user == nullptr ? std::to_string(uid) : user->name;
}

std::vector<uint32_t> UserDirectory::groups(uint32_t uid) {
  const UserRecord* user = find(uid);
  if (user == nullptr) return {};
  auto& remembered = users_.find(uid)->second.groups;
  if (!remembered) remembered = look_up_groups(*user);
  return *remembered;
}

std::optional<uint32_t> UserDirectory::uid_of(const std::string& name) {
  passwd entry{};
  passwd* found = nullptr;
  std::vector<char> buffer(1 << 14);
  if (::getpwnam_r(name.c_str(), &entry, buffer.data(), buffer.size(), &found) != 0 || found == nullptr) {
    return std::nullopt;
  }
  return found->pw_uid;
}

bool UserDirectory::is_group(const std::string& group, uint32_t gid) {
  const Duration now = clock_.since_boot();
  auto& [found, until] = groups_[group];
  if (now >= until) {
    found = look_up_group(group);
    until = now + kRememberFor;
  }
  return found == gid;
}

std::optional<UserRecord> UserDirectory::look_up(uint32_t uid) {
  passwd entry{};
  passwd* found = nullptr;
  std::vector<char> buffer(1 << 14);
  if (::getpwuid_r(uid, &entry, buffer.data(), buffer.size(), &found) != 0 || found == nullptr) {
    return std::nullopt;
  }
  return UserRecord{found->pw_name, found->pw_gid, found->pw_dir, found->pw_shell};
}

}  // namespace tranche::machine
