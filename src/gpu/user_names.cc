#include "gpu/user_names.h"

#include <errno.h>
#include <pwd.h>

#include <thread>

namespace tranche {
namespace {

constexpr size_t kNamesMax = 4096;
constexpr size_t kBufferMax = 1 << 20;

std::string look_up(uid_t uid) {
  std::vector<char> buffer(4096);
  passwd entry{};
  passwd* found = nullptr;
  int error = getpwuid_r(uid, &entry, buffer.data(), buffer.size(), &found);
  while (error == ERANGE && buffer.size() < kBufferMax) {
    buffer.resize(buffer.size() * 4);
    error = getpwuid_r(uid, &entry, buffer.data(), buffer.size(), &found);
  }
  return found != nullptr ? std::string(found->pw_name) : std::string();
}

}  // namespace

void UserNames::start() {
  std::thread([this] { serve(); }).detach();
}

void UserNames::want(uid_t uid) {
  const std::lock_guard lock(mutex_);
  if (known_.size() >= kNamesMax) known_.clear();  // a name is asked for again, and no harm done
  if (!known_.insert(uid).second) return;
  wanted_.push_back(uid);
  wake_.notify_one();
}

void UserNames::serve() {
  while (true) {
    uid_t uid = 0;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] { return !wanted_.empty(); });
      uid = wanted_.back();
      wanted_.pop_back();
    }
    const std::string name = look_up(uid);
    if (!name.empty()) {
      found_(uid, name);
    } else {
      const std::lock_guard lock(mutex_);
      known_.erase(uid);  // unknown today may be known at the next sight
    }
  }
}

}  // namespace tranche
