// daemon.mode = "observe": who uses the GPUs of a machine that has no queue yet, and for how long.
//
// At every look each GPU's processes are those of its newest reading, and each process is its user's (the
// kernel's uid of it). The time since the look before is the GPU time of the users who had a process on it,
// in equal parts; the part of it in which the GPU computed, by the driver's utilisation, goes along. A span
// of which nothing is known, because the daemon or the driver was silent, is nobody's. Days are UTC.
//
// What is added up stands in the journal's notes, a note a day, and outlives restarts; the last minute of a
// daemon that is killed is lost. Nothing is decided, and no process is touched.
//
// Units: nanoseconds of one GPU. Threading: the reactor's thread.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/reactor.h"
#include "machine/engine.h"
#include "machine/gpu_manager.h"
#include "machine/user_directory.h"

namespace tranche::machine {

struct ObservedUse {
  Duration held;  // GPU time with a process of the user on the GPU
  Duration busy;  // of it, while the GPU computed
};

class Observation {
 public:
  struct Parts {
    Reactor& reactor;
    Engine& engine;
    GpuManager& gpus;
    UserDirectory& users;
    Duration interval;  // between looks
  };
  explicit Observation(Parts parts) : parts_(parts) {}

  // What earlier runs have added up; before the loop runs. Errors: corrupt.
  Result<void> load();
  // From now on, at every interval.
  void start();
  // What is not noted yet; `start()` notes it every minute.
  void note();

  // A row for each user who was seen, as `tranche share` shows queues: `path` is the user's name, `used` is
  // held now, and the sentence tells the GPU hours in all and of the last days.
  api::QueueList report() const;

 private:
  using Day = int64_t;  // days since 1970-01-01, UTC
  void look();
  void look_at(const scheduler::GpuView& view);

  Parts parts_;
  Reactor::Handle again_;
  std::map<Day, std::map<uint32_t, ObservedUse>> by_day_;  // by uid
  std::map<uint32_t, MilliGpu> now_;                       // by uid: of the last look
  std::map<GpuId, Duration> looked_;                       // since boot: until when is told
  std::set<Day> changed_;                                  // not noted yet
  Duration noted_;                                         // since boot
};

}  // namespace tranche::machine
