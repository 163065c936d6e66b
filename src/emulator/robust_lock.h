// A mutex between processes that survives the death of its holder.
#pragma once

#include <pthread.h>

namespace tranche::emulator {

// Prepares a mutex that lies in memory shared between processes.
void initialise_robust_mutex(pthread_mutex_t& mutex);

// Holds `mutex` for its own lifetime. When the previous holder died inside, `repair` is called, with the
// mutex held, before the constructor returns.
class RobustLock {
 public:
  template <class Repair>
  RobustLock(pthread_mutex_t& mutex, Repair repair) : mutex_(mutex) {
    if (acquire() == Acquired::after_death) {
      repair();
      pthread_mutex_consistent(&mutex_);
    }
  }
  ~RobustLock() { pthread_mutex_unlock(&mutex_); }
  RobustLock(const RobustLock&) = delete;
  RobustLock& operator=(const RobustLock&) = delete;

 private:
  enum class Acquired { cleanly, after_death };
  Acquired acquire();

  pthread_mutex_t& mutex_;
};

}  // namespace tranche::emulator
