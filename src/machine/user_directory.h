// Unix users by uid, with home and shell, remembered for a minute: name services may be slow.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"

namespace tranche::machine {

struct UserRecord {
  std::string name;
  uint32_t gid = 0;
  std::string home;
  std::string shell;
};

class UserDirectory {
 public:
  explicit UserDirectory(const Clock& clock) : clock_(clock) {}
  virtual ~UserDirectory() = default;

  // Null if there is no such user. Valid until the next call.
  const UserRecord* find(uint32_t uid);
  // The name, or the number as text.
  std::string name(uint32_t uid);
  // All groups that the user is a member of; empty if there is no such user.
  std::vector<uint32_t> groups(uint32_t uid);
  std::optional<uint32_t> uid_of(const std::string& name);
  // Whether a group of that name exists and has this gid.
  bool is_group(const std::string& group, uint32_t gid);

 protected:
  // Asks the system; overridden in simulation.
  virtual std::optional<UserRecord> look_up(uint32_t uid);

 private:
  struct Remembered {
    std::optional<UserRecord> record;
    Duration until;
    std::optional<std::vector<uint32_t>> groups{};  // once somebody asked
  };
  const Clock& clock_;
  std::map<uint32_t, Remembered> users_;
  std::map<std::string, std::pair<std::optional<uint32_t>, Duration>> groups_;
};

}  // namespace tranche::machine
