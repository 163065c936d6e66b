#include "emulator/robust_lock.h"

#include <cerrno>

#include "base/assert.h"

namespace tranche::emulator {

void initialise_robust_mutex(pthread_mutex_t& mutex) {
  pthread_mutexattr_t attributes;
  TRANCHE_ASSERT(pthread_mutexattr_init(&attributes) == 0);
  TRANCHE_ASSERT(pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED) == 0);
  TRANCHE_ASSERT(pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST) == 0);
  TRANCHE_ASSERT(pthread_mutex_init(&mutex, &attributes) == 0);
  pthread_mutexattr_destroy(&attributes);
}

RobustLock::Acquired RobustLock::acquire() {
  const int result = pthread_mutex_lock(&mutex_);
  if (result == EOWNERDEAD) return Acquired::after_death;
  TRANCHE_ASSERT(result == 0);
  return Acquired::cleanly;
}

}  // namespace tranche::emulator
