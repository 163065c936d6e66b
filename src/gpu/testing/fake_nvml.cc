// A tiny libnvidia-ml.so.1 for tests, with faults switched while it runs.
//
// GENERATION says which symbols and layouts it has: 0 hardly any, 1 the oldest names, 2 with _v2, 3 with _v3,
// 535 with the long layout that drivers 535.43 to 535.86 had.
// The file named by $FAKE_NVML_CONTROL is read on every call; lines of words:
//   count N                 GPUs listed (default 2)
//   hang CALL GPU           that call does not return while the line stands
//   lock CALL GPU           the same, and every other call waits for it, as behind a driver's lock
//   stop CALL GPU           the whole process stops (SIGSTOP)
//   exit CALL GPU           the process ends
//   code CALL GPU N         that call returns N
//   process GPU PID BYTES   a compute process; BYTES "na" is not available
//   many GPU N              N compute processes with pids from 100000
//   minor GPU N             that is the GPU's minor number
//   xid N GPU               an XID event, once for each such line since it was written
//   recovery GPU N          the driver recommends action N; without such a line, nothing (generation 3 only)
//   guest GPU 1             the GPU is a vGPU
//   mig GPU UUID...         MIG is on, with these devices
// CALL is init uuid memory processes utilization handle; GPU is an index, or * for any.
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <mutex>
#include <sstream>
#include <string>
#include <vector>

namespace {

constexpr uint64_t kMiB = 1024 * 1024;
constexpr uint64_t kTotal = 24564 * kMiB;
constexpr uint64_t kReserve = 346 * kMiB;
constexpr int32_t kOk = 0, kNotSupported = 3, kInsufficientSize = 7;
[[maybe_unused]] constexpr int32_t kNotFound = 6, kTimeout = 10;

struct FakeProcess {
  uint32_t pid;
  uint64_t memory;
};

struct Control {
  uint32_t count = 2;
  std::vector<std::vector<std::string>> lines;
};

Control read_control() {
  Control control;
  const char* const path = std::getenv("FAKE_NVML_CONTROL");
  std::ifstream file(path != nullptr ? path : "/nonexistent");
  std::string line;
  while (std::getline(file, line)) {
    std::istringstream stream(line);
    std::vector<std::string> words;
    std::string word;
    while (stream >> word) words.push_back(word);
    if (words.size() == 2 && words[0] == "count") control.count = static_cast<uint32_t>(std::stoul(words[1]));
    if (words.size() >= 3) control.lines.push_back(words);
  }
  return control;
}

std::mutex driver_lock;

const std::vector<std::string>* find(const Control& control, const char* verb, const char* call,
                                     uint32_t gpu) {
  for (const auto& words : control.lines) {
    if (words[0] == verb && words[1] == call && (words[2] == "*" || words[2] == std::to_string(gpu)))
      return &words;
  }
  return nullptr;
}

void nap() {
  const timespec time{.tv_sec = 0, .tv_nsec = 5'000'000};
  nanosleep(&time, nullptr);
}

// What every call begins with: faults. The lock is the driver's.
int32_t enter(const char* call, uint32_t gpu) {
  Control control = read_control();
  if (find(control, "stop", call, gpu) != nullptr) raise(SIGSTOP);
  if (find(control, "exit", call, gpu) != nullptr) _exit(3);
  while (find(control, "hang", call, gpu) != nullptr) {
    nap();
    control = read_control();
  }
  const std::lock_guard lock(driver_lock);
  while (find(control, "lock", call, gpu) != nullptr) {
    nap();
    control = read_control();
  }
  const auto* const code = find(control, "code", call, gpu);
  return code != nullptr && code->size() == 4 ? std::stoi((*code)[3]) : kOk;
}

constexpr uintptr_t kMigHandles = 1024;
uint32_t index_of(void* device) {
  return static_cast<uint32_t>(reinterpret_cast<uintptr_t>(device) % kMigHandles) - 1;
}

// The line that begins with `verb` and that GPU; null if there is none. Good until the next call.
[[maybe_unused]] const std::vector<std::string>* line_of(const char* verb, uint32_t gpu) {
  static thread_local Control control;
  control = read_control();
  for (const auto& words : control.lines) {
    if (words[0] == verb && words[1] == std::to_string(gpu)) return &words;
  }
  return nullptr;
}

std::vector<FakeProcess> processes_of(uint32_t gpu) {
  std::vector<FakeProcess> processes;
  for (const auto& words : read_control().lines) {
    if (words[1] != std::to_string(gpu)) continue;
    if (words[0] == "process" && words.size() == 4) {
      processes.push_back({static_cast<uint32_t>(std::stoul(words[2])),
                           words[3] == "na" ? UINT64_MAX : std::stoull(words[3])});
    }
    if (words[0] == "many") {
      for (uint32_t i = 0; i < std::stoul(words[2]); ++i) processes.push_back({100000 + i, kMiB});
    }
  }
  return processes;
}

[[maybe_unused]] uint64_t used_of(uint32_t gpu) {
  uint64_t used = kReserve;
  for (const FakeProcess& process : processes_of(gpu))
    used += process.memory == UINT64_MAX ? 0 : process.memory;
  return used;
}

template <size_t Stride>
int32_t list(void* device, uint32_t* count, void* entries) {
  const uint32_t gpu = index_of(device);
  const int32_t fault = enter("processes", gpu);
  if (fault != kOk) return fault;
  const std::vector<FakeProcess> processes = processes_of(gpu);
  if (processes.size() > *count) {
    *count = static_cast<uint32_t>(processes.size());
    return kInsufficientSize;
  }
  *count = static_cast<uint32_t>(processes.size());
  unsigned char* at = static_cast<unsigned char*>(entries);
  for (const FakeProcess& process : processes) {
    std::memset(at, 0, Stride);
    std::memcpy(at, &process.pid, 4);
    std::memcpy(at + 8, &process.memory, 8);
    if (Stride >= 24) std::memset(at + 16, 0xFF, 8);
    at += Stride;
  }
  return kOk;
}

[[maybe_unused]] int32_t set_text(char* buffer, uint32_t size, const std::string& text) {
  if (text.size() + 1 > size) return kInsufficientSize;
  std::memcpy(buffer, text.c_str(), text.size() + 1);
  return kOk;
}

}  // namespace

