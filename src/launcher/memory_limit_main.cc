// tranche-memory-limit: limits of device memory that the driver itself holds on a cgroup (release 615 and
// later).
//
//   tranche-memory-limit set FOLDER UUID=SOFT:HARD...   bytes; kept free for it, and never more than
//   tranche-memory-limit clear FOLDER UUID...
//
// FOLDER is the cgroup's folder in the unified hierarchy. `set` reads back what it has set, and takes away
// again what it did if any of it failed. A process of its own, because the launcher loads no library of the
// driver's, and because a call into the driver may hang. Exit status 0, or 1 with a sentence.
#include <dlfcn.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "base/failpoint.h"

namespace {

// NVML's C interface as far as it is used here (nvml.h of CUDA 13.4).
using Device = struct DeviceHandle*;
struct SetMemoryLimits {
  const char* name_space;  // the cgroup's folder
  unsigned long long soft_limit;
  unsigned long long hard_limit;
};
struct GetMemoryLimits {
  const char* name_space;
  unsigned long long soft_limit;
  unsigned long long hard_limit;
  unsigned long long current_used;
};
constexpr unsigned long long kNoLimit = UINT64_MAX;  // NVML_DEVICE_MEMORY_LIMIT_MAX

int (*init)();
int (*device_by_uuid)(const char*, Device*);
int (*set_limits)(Device, SetMemoryLimits*);
int (*get_limits)(Device, GetMemoryLimits*);

struct Limit {
  std::string uuid;
  unsigned long long soft = 0;
  unsigned long long hard = kNoLimit;
};

int complain(const std::string& text) {
  std::fprintf(stderr, "%s\n", text.c_str());
  return 1;
}

template <class Function>
bool find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(library, name));
  return function != nullptr;
}

std::string load() {
  void* library = ::dlopen("libnvidia-ml.so.1", RTLD_NOW);
  if (library == nullptr) return "the driver's management library is not found";
  if (!find(library, "nvmlInit_v2", init) || !find(library, "nvmlDeviceGetHandleByUUID", device_by_uuid) ||
      !find(library, "nvmlDeviceSetMemoryLimits_v1", set_limits) ||
      !find(library, "nvmlDeviceGetMemoryLimits_v1", get_limits)) {
    return "this driver holds no memory limits itself: that needs release 615 or later";
  }
  const int code = init();
  return code == 0 ? "" : "the driver does not answer (NVML error " + std::to_string(code) + ")";
}

std::string apply(const std::string& folder, const Limit& limit) {
  Device device = nullptr;
  int code = device_by_uuid(limit.uuid.c_str(), &device);
  SetMemoryLimits wanted{folder.c_str(), limit.soft, limit.hard};
  tranche::failpoint("limit.before");
  if (code == 0) code = set_limits(device, &wanted);
  tranche::failpoint(limit.hard == kNoLimit ? "limit.taken_away" : "limit.set");
  if (code != 0) return limit.uuid + ": NVML error " + std::to_string(code);
  if (limit.hard == kNoLimit) return "";
  GetMemoryLimits seen{folder.c_str(), 0, 0, 0};
  code = get_limits(device, &seen);
  if (code != 0) return limit.uuid + ": reading back: NVML error " + std::to_string(code);
  if (seen.soft_limit != limit.soft || seen.hard_limit != limit.hard)
    return limit.uuid + ": the driver has set another limit than it was told";
  return "";
}

bool parse(const char* text, bool with_bytes, Limit& limit) {
  const char* equals = std::strchr(text, '=');
  if ((equals != nullptr) != with_bytes) return false;
  limit.uuid = equals == nullptr ? std::string(text) : std::string(text, equals);
  if (!with_bytes) return true;
  char* end = nullptr;
  limit.soft = std::strtoull(equals + 1, &end, 10);
  if (*end != ':') return false;
  limit.hard = std::strtoull(end + 1, &end, 10);
  return *end == '\0' && limit.hard != 0 && limit.soft <= limit.hard;
}

}  // namespace

int main(int count, char** words) {
  tranche::arm_failpoints(tranche::FailpointRole::memory_limit);
  const bool sets = count > 3 && std::strcmp(words[1], "set") == 0;
  const bool clears = count > 3 && std::strcmp(words[1], "clear") == 0;
  std::vector<Limit> limits(count > 3 ? static_cast<size_t>(count - 3) : 0);
  bool good = sets || clears;
  for (size_t i = 0; i < limits.size(); ++i) good = good && parse(words[i + 3], sets, limits[i]);
  if (!good)
    return complain("usage: tranche-memory-limit set FOLDER UUID=SOFT:HARD... | clear FOLDER UUID...");
  if (const std::string problem = load(); !problem.empty()) return complain(problem);
  std::string problem;
  size_t done = 0;
  for (; done < limits.size() && (problem.empty() || clears); ++done) {
    const std::string one = apply(words[2], limits[done]);
    if (problem.empty()) problem = one;
  }
  tranche::failpoint(clears ? "limits.cleared" : "limits.read_back");
  if (problem.empty()) return 0;
  if (sets) {
    for (size_t i = 0; i < done; ++i) (void)apply(words[2], {limits[i].uuid, 0, kNoLimit});
  }
  return complain(problem);
}
