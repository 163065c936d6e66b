// Event sets. No event happens yet: a set can be made, joined and waited on, and every wait times out.
#include <time.h>

#include <algorithm>
#include <cerrno>
#include <mutex>
#include <vector>

#include "emulator/nvml/nvml_call.h"

namespace tranche::emulator::nvml {

struct EventSet {
  char unused;
};

namespace {

std::mutex g_sets_mutex;
std::vector<std::unique_ptr<EventSet>> g_sets;

constexpr size_t kMaxSets = 4096;

bool is_event_set(const EventSet* set) {
  const std::lock_guard lock(g_sets_mutex);
  return std::any_of(g_sets.begin(), g_sets.end(), [&](const auto& known) { return known.get() == set; });
}

void sleep_milliseconds(uint32_t milliseconds) {
  timespec left{.tv_sec = milliseconds / 1000, .tv_nsec = long{milliseconds % 1000} * 1'000'000};
  while (clock_nanosleep(CLOCK_MONOTONIC, 0, &left, &left) == EINTR) {
  }
}

// The wait holds no session: nvmlShutdown in another thread is not kept waiting.
Return wait_for_event(const EventSet* set, const void* data, uint32_t timeout_ms) {
  const Return valid = with_session([&](const Session&) {
    return data != nullptr && is_event_set(set) ? Return::success : Return::invalid_argument;
  });
  if (valid != Return::success) return valid;
  sleep_milliseconds(timeout_ms);
  return Return::timeout;
}

}  // namespace

NVML_EXPORT Return nvmlEventSetCreate(EventSet** set) {
  return with_session([&](const Session&) {
    if (set == nullptr) return Return::invalid_argument;
    const std::lock_guard lock(g_sets_mutex);
    if (g_sets.size() >= kMaxSets) return Return::insufficient_resources;
    g_sets.push_back(std::make_unique<EventSet>());
    *set = g_sets.back().get();
    return Return::success;
  });
}

NVML_EXPORT Return nvmlEventSetFree(EventSet* set) {
  return with_session([&](const Session&) {
    const std::lock_guard lock(g_sets_mutex);
    const size_t freed = std::erase_if(g_sets, [&](const auto& known) { return known.get() == set; });
    return freed == 1 ? Return::success : Return::invalid_argument;
  });
}

NVML_EXPORT Return nvmlDeviceGetSupportedEventTypes(Device* device, uint64_t* types) {
  return answer_one(device, types, [](const Gpu&, uint64_t& answer) {
    answer = kEventXidCriticalError;
    return Return::success;
  });
}

NVML_EXPORT Return nvmlDeviceRegisterEvents(Device* device, uint64_t types, EventSet* set) {
  return with_gpu(device, [&](const Gpu&) {
    if (types == 0 || !is_event_set(set)) return Return::invalid_argument;
    return (types & ~kEventXidCriticalError) == 0 ? Return::success : Return::not_supported;
  });
}

NVML_EXPORT Return nvmlEventSetWait(EventSet* set, EventDataV1* data, uint32_t timeout_ms) {
  return wait_for_event(set, data, timeout_ms);
}
NVML_EXPORT Return nvmlEventSetWait_v2(EventSet* set, EventDataV2* data, uint32_t timeout_ms) {
  return wait_for_event(set, data, timeout_ms);
}

}  // namespace tranche::emulator::nvml
