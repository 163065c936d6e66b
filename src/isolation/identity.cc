#include "isolation/identity.h"

#include <grp.h>
#include <linux/keyctl.h>
#include <pwd.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace tranche::isolation {
namespace {

constexpr uint32_t kNobody = 65534;
constexpr size_t kMaxEntry = 1U << 20;  // bytes of one passwd entry
constexpr int kMaxGroups = 65536;       // NGROUPS_MAX of the kernel

std::string named(uint32_t uid) { return "uid " + std::to_string(uid); }

Outcome<void> look_up_user(uint32_t uid, Identity& identity) {
  std::vector<char> buffer(4096);
  passwd entry{};
  passwd* found = nullptr;
  int error = 0;
  while ((error = ::getpwuid_r(uid, &entry, buffer.data(), buffer.size(), &found)) == ERANGE) {
    if (buffer.size() >= kMaxEntry) break;
    buffer.resize(buffer.size() * 2);
  }
  if (found == nullptr) {
    return failed(EPERM, named(uid) + " is not known to the name service" +
                             (error == 0 ? "" : " (" + system_failure(error, "look-up").text + ")"));
  }
  identity.uid = uid;
  identity.primary_gid = entry.pw_gid;
  identity.name = entry.pw_name;
  return {};
}

Outcome<void> look_up_groups(Identity& identity) {
  int count = 64;
  identity.groups.resize(static_cast<size_t>(count));
  while (::getgrouplist(identity.name.c_str(), identity.primary_gid, identity.groups.data(), &count) < 0) {
    if (count > kMaxGroups) return failed(EPERM, identity.name + " is in more groups than the kernel allows");
    count = std::max(count, static_cast<int>(identity.groups.size()) * 2);
    identity.groups.resize(static_cast<size_t>(count));
  }
  identity.groups.resize(static_cast<size_t>(count));
  return {};
}

int64_t stamp_of(const char* path) {
  struct stat status {};
  if (::stat(path, &status) != 0) return 0;
  return status.st_mtim.tv_sec * 1'000'000'000 + status.st_mtim.tv_nsec + static_cast<int64_t>(status.st_ino);
}

}  // namespace

bool UserDirectory::files_changed() {
  const int64_t stamp = stamp_of("/etc/passwd") ^ (stamp_of("/etc/group") * 3);
  return std::exchange(files_stamp_ns_, stamp) != stamp;
}

Outcome<Identity> UserDirectory::find(uint32_t uid) {
  if (uid == 0) return failed(EPERM, "tasks of root are refused: submit as an ordinary user");
  if (uid < first_ordinary_uid_ || uid == kNobody || uid == ~0U) {
    return failed(EPERM, named(uid) + " is a system user (below " + std::to_string(first_ordinary_uid_) +
                             "); see --allow-system-uids-from");
  }
  const auto now = std::chrono::steady_clock::now();
  if (files_changed() || remembered_.size() > kMaxRemembered) remembered_.clear();
  const auto known = remembered_.find(uid);
  if (known != remembered_.end() && now - known->second.found < kRememberedFor) return known->second.identity;

  Identity identity;
  TRY(look_up_user(uid, identity));
  if (identity.primary_gid == 0) return failed(EPERM, identity.name + " has root's group as primary group");
  TRY(look_up_groups(identity));
  remembered_[uid] = Remembered{identity, now};
  return identity;
}

Outcome<Identity> own_identity() {
  Identity identity;
  identity.uid = ::geteuid();
  identity.primary_gid = ::getegid();
  if (identity.uid == 0 || identity.primary_gid == 0) return failed(EPERM, "personal mode is not for root");
  const passwd* entry = ::getpwuid(identity.uid);
  identity.name = entry != nullptr ? entry->pw_name : named(identity.uid);
  const int count = ::getgroups(0, nullptr);
  identity.groups.resize(static_cast<size_t>(std::max(count, 0)));
  if (count > 0 && ::getgroups(count, identity.groups.data()) < 0) return call_failed("reading groups");
  return identity;
}

bool is_member(const Identity& identity, uint32_t gid) {
  return gid == identity.primary_gid ||
         std::find(identity.groups.begin(), identity.groups.end(), gid) != identity.groups.end();
}

Outcome<void> become(const Identity& identity, uint32_t gid) {
  if (identity.uid == 0 || gid == 0) return failed(EPERM, "refused to run as root");
  if (::geteuid() == identity.uid && ::getuid() == identity.uid && ::getegid() == gid) {
    ::syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, nullptr);
    return {};
  }
  if (::setgroups(identity.groups.size(), identity.groups.data()) != 0) return call_failed("setting groups");
  if (::setresgid(gid, gid, gid) != 0) return call_failed("setting the group");
  if (::setresuid(identity.uid, identity.uid, identity.uid) != 0) return call_failed("setting the user");
  ::prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
  if (::setresuid(0, 0, 0) == 0 || ::setresgid(0, 0, 0) == 0 || ::getuid() != identity.uid ||
      ::geteuid() != identity.uid || ::getgid() != gid || ::getegid() != gid) {
    return failed(EPERM, "root could be regained after the switch to " + identity.name + "; refused");
  }
  // Without one of its own the task would see the launcher's session keyring.
  ::syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, nullptr);
  return {};
}

}  // namespace tranche::isolation
