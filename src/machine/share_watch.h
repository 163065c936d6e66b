// The second line behind the guard: what the driver says that each job's processes hold of a GPU, against the
// part that the job has. A job that is over is reported, never ended: by a line in the log, and by doctor
// while it lasts.
//
// No answer from the driver means that nothing is known, and nothing is said. Threading: the reactor's
// thread.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/reactor.h"
#include "codec/api.h"

namespace tranche::machine {

struct OverShare {
  JobId job;
  uint32_t gpu = 0;  // index
  std::string user;
  MiB held;
  MiB part;
};

// What drivers count beside what the guard can know.
inline constexpr MiB kShareSlack{256};

// Jobs that hold more than their part and the slack, or 2 % of the part if that is more.
std::vector<OverShare> over_shares(const api::GpuList& gpus);
std::string to_text(const OverShare& over);

// What doctor says of it.
api::DoctorCheck share_check(const api::GpuList& gpus);

class ShareWatch {
 public:
  using Look = std::function<api::GpuList()>;
  ShareWatch(Reactor& reactor, Look look);
  void start();

 private:
  static constexpr Duration kPeriod = kSecond;
  static constexpr int kLooks = 3;  // in a row, before it is said: memory that comes and goes is no news

  void look();

  Reactor& reactor_;
  Look look_;
  Reactor::Handle again_;
  std::map<std::pair<JobId, uint32_t>, int> over_;  // how many looks in a row
};

}  // namespace tranche::machine
