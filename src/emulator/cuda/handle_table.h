// Live objects of one kind by handle. Handles come from one counter for all kinds, so that a stream's
// handle is not an event's, and are never reused.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>
#include <vector>

namespace tranche::emulator::cuda {

// The next handle value; looks like a heap address to whoever prints it.
inline uintptr_t next_handle() {
  static std::atomic<uintptr_t> next{0x5500'0000'0000};
  return next.fetch_add(0x40, std::memory_order_relaxed);
}

template <class Handle, class Object>
class HandleTable {
 public:
  Handle add(std::shared_ptr<Object> object) {
    const Handle handle = reinterpret_cast<Handle>(next_handle());
    object->handle = handle;
    const std::unique_lock lock(mutex_);
    objects_.emplace(handle, std::move(object));
    return handle;
  }

  // The object, or null for a handle that is not live.
  std::shared_ptr<Object> find(Handle handle) const {
    const std::shared_lock lock(mutex_);
    const auto found = objects_.find(handle);
    return found == objects_.end() ? nullptr : found->second;
  }

  std::shared_ptr<Object> remove(Handle handle) {
    const std::unique_lock lock(mutex_);
    const auto found = objects_.find(handle);
    if (found == objects_.end()) return nullptr;
    std::shared_ptr<Object> object = std::move(found->second);
    objects_.erase(found);
    return object;
  }

  // Calls `visit(object)` for each object, with the table locked.
  template <class Visit>
  void each(Visit visit) const {
    const std::shared_lock lock(mutex_);
    for (const auto& [handle, object] : objects_) visit(*object);
  }

  // Removes and returns all objects for which `matches(object)`.
  template <class Predicate>
  std::vector<std::shared_ptr<Object>> remove_if(Predicate matches) {
    std::vector<std::shared_ptr<Object>> removed;
    const std::unique_lock lock(mutex_);
    for (auto it = objects_.begin(); it != objects_.end();) {
      if (matches(*it->second)) {
        removed.push_back(std::move(it->second));
        it = objects_.erase(it);
      } else {
        ++it;
      }
    }
    return removed;
  }

 private:
  mutable std::shared_mutex mutex_;
  std::unordered_map<Handle, std::shared_ptr<Object>> objects_;
};

}  // namespace tranche::emulator::cuda
