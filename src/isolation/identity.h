// Whose a task is: a user resolved by the name service, and the one-way switch of a process to that user.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "isolation/failure.h"

namespace tranche::isolation {

struct Identity {
  uint32_t uid = 0;
  uint32_t primary_gid = 0;
  std::string name;
  std::vector<gid_t> groups;  // all, the primary one included
};

// Ordinary users have uids from here on (Debian, Red Hat); below are root and system users.
inline constexpr uint32_t kFirstOrdinaryUid = 1000;

// Looks users up and remembers them for a moment, because a name service may take milliseconds. A change of
// /etc/passwd or /etc/group is seen at once, one of a directory server within kRememberedFor.
class UserDirectory {
 public:
  static constexpr std::chrono::seconds kRememberedFor{5};
  static constexpr size_t kMaxRemembered = 4096;

  explicit UserDirectory(uint32_t first_ordinary_uid) : first_ordinary_uid_(first_ordinary_uid) {}

  // EPERM: root, a system user, nobody, unknown to the name service, or primary group root.
  Outcome<Identity> find(uint32_t uid);

 private:
  struct Remembered {
    Identity identity;
    std::chrono::steady_clock::time_point found;
  };

  bool files_changed();

  uint32_t first_ordinary_uid_;
  std::map<uint32_t, Remembered> remembered_;
  int64_t files_stamp_ns_ = 0;
};

// Who runs this, as the kernel knows it: in personal mode all tasks are of this user. EPERM: it is root.
Outcome<Identity> own_identity();

// True if `gid` is one of the identity's groups.
bool is_member(const Identity& identity, uint32_t gid);

// Gives up root for good: groups, gid, uid, ambient capabilities, session keyring; verifies that root cannot
// be had back. Single-threaded callers only. After a failure the process must end. Who is no root and is
// asked to become itself, is.
Outcome<void> become(const Identity& identity, uint32_t gid);

}  // namespace tranche::isolation
