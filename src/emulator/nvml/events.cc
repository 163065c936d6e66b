// Event sets: XIDs of the registered GPUs, from the moment of registration, in the order in which they
// happened.
#include <algorithm>
#include <array>
#include <memory>
#include <mutex>
#include <vector>

#include "emulator/nvml/nvml_call.h"

namespace tranche::emulator::nvml {

struct EventSet {
  std::mutex mutex;  // of what follows
  std::shared_ptr<DeviceModel> model;
  std::array<bool, kMaxGpus> registered{};  // by the model's number
  std::array<uint32_t, kMaxGpus> from{};    // number of the first XID that counts
  uint32_t next = 0;                        // number of the first XID that has not been looked at
};

namespace {

std::mutex g_sets_mutex;
std::vector<std::shared_ptr<EventSet>> g_sets;

constexpr size_t kMaxSets = 4096;

std::shared_ptr<EventSet> find_set(const EventSet* set) {
  const std::lock_guard lock(g_sets_mutex);
  const auto found =
      std::find_if(g_sets.begin(), g_sets.end(), [&](const auto& known) { return known.get() == set; });
  return found == g_sets.end() ? nullptr : *found;
}

// The next event of a registered GPU among those that have happened.
bool take_event(EventSet& set, XidRecord& event) {
  const std::lock_guard lock(set.mutex);
  const uint32_t count = set.model->xid_count();
  if (count - set.next > kXidsKept)
    set.next = count - kXidsKept;  // what is older is lost, as on a real server
  while (set.next != count) {
    const uint32_t number = set.next++;
    if (!set.model->xid(number, event) || !set.registered[event.gpu]) continue;
    if (number - set.from[event.gpu] < kXidsKept) return true;
  }
  return false;
}

// The wait holds no session: nvmlShutdown in another thread is not kept waiting.
template <class Data, class Fill>
Return wait_for_event(const EventSet* handle, Data* data, uint32_t timeout_ms, Fill fill) {
  std::shared_ptr<EventSet> set;
  const Return valid = with_session([&](const Session&) {
    set = find_set(handle);
    return data != nullptr && set != nullptr ? Return::success : Return::invalid_argument;
  });
  if (valid != Return::success) return valid;
  const uint64_t deadline = monotonic_now() + uint64_t{timeout_ms} * 1'000'000;
  for (;;) {
    const uint32_t seen = set->model->xid_count();
    XidRecord event;
    if (take_event(*set, event)) {
      *data = {};
      data->device = device_of_gpu(event.gpu);
      data->type = kEventXidCriticalError;
      data->data = event.code;
      fill(*data, event);
      return Return::success;
    }
    const uint64_t now = monotonic_now();
    if (now >= deadline || !set->model->wait_for_xid(seen, deadline - now)) return Return::timeout;
  }
}

}  // namespace

NVML_EXPORT Return nvmlEventSetCreate(EventSet** set) {
  return with_session([&](const Session& session) {
    if (set == nullptr) return Return::invalid_argument;
    const std::lock_guard lock(g_sets_mutex);
    if (g_sets.size() >= kMaxSets) return Return::insufficient_resources;
    g_sets.push_back(std::make_shared<EventSet>());
    g_sets.back()->model = session.shared_model();
    g_sets.back()->next = session.model().xid_count();
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

NVML_EXPORT Return nvmlDeviceRegisterEvents(Device* device, uint64_t types, EventSet* handle) {
  return with_gpu(device, [&](const Gpu& gpu) {
    const std::shared_ptr<EventSet> set = find_set(handle);
    if (types == 0 || set == nullptr) return Return::invalid_argument;
    if ((types & ~kEventXidCriticalError) != 0) return Return::not_supported;
    const std::lock_guard lock(set->mutex);
    if (!set->registered[gpu.number]) set->from[gpu.number] = gpu.model.xid_count();
    set->registered[gpu.number] = true;
    return Return::success;
  });
}

NVML_EXPORT Return nvmlEventSetWait(EventSet* set, EventDataV1* data, uint32_t timeout_ms) {
  return wait_for_event(set, data, timeout_ms, [](EventDataV1&, const XidRecord&) {});
}
NVML_EXPORT Return nvmlEventSetWait_v2(EventSet* set, EventDataV2* data, uint32_t timeout_ms) {
  return wait_for_event(set, data, timeout_ms, [](EventDataV2& answer, const XidRecord& event) {
    answer.gpu_instance = event.gpu_instance;
    answer.compute_instance = event.compute_instance;
  });
}

}  // namespace tranche::emulator::nvml
