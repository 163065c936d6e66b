// NVML, loaded at run time. Only the sampler process includes this: any of these calls may never return.
//
// The driver's answers are untrusted: texts are cut and cleaned, counts bounded, buffers larger than any
// known layout. A function that the installed driver does not have answers function_not_found. Threading:
// NvmlLibrary is constant after open() and NVML itself is thread-safe; a NvmlCaller belongs to one thread,
// except for its CallInFlight.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "gpu/nvml_calls.h"
#include "gpu/nvml_types.h"

namespace tranche::nvml {

// A sentence's end for people: "the GPU has fallen off the bus".
std::string code_text(Code code);

// A value or the reason why there is none.
template <class T>
struct Answer {
  Code code = Code::unknown;
  T value{};
  bool ok() const { return code == Code::success; }
  std::optional<T> known() const { return ok() ? std::optional<T>(value) : std::nullopt; }
};

struct Memory {
  uint64_t total = 0, free = 0;      // bytes
  std::optional<uint64_t> reserved;  // unknown before drivers of series 510
};
struct Process {
  uint32_t pid = 0;
  std::optional<uint64_t> used_memory;  // bytes
};
struct MigMode {
  bool current = false, pending = false;
};
struct ComputeCapability {
  int32_t major = 0, minor = 0;
};
struct RemappedRows {
  bool pending = false, failure = false;
};
struct Xid {
  Device device = nullptr;
  uint64_t code = 0;
};
struct MigDevice {
  std::string uuid;
  uint32_t gpu_instance = 0, compute_instance = 0;
  Attributes attributes{};
};
inline constexpr uint32_t kMigDevicesMax = 16;  // of one GPU: the finest layout of any board has 7

inline constexpr size_t kProcessesMax = 4096;  // of one list
inline constexpr size_t kCpuSetWords = 64;     // 4096 processors

struct Functions;  // pointers into the library

class NvmlLibrary {
 public:
  // Loads libnvidia-ml.so.1 from `directory`, or where the dynamic linker finds it if that is empty. The
  // library stays loaded until the process ends. Errors: unavailable, naming what to install.
  static Result<std::unique_ptr<NvmlLibrary>> open(const std::string& directory);
  ~NvmlLibrary();

  const Functions& functions() const { return *functions_; }

 private:
  NvmlLibrary();
  std::unique_ptr<Functions> functions_;
};

// One thread's way into the library: notes each call before it is made.
class NvmlCaller {
 public:
  NvmlCaller(const NvmlLibrary& library, CallInFlight& in_flight)
      : functions_(library.functions()), in_flight_(in_flight) {}

  Code init();
  Answer<std::string> driver_version();
  Answer<uint32_t> device_count();
  Answer<Device> device(uint32_t index);

  Answer<std::string> uuid(Device device);
  Answer<std::string> name(Device device);
  Answer<uint32_t> minor_number(Device device);
  Answer<std::string> pci_bus_id(Device device);  // "00000000:3B:00.0"
  Answer<Memory> memory(Device device);
  Answer<Utilization> utilization(Device device);
  Answer<uint32_t> temperature_celsius(Device device);
  Answer<uint32_t> power_milliwatts(Device device);
  Answer<uint32_t> power_limit_milliwatts(Device device);
  // Compute, graphics and MPS clients in one list by pid, each once; insufficient_size if they are too many.
  Answer<std::vector<Process>> processes(Device device);
  Answer<ComputeCapability> compute_capability(Device device);
  Answer<MigMode> mig_mode(Device device);
  Answer<uint32_t> numa_node(Device device);
  Answer<std::array<uint64_t, kCpuSetWords>> cpu_affinity(Device device);
  Answer<uint32_t> common_ancestor(Device first, Device second);  // kTopology*
  Answer<bool> joined_by_nvlink(Device first, Device second);
  Answer<uint64_t> clocks_event_reasons(Device device);
  Answer<RemappedRows> remapped_rows(Device device);
  Answer<uint32_t> virtualization_mode(Device device);
  Answer<uint32_t> recovery_action(Device device);
  // By their numbers, holes left out; empty while MIG is off.
  Answer<std::vector<MigDevice>> mig_devices(Device device);
  Answer<std::string> mig_uuid(Device device, uint32_t number);

  Answer<EventSet> event_set();
  Code register_xids(Device device, EventSet set);
  // Waits for the next XID; the answer is `timeout` when there was none.
  Answer<Xid> wait_for_xid(EventSet set, uint32_t timeout_milliseconds);

 private:
  template <class Function, class... Arguments>
  Code invoke(Call call, Function* function, Arguments... arguments);
  template <class Function>
  Answer<std::string> text(Call call, Function* function, Device device);
  using ProcessFunction = int32_t(Device, uint32_t*, void*);
  Answer<std::vector<Process>> process_list(Call call, ProcessFunction* function, bool first_layout,
                                            Device device);

  const Functions& functions_;
  CallInFlight& in_flight_;
};

}  // namespace tranche::nvml