#define FAKE_EXPORT extern "C" __attribute__((visibility("default")))

FAKE_EXPORT int32_t nvmlInit();
FAKE_EXPORT int32_t nvmlInit() { return enter("init", 0); }

#if GENERATION > 0
#define FAKE_FUNCTION(name, ...)         \
  FAKE_EXPORT int32_t name(__VA_ARGS__); \
  FAKE_EXPORT int32_t name(__VA_ARGS__)

FAKE_FUNCTION(nvmlDeviceGetCount, uint32_t* count) {
  *count = read_control().count;
  return kOk;
}
FAKE_FUNCTION(nvmlDeviceGetHandleByIndex, uint32_t index, void** device) {
  const int32_t fault = enter("handle", index);
  *device = reinterpret_cast<void*>(uintptr_t{index} + 1);
  return fault;
}
FAKE_FUNCTION(nvmlSystemGetDriverVersion, char* buffer, uint32_t size) {
  return set_text(buffer, size, "550.1\n");
}
FAKE_FUNCTION(nvmlDeviceGetUUID, void* device, char* buffer, uint32_t size) {
  const int32_t fault = enter("uuid", index_of(device));
  if (fault != kOk) return fault;
  const uintptr_t number = reinterpret_cast<uintptr_t>(device) / kMigHandles;
  const auto* const line = line_of("mig", index_of(device));
  if (number > 0) return line == nullptr ? kNotFound : set_text(buffer, size, line->at(number + 1));
  return set_text(buffer, size, "GPU-fake-" + std::to_string(index_of(device)));
}
FAKE_FUNCTION(nvmlDeviceGetName, void*, char* buffer, uint32_t size) {
  return set_text(buffer, size, "NVIDIA GeForce RTX 4090");
}
FAKE_FUNCTION(nvmlDeviceGetMinorNumber, void* device, uint32_t* minor) {
  const auto* const line = line_of("minor", index_of(device));
  *minor = line != nullptr ? static_cast<uint32_t>(std::stoul(line->at(2))) : index_of(device);
  return kOk;
}
FAKE_FUNCTION(nvmlDeviceGetMemoryInfo, void* device, uint64_t* info) {
  const int32_t fault = enter("memory", index_of(device));
  if (fault != kOk) return fault;
  const uint64_t used = used_of(index_of(device));
  info[0] = kTotal;
  info[1] = kTotal - used;
  info[2] = used;
  return kOk;
}
FAKE_FUNCTION(nvmlDeviceGetUtilizationRates, void* device, uint32_t* rates) {
  const int32_t fault = enter("utilization", index_of(device));
  rates[0] = 37;
  rates[1] = 12;
  return fault;
}
FAKE_FUNCTION(nvmlDeviceGetTopologyCommonAncestor, void*, void*, uint32_t* level) {
  *level = 30;
  return kOk;
}
FAKE_FUNCTION(nvmlDeviceGetMigMode, void* device, uint32_t* current, uint32_t* pending) {
  if (line_of("mig", index_of(device)) == nullptr) return kNotSupported;
  *current = *pending = 1;
  return kOk;
}
FAKE_FUNCTION(nvmlDeviceGetVirtualizationMode, void* device, uint32_t* mode) {
  *mode = line_of("guest", index_of(device)) != nullptr ? 2 : 0;
  return kOk;
}
FAKE_FUNCTION(nvmlDeviceGetComputeRunningProcesses, void* device, uint32_t* count, void* entries) {
  return list<16>(device, count, entries);
}
#endif

