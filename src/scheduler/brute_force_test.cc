// Up to five jobs on three GPUs, against every possibility there is: a place is found if and only if one
// exists, nobody is stopped in vain and at most one job more than the fewest that would do, and a reservation
// is for the first time at which its job fits. TRANCHE_SEED=N plays one world again.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "scheduler/settled_world.h"

namespace tranche::scheduler::test {
namespace {

struct FreeGpu {
  uint32_t node = 0;
  int64_t compute = 1000;
  int64_t memory = 80'000;
};
struct Room {
  std::vector<int64_t> cpu;  // by node
  std::vector<FreeGpu> gpus;
};

// Tries every set of GPUs for every task.
bool fits(const JobSpec& spec, uint32_t tasks, Room room);

bool takes_next(const JobSpec& spec, uint32_t tasks, const Room& room, uint32_t node, size_t from,
                uint32_t left) {
  if (left == 0) return fits(spec, tasks - 1, room);
  const GpuRequest& gpu = spec.task.gpu;
  const bool whole = gpu.kind == SliceKind::whole;
  const int64_t compute = whole ? 1000 : gpu.compute.count();
  const int64_t memory = whole ? 80'000 : 80'000 * compute / 1000;
  for (size_t i = from; i < room.gpus.size(); ++i) {
    const FreeGpu& at = room.gpus[i];
    if (at.node != node || at.compute < compute || at.memory < memory) continue;
    Room then = room;
    then.gpus[i].compute -= compute;
    then.gpus[i].memory -= memory;
    if (takes_next(spec, tasks, then, node, i + 1, left - 1)) return true;
  }
  return false;
}

bool fits(const JobSpec& spec, uint32_t tasks, Room room) {
  if (tasks == 0) return true;
  for (uint32_t node = 0; node < room.cpu.size(); ++node) {
    if (room.cpu[node] < spec.task.cpu.count()) continue;
    Room then = room;
    then.cpu[node] -= spec.task.cpu.count();
    if (takes_next(spec, tasks, then, node, 0, spec.task.gpu.count)) return true;
  }
  return false;
}

class SmallWorld {
 public:
  explicit SmallWorld(Random& random) : random_(random), world_(policy()) {
    constexpr uint32_t kShapes[][3] = {{3, 0, 0}, {2, 1, 0}, {1, 1, 1}, {1, 2, 0}, {2, 0, 0}};
    for (const uint32_t gpus : kShapes[random.below(std::size(kShapes))]) {
      if (gpus == 0) continue;
      world_.add_node(gpus, "h100-80", 80'000, kCpu);
      idle_.cpu.push_back(kCpu);
      for (uint32_t i = 0; i < gpus; ++i) idle_.gpus.push_back({static_cast<uint32_t>(idle_.cpu.size() - 1)});
    }
  }

  JobSpec any_job(int32_t priority) {
    Request request;
    request.user = "u";
    request.priority = priority;
    request.cpu = random_.between(0, 4) * 1000;
    request.gpus = 1;
    if (random_.chance(1, 2)) {
      request.milli = random_.between(1, 9) * 100;
    } else {
      request.gpus = static_cast<uint32_t>(random_.between(0, 2));
    }
    request.tasks_min = static_cast<uint32_t>(random_.chance(1, 3) ? random_.between(2, 3) : 1);
    request.time_limit = random_.between(1, 10) * kHour;
    request.grace = random_.between(0, 9) * kSecond;
    return spec_of(request);
  }

  // Up to four jobs that run; those that found no room are gone.
  void fill(int32_t priority) {
    const int64_t jobs = random_.between(0, 4);
    for (int64_t i = 0; i < jobs; ++i) {
      const JobSpec spec = any_job(priority);
      if (!world_.scheduler.check(spec, {})) continue;
      const JobId job = world_.submits(spec);
      if (!world_.started(job)) world_.happens(JobCancelled{job, "root"});
    }
  }
  Room room_without(const std::set<JobId>& gone) const {
    Room room = idle_;
    for (const JobId job : world_.running()) {
      if (gone.contains(job)) continue;
      const JobView view = world_.view(job);
      for (const Start& start : view.tasks) {
        room.cpu[start.node.value() - 1] -= view.spec->task.cpu.count();
        for (const Slice& slice : start.slices) {
          FreeGpu& gpu = room.gpus[slice.gpu.value() - 1];
          gpu.compute -= slice.compute.count();
          gpu.memory -= slice.memory.count();
        }
      }
    }
    return room;
  }
  bool fits_without(const JobSpec& spec, const std::set<JobId>& gone) const {
    return fits(spec, spec.tasks_min, room_without(gone));
  }
  SettledWorld& world() { return world_; }

 private:
  static constexpr int64_t kCpu = 8000;
  static Policy policy() {
    Policy policy;
    policy.minimum_runtime = Duration(0);
    return policy;
  }
  Random& random_;
  SettledWorld world_;
  Room idle_;
};

template <class Play>
void for_each_world(Play play) {
  const char* const only = std::getenv("TRANCHE_SEED");
  const uint64_t first = only != nullptr ? std::strtoull(only, nullptr, 10) : 1;
  const uint64_t count = only != nullptr ? 1 : std::getenv("TRANCHE_LONG") != nullptr ? 100'000 : 2'000;
  for (uint64_t seed = first; seed < first + count && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("TRANCHE_SEED=" + std::to_string(seed));
    Random random(seed);
    SmallWorld small(random);
    play(random, small);
  }
}

void print(const char* what, uint64_t count) {
  std::printf("%llu %s\n", static_cast<unsigned long long>(count), what);
}

TEST(BruteForce, APlaceIsFoundIfThereIsOne) {
  uint64_t found = 0, none = 0, refused = 0;
  for_each_world([&](Random&, SmallWorld& small) {
    small.fill(0);
    const JobSpec spec = small.any_job(0);
    std::set<JobId> everybody;
    for (const JobId job : small.world().running()) everybody.insert(job);
    const bool fits_idle = small.fits_without(spec, everybody);
    ASSERT_EQ(small.world().scheduler.check(spec, {}).has_value(), fits_idle);
    if (!fits_idle) return void(++refused);
    const bool exists = small.fits_without(spec, {});
    const JobId job = small.world().submits(spec);
    ASSERT_EQ(small.world().started(job), exists);
    ++(exists ? found : none);
  });
  print("places found", found);
  print("jobs for which there was none", none);
  print("jobs refused", refused);
}

TEST(BruteForce, TheFewestAreStoppedOrOneMore) {
  uint64_t fewest = 0, one_more = 0, in_vain = 0;
  for_each_world([&](Random&, SmallWorld& small) {
    small.fill(0);
    const JobSpec spec = small.any_job(1);
    const auto running = small.world().running();
    if (!small.world().scheduler.check(spec, {}) || small.fits_without(spec, {})) return;
    size_t best = running.size() + 1;
    for (uint32_t set = 0; set < 1u << running.size(); ++set) {
      std::set<JobId> gone;
      for (size_t i = 0; i < running.size(); ++i) {
        if (set >> i & 1) gone.insert(running[i]);
      }
      if (gone.size() < best && small.fits_without(spec, gone)) best = gone.size();
    }
    const JobId job(small.world().last_job() + 1);
    std::set<JobId> stopped;
    for (const Decision& decision : small.world().event(JobSubmitted{job, spec, {}})) {
      if (const auto* stop = std::get_if<Stop>(&decision)) stopped.insert(stop->task.job);
    }
    if (best > running.size()) {
      ++in_vain;
      ASSERT_TRUE(stopped.empty()) << "stopped for a job that does not fit even then";
      return;
    }
    ASSERT_TRUE(small.fits_without(spec, stopped));
    ASSERT_LE(stopped.size(), best + 1);
    ++(stopped.size() == best ? fewest : one_more);
  });
  print("claims with the fewest victims", fewest);
  print("with one more", one_more);
  print("in vain", in_vain);
}

TEST(BruteForce, AReservationIsForTheFirstTimeAtWhichItFits) {
  uint64_t checked = 0;
  for_each_world([&](Random&, SmallWorld& small) {
    small.fill(0);
    const JobSpec spec = small.any_job(0);
    if (!small.world().scheduler.check(spec, {}) || small.fits_without(spec, {})) return;
    std::vector<std::pair<Time, JobId>> ends;
    for (const JobId job : small.world().running()) {
      const JobView view = small.world().view(job);
      ends.push_back({view.started + view.spec->time_limit + view.spec->grace, job});
    }
    std::sort(ends.begin(), ends.end());
    std::set<JobId> gone;
    Time first;
    for (const auto& [time, job] : ends) {
      gone.insert(job);
      if (!first.is_set() && small.fits_without(spec, gone)) first = time;
    }
    ASSERT_TRUE(first.is_set());
    const JobId job = small.world().submits(spec);
    for (const ReservationFact& reservation : small.world().scheduler.dump().reservations) {
      if (reservation.job != job) continue;
      ++checked;
      ASSERT_EQ(reservation.start, first) << (reservation.start - first).count() << " ns from the first time";
    }
  });
  print("reservations", checked);
  EXPECT_GT(checked, 0u);
}

}  // namespace
}  // namespace tranche::scheduler::test
