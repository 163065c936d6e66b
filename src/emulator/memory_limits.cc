// Limits of device memory by cgroup, as drivers from release 615 on hold them: a hard limit that nothing in
// the cgroup or below it passes, and a soft one that is guaranteed to it.
//
// What the vendor's guide says of soft limits is said of MPS: above it an allocation still succeeds and
// borrows from others, and when one of those needs what it is guaranteed, a client above its own soft limit
// is terminated. So it is here. Without MPS nobody can be terminated, so the guarantee is kept free; the
// guide is silent about it.
//
// Which cgroup a process is in is asked of the kernel at each allocation, and only while any limit exists: a
// process can be moved. Only cgroup2 counts, as for the driver.

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "emulator/gpu_lock.h"

namespace tranche::emulator {
namespace {

std::string_view cgroup_of(const SharedMemoryLimit& limit) {
  return {limit.cgroup.data(), strnlen(limit.cgroup.data(), limit.cgroup.size())};
}

// Whether `cgroup` is `parent` or lies below it.
bool is_within(std::string_view cgroup, std::string_view parent) {
  if (parent == "/") return true;
  return cgroup.substr(0, parent.size()) == parent &&
         (cgroup.size() == parent.size() || cgroup[parent.size()] == '/');
}

// The cgroup2 cgroup of a process, "" if it cannot be told.
std::string cgroup_of_process(const char* process) {
  const std::string path = std::string("/proc/") + process + "/cgroup";
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return {};
  std::array<char, 8192> text;
  const ssize_t length = read(file, text.data(), text.size());
  close(file);
  if (length <= 0) return {};
  const std::string_view all(text.data(), static_cast<size_t>(length));
  for (size_t begin = 0; begin < all.size();) {
    const size_t end = std::min(all.find('\n', begin), all.size());
    const std::string_view line = all.substr(begin, end - begin);
    if (line.substr(0, 3) == "0::") return std::string(line.substr(3));
    begin = end + 1;
  }
  return {};
}

// "/sys/fs/cgroup/unified/tranche" -> "/tranche": the part below the mount of the cgroup2 file system.
Result<std::string> cgroup_at(const std::string& path) {
  Error none(ErrorCode::not_found, path + " is not a cgroup of a cgroup2 file system");
  std::array<char, PATH_MAX> real;
  struct statfs system;
  struct stat status;
  if (path.empty() || path[0] != '/' || realpath(path.c_str(), real.data()) == nullptr ||
      statfs(real.data(), &system) != 0 || system.f_type != CGROUP2_SUPER_MAGIC ||
      stat(real.data(), &status) != 0 || !S_ISDIR(status.st_mode)) {
    return fail(std::move(none));
  }
  std::string root = real.data();
  while (root.size() > 1) {
    const std::string parent = root.substr(0, std::max<size_t>(root.rfind('/'), 1));
    struct stat above;
    if (stat(parent.c_str(), &above) != 0 || above.st_dev != status.st_dev) break;
    root = parent;
  }
  const std::string cgroup = std::string(real.data()).substr(root.size());
  if (cgroup.size() >= sizeof(SharedMemoryLimit::cgroup)) return fail(std::move(none));
  return cgroup.empty() ? std::string("/") : cgroup;
}

template <class Limits>
auto* find_limit(Limits& limits, uint32_t gpu, std::string_view cgroup) {
  const auto found = std::find_if(limits.begin(), limits.end(), [&](const SharedMemoryLimit& limit) {
    return limit.gpu_plus_one.load() == gpu + 1 && cgroup_of(limit) == cgroup;
  });
  return found == limits.end() ? nullptr : &*found;
}

}  // namespace

Result<void> DeviceModel::set_memory_limit(uint32_t gpu, const std::string& path, uint64_t soft,
                                           uint64_t hard) {
  TRY_ASSIGN(const std::string cgroup, cgroup_at(path));
  RobustLock lock(state_->table_lock, [this] { repair_table(); });
  SharedMemoryLimits& all = state_->memory_limits;
  SharedMemoryLimit* limit = find_limit(all.limits, gpu, cgroup);
  if (soft == 0 && hard == UINT64_MAX) {
    if (limit == nullptr) return {};
    limit->gpu_plus_one.store(0);
    all.count.fetch_sub(1);
    return {};
  }
  if (limit == nullptr) {
    const auto unused = std::find_if(all.limits.begin(), all.limits.end(),
                                     [](const auto& entry) { return entry.gpu_plus_one.load() == 0; });
    if (unused == all.limits.end()) {
      return fail(ErrorCode::over_limit, "the emulated server keeps at most " +
                                             std::to_string(kMaxMemoryLimits) + " memory limits; clear some");
    }
    limit = &*unused;
    limit->cgroup = {};
    std::memcpy(limit->cgroup.data(), cgroup.data(), cgroup.size());
    all.count.fetch_add(1);
  }
  limit->soft_bytes.store(soft);
  limit->hard_bytes.store(hard);
  limit->gpu_plus_one.store(gpu + 1);  // last: it is valid from here on
  return {};
}

uint64_t DeviceModel::used_by_cgroup(uint32_t gpu, std::string_view cgroup) const {
  uint64_t used = 0;
  each_process([&](uint32_t slot) {
    const SharedUse& use = state_->uses[slot][gpu];
    int32_t pid = 0;
    if (use.context_bytes + use.memory_bytes == 0 || !is_alive(slot, pid) || pid <= 0) return;
    if (is_within(cgroup_of_process(std::to_string(pid).c_str()), cgroup)) {
      used += use.context_bytes + use.memory_bytes;
    }
  });
  return used;
}

uint64_t DeviceModel::memory_limit_room(uint32_t gpu) const {
  const SharedMemoryLimits& all = state_->memory_limits;
  if (all.count.load() == 0) return UINT64_MAX;
  const std::string own = cgroup_of_process("self");
  const uint64_t usable = usable_bytes(gpu);
  uint64_t room = UINT64_MAX, kept_for_others = 0;
  for (const SharedMemoryLimit& limit : all.limits) {
    if (limit.gpu_plus_one.load() != gpu + 1) continue;
    const uint64_t used = used_by_cgroup(gpu, cgroup_of(limit));
    if (is_within(own, cgroup_of(limit))) {
      const uint64_t hard = limit.hard_bytes.load();
      room = std::min(room, hard - std::min(hard, used));
    } else if (!is_mps(gpu)) {
      const uint64_t soft = limit.soft_bytes.load();
      kept_for_others += soft - std::min(soft, used);
    }
  }
  const uint64_t taken = std::min(usable, state_->gpus[gpu].used_bytes);
  const uint64_t free = usable - taken;
  return std::min(room, free - std::min(free, kept_for_others));
}

bool DeviceModel::is_guaranteed(uint32_t gpu, std::string_view cgroup, uint64_t bytes) const {
  bool guaranteed = false;
  for (const SharedMemoryLimit& limit : state_->memory_limits.limits) {
    if (limit.gpu_plus_one.load() != gpu + 1 || !is_within(cgroup, cgroup_of(limit))) continue;
    const uint64_t used = used_by_cgroup(gpu, cgroup_of(limit));
    if (used + bytes > limit.hard_bytes.load()) return false;  // what is refused is not guaranteed
    guaranteed = guaranteed || used + bytes <= limit.soft_bytes.load();
  }
  return guaranteed;
}

bool DeviceModel::is_evictable(uint32_t gpu, std::string_view cgroup) const {
  return !is_guaranteed(gpu, cgroup, 0);
}

// The largest first, which is chosen: the guide does not say whom the server picks.
bool DeviceModel::win_back(GpuLock& lock, uint32_t gpu, uint64_t bytes) {
  if (state_->memory_limits.count.load() == 0 || !is_mps(gpu)) return false;
  const std::string own = cgroup_of_process("self");
  if (!is_guaranteed(gpu, own, bytes)) return false;
  std::vector<std::pair<uint64_t, uint32_t>> clients;  // bytes and row
  uint64_t could_win = 0;
  each_process([&](uint32_t slot) {
    const SharedUse& use = state_->uses[slot][gpu];
    int32_t pid = 0;
    if (slot == own_slot_ || use.contexts == 0 || !is_alive(slot, pid) || pid <= 0) return;
    if (!is_evictable(gpu, cgroup_of_process(std::to_string(pid).c_str()))) return;
    clients.emplace_back(use.context_bytes + use.memory_bytes, slot);
    could_win += clients.back().first;
  });
  if (room(gpu) + could_win < bytes) return false;
  std::sort(clients.rbegin(), clients.rend());
  constexpr int32_t kMpsClientTerminated = 810;
  for (const auto& [held, slot] : clients) {
    if (bytes <= room(gpu)) break;
    SharedUse& use = state_->uses[slot][gpu];
    lose_contexts(slot, lock, kMpsClientTerminated);
    use.contexts = use.context_bytes = use.memory_bytes = 0;
    lock.gpu().used_bytes -= std::min(lock.gpu().used_bytes, held);
  }
  wake_waiters(gpu);
  return bytes <= room(gpu);
}

Result<MemoryLimit> DeviceModel::memory_limit(uint32_t gpu, const std::string& path) {
  reap();
  TRY_ASSIGN(const std::string cgroup, cgroup_at(path));
  const SharedMemoryLimit* const limit = find_limit(state_->memory_limits.limits, gpu, cgroup);
  if (limit == nullptr) return fail(ErrorCode::conflict, path + " has no memory limit on this GPU");
  GpuLock lock(*this, gpu);
  return MemoryLimit{limit->soft_bytes.load(), limit->hard_bytes.load(), used_by_cgroup(gpu, cgroup)};
}

std::unique_ptr<MemoryLimit> DeviceModel::own_memory_limit(uint32_t gpu) {
  if (state_->memory_limits.count.load() == 0) return nullptr;
  reap();
  const std::string own = cgroup_of_process("self");
  const SharedMemoryLimit* const limit = find_limit(state_->memory_limits.limits, gpu, own);
  if (limit == nullptr) return nullptr;
  GpuLock lock(*this, gpu);
  return std::make_unique<MemoryLimit>(
      MemoryLimit{limit->soft_bytes.load(), limit->hard_bytes.load(), used_by_cgroup(gpu, own)});
}

}  // namespace tranche::emulator
