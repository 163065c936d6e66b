// Names of user ids, looked up on a thread of their own: the name service may ask a server that hangs.
#pragma once

#include <sys/types.h>

#include <condition_variable>
#include <functional>
#include <mutex>
#include <set>
#include <string>
#include <vector>

namespace tranche {

class UserNames {
 public:
  // `found` is called on the look-up thread, once for each uid that has a name.
  explicit UserNames(std::function<void(uid_t, const std::string&)> found) : found_(std::move(found)) {}

  // Starts the thread, which ends with the process; the object must live as long.
  void start();
  // Asks for the name of `uid` unless it has been asked for. Never waits for a look-up. From any thread.
  void want(uid_t uid);

 private:
  void serve();

  std::function<void(uid_t, const std::string&)> found_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::set<uid_t> known_;  // asked for, at most kNamesMax
  std::vector<uid_t> wanted_;
};

}  // namespace tranche