#if GENERATION > 1
FAKE_FUNCTION(nvmlInit_v2) { return enter("init", 0); }
FAKE_FUNCTION(nvmlDeviceGetMemoryInfo_v2, void* device, unsigned char* info) {
  const int32_t fault = enter("memory", index_of(device));
  if (fault != kOk) return fault;
  uint32_t version = 0;
  std::memcpy(&version, info, 4);
  if (version != 0x02000028) return 25;
  const uint64_t used = used_of(index_of(device)) - kReserve;
  const uint64_t values[4] = {kTotal, kReserve, kTotal - kReserve - used, used};
  std::memcpy(info + 8, values, sizeof values);
  return kOk;
}
FAKE_FUNCTION(nvmlDeviceGetComputeRunningProcesses_v2, void* device, uint32_t* count, void* entries) {
  return list<24>(device, count, entries);
}
#endif

#if GENERATION == 3
// A MIG device's handle: its number and GPU above the handles of GPUs.
FAKE_FUNCTION(nvmlDeviceGetMigDeviceHandleByIndex, void* device, uint32_t number, void** instance) {
  const auto* const line = line_of("mig", index_of(device));
  if (line == nullptr || number + 2 >= line->size()) return line == nullptr ? kNotSupported : kNotFound;
  *instance = reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(device) + kMigHandles * (number + 1));
  return kOk;
}
FAKE_FUNCTION(nvmlDeviceGetGpuInstanceId, void* instance, uint32_t* id) {
  *id = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(instance) / kMigHandles);
  return kOk;
}
FAKE_FUNCTION(nvmlDeviceGetComputeInstanceId, void*, uint32_t* id) {
  *id = 0;
  return kOk;
}
FAKE_FUNCTION(nvmlDeviceGetAttributes_v2, void*, unsigned char* attributes) {
  const uint32_t numbers[8] = {16, 1, 0, 0, 0, 0, 1, 1};
  const uint64_t memory = 9984;
  std::memcpy(attributes, numbers, sizeof numbers);
  std::memcpy(attributes + sizeof numbers, &memory, sizeof memory);
  return kOk;
}
FAKE_FUNCTION(nvmlDeviceGetFieldValues, void* device, int32_t count, unsigned char* values) {
  for (int32_t i = 0; i < count; ++i, values += 40) {
    const auto* const line = line_of("recovery", index_of(device));
    const int32_t code = kOk;
    const uint32_t action = line != nullptr ? static_cast<uint32_t>(std::stoul(line->at(2))) : 0;
    std::memcpy(values + 28, &code, sizeof code);
    std::memcpy(values + 32, &action, sizeof action);
  }
  return kOk;
}
FAKE_FUNCTION(nvmlEventSetCreate, void** set) {
  *set = &driver_lock;  // any address
  return kOk;
}
FAKE_FUNCTION(nvmlDeviceRegisterEvents, void*, unsigned long long, void*) { return kOk; }
FAKE_FUNCTION(nvmlEventSetWait_v2, void*, unsigned char* data, uint32_t timeout_ms) {
  static size_t told = 0;
  for (uint32_t waited = 0; waited < timeout_ms; waited += 5, nap()) {
    size_t number = 0;
    for (const auto& words : read_control().lines) {
      if (words[0] != "xid" || number++ < told) continue;
      ++told;
      void* const device = reinterpret_cast<void*>(uintptr_t{std::stoul(words[2])} + 1);
      const uint64_t type = 8, code = std::stoull(words[1]);
      std::memcpy(data, &device, sizeof device);
      std::memcpy(data + 8, &type, sizeof type);
      std::memcpy(data + 16, &code, sizeof code);
      return kOk;
    }
  }
  return kTimeout;
}
FAKE_FUNCTION(nvmlDeviceGetComputeRunningProcesses_v3, void* device, uint32_t* count, void* entries) {
  return list<24>(device, count, entries);
}
FAKE_FUNCTION(nvmlDeviceGetConfComputeMemSizeInfo, void*, void*) { return kNotSupported; }
FAKE_FUNCTION(nvmlDeviceGetRunningProcessDetailList, void*, void*) { return kNotSupported; }
#elif GENERATION == 535
FAKE_FUNCTION(nvmlDeviceGetComputeRunningProcesses_v3, void* device, uint32_t* count, void* entries) {
  return list<32>(device, count, entries);
}
FAKE_FUNCTION(nvmlDeviceGetConfComputeMemSizeInfo, void*, void*) { return kNotSupported; }
#elif GENERATION == 536
// Has the function that came with the long layout, and the short layout: only a measurement can tell.
FAKE_FUNCTION(nvmlDeviceGetComputeRunningProcesses_v3, void* device, uint32_t* count, void* entries) {
  return list<24>(device, count, entries);
}
FAKE_FUNCTION(nvmlDeviceGetConfComputeMemSizeInfo, void*, void*) { return kNotSupported; }
#endif
