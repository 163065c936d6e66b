// Entry points: start, versions, errors and devices.

#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>

#include "emulator/cuda/device_attributes.h"
#include "emulator/cuda/driver.h"

namespace tranche::emulator::cuda {
namespace {

// PCI bus ids as CUDA writes them: domain:bus:device.function.
void write_bus_id(const GpuIdentity& identity, char* text, size_t bytes) {
  std::snprintf(text, bytes, "%04X:%02X:%02X.0", identity.pci_domain, identity.pci_bus, identity.pci_device);
}

CUresult write_uuid(CUuuid* uuid, CUdevice ordinal) {
  Driver::Device* device = nullptr;
  CUDA_TRY(driver().find_device(ordinal, device));
  if (uuid == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::memcpy(uuid->bytes, driver().model().identity(device->gpu).uuid.data(), sizeof uuid->bytes);
  return CUDA_SUCCESS;
}

// Whether one GPU can reach another's memory: over NVLink, or over PCIe between equal data-centre boards.
bool can_reach(const Driver::Device& from, const Driver::Device& to) {
  const Board& a = driver().model().board(from.gpu);
  const Board& b = driver().model().board(to.gpu);
  return from.gpu != to.gpu && a.key == b.key && !a.fan;  // GeForce boards refuse
}

}  // namespace

CUDA_ENTRY cuInit(unsigned flags) { return driver().initialise(flags); }

CUDA_ENTRY cuDriverGetVersion(int* version) {
  if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (driver().ready() == CUDA_SUCCESS) {
    *version = driver().model().cuda_version();
    return CUDA_SUCCESS;
  }
  // Allowed before cuInit.
  const auto model = DeviceModel::attach(default_state_directory());
  *version = model ? (*model)->cuda_version() : cuda_version_of_driver(ServerDescription().driver_version);
  return CUDA_SUCCESS;
}

CUDA_ENTRY cuGetErrorName(CUresult error, const char** name) {
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  switch (static_cast<int>(error)) {
#define EMULATOR_CUDA_NAME(code, number, text) \
  case number:                                 \
    *name = #code;                             \
    return CUDA_SUCCESS;
    EMULATOR_CUDA_RESULTS(EMULATOR_CUDA_NAME)
#undef EMULATOR_CUDA_NAME
    default:
      *name = nullptr;
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUDA_ENTRY cuGetErrorString(CUresult error, const char** string) {
  if (string == nullptr) return CUDA_ERROR_INVALID_VALUE;
  switch (static_cast<int>(error)) {
#define EMULATOR_CUDA_TEXT(code, number, text) \
  case number:                                 \
    *string = text;                            \
    return CUDA_SUCCESS;
    EMULATOR_CUDA_RESULTS(EMULATOR_CUDA_TEXT)
#undef EMULATOR_CUDA_TEXT
    default:
      *string = nullptr;
      return CUDA_ERROR_INVALID_VALUE;
  }
}

// The private tables that the CUDA runtime asks for are the vendor's and are not imitated.
CUDA_ENTRY cuGetExportTable(const void** table, const CUuuid* id) {
  if (table == nullptr || id == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *table = nullptr;
  return CUDA_ERROR_NOT_FOUND;
}

CUDA_ENTRY cuDeviceGetCount(int* count) {
  CUDA_TRY(driver().ready());
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *count = driver().device_count();
  return CUDA_SUCCESS;
}

CUDA_ENTRY cuDeviceGet(CUdevice* device, int ordinal) {
  Driver::Device* found = nullptr;
  CUDA_TRY(driver().ready());
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUDA_TRY(driver().find_device(ordinal, found));
  *device = ordinal;
  return CUDA_SUCCESS;
}

CUDA_ENTRY cuDeviceGetName(char* name, int bytes, CUdevice ordinal) {
  Driver::Device* device = nullptr;
  CUDA_TRY(driver().find_device(ordinal, device));
  if (name == nullptr || bytes <= 0) return CUDA_ERROR_INVALID_VALUE;
  std::string text(driver().model().board(device->gpu).name);
  if (device->mig) text += " MIG " + device->mig->name;
  name[text.copy(name, static_cast<size_t>(bytes) - 1)] = '\0';
  return CUDA_SUCCESS;
}

CUDA_ENTRY cuDeviceGetUuid(CUuuid* uuid, CUdevice device) { return write_uuid(uuid, device); }
// The second form tells a MIG device's own.
CUDA_ENTRY cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice ordinal) {
  CUDA_TRY(write_uuid(uuid, ordinal));
  const Driver::Device& device = *driver().device(ordinal);
  if (device.mig) std::memcpy(uuid->bytes, device.mig->uuid.data(), sizeof uuid->bytes);
  return CUDA_SUCCESS;
}

CUDA_ENTRY cuDeviceTotalMem_v2(size_t* bytes, CUdevice ordinal) {
  Driver::Device* device = nullptr;
  CUDA_TRY(driver().find_device(ordinal, device));
  if (bytes == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *bytes = device->mig ? device->mig->memory_bytes : driver().model().usable_bytes(device->gpu);
  return CUDA_SUCCESS;
}

CUDA_ENTRY cuDeviceGetAttribute(int* value, int attribute, CUdevice ordinal) {
  Driver::Device* device = nullptr;
  CUDA_TRY(driver().ready());
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUDA_TRY(driver().find_device(ordinal, device));
  const DeviceModel& model = driver().model();
  constexpr int kMultiprocessorCount = 16, kComputeMode = 20, kMpsEnabled = 133;
  if (device->multiprocessors > 0 && attribute == kMultiprocessorCount) {
    *value = static_cast<int>(device->multiprocessors);
    return CUDA_SUCCESS;
  }
  if (attribute == kComputeMode) {
    *value = static_cast<int>(driver().model().settings(device->gpu).compute_mode.load());
    return CUDA_SUCCESS;
  }
  if (attribute == kMpsEnabled) {
    *value = model.is_mps(device->gpu) ? 1 : 0;
    return CUDA_SUCCESS;
  }
  if (device->mig && attribute == kMultiprocessorCount) {
    *value = static_cast<int>(device->mig->multiprocessors);
    return CUDA_SUCCESS;
  }
  return device_attribute(model.board(device->gpu), model.identity(device->gpu), attribute, *value);
}

CUDA_ENTRY cuDeviceComputeCapability(int* major, int* minor, CUdevice ordinal) {
  Driver::Device* device = nullptr;
  CUDA_TRY(driver().find_device(ordinal, device));
  if (major == nullptr || minor == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *major = static_cast<int>(driver().model().board(device->gpu).compute_major);
  *minor = static_cast<int>(driver().model().board(device->gpu).compute_minor);
  return CUDA_SUCCESS;
}

CUDA_ENTRY cuDeviceGetProperties(CUdevprop* properties, CUdevice ordinal) {
  Driver::Device* device = nullptr;
  CUDA_TRY(driver().find_device(ordinal, device));
  if (properties == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Board& board = driver().model().board(device->gpu);
  *properties = {kMaxThreadsPerBlock,
                 {1024, 1024, 64},
                 {2147483647, 65535, 65535},
                 kSharedBytesPerBlock,
                 65536,
                 32,
                 2147483647,
                 kRegisters,
                 static_cast<int>(board.clock_max_mhz * 1000),
                 512};
  return CUDA_SUCCESS;
}

CUDA_ENTRY cuDeviceGetPCIBusId(char* text, int bytes, CUdevice ordinal) {
  Driver::Device* device = nullptr;
  CUDA_TRY(driver().find_device(ordinal, device));
  if (text == nullptr || bytes <= 0) return CUDA_ERROR_INVALID_VALUE;
  write_bus_id(driver().model().identity(device->gpu), text, static_cast<size_t>(bytes));
  return CUDA_SUCCESS;
}

CUDA_ENTRY cuDeviceGetByPCIBusId(CUdevice* ordinal, const char* text) {
  CUDA_TRY(driver().ready());
  if (ordinal == nullptr || text == nullptr) return CUDA_ERROR_INVALID_VALUE;
  unsigned domain = 0, bus = 0, device = 0;
  const bool with_domain = std::sscanf(text, "%8x:%2x:%2x", &domain, &bus, &device) == 3;
  if (!with_domain && std::sscanf(text, "%2x:%2x", &bus, &device) != 2) return CUDA_ERROR_INVALID_VALUE;
  if (!with_domain) domain = 0;
  for (*ordinal = 0; *ordinal < driver().device_count(); ++*ordinal) {
    const GpuIdentity& identity = driver().model().identity(driver().device(*ordinal)->gpu);
    if (identity.pci_domain == domain && identity.pci_bus == bus && identity.pci_device == device) {
      return CUDA_SUCCESS;
    }
  }
  return CUDA_ERROR_INVALID_DEVICE;
}

CUDA_ENTRY cuDeviceCanAccessPeer(int* can, CUdevice ordinal, CUdevice peer) {
  Driver::Device *device = nullptr, *other = nullptr;
  CUDA_TRY(driver().find_device(ordinal, device));
  CUDA_TRY(driver().find_device(peer, other));
  if (can == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *can = can_reach(*device, *other) ? 1 : 0;
  return CUDA_SUCCESS;
}

// 1: performance rank, 2: access supported, 3: native atomics, 4: array access.
CUDA_ENTRY cuDeviceGetP2PAttribute(int* value, int attribute, CUdevice ordinal, CUdevice peer) {
  Driver::Device *device = nullptr, *other = nullptr;
  CUDA_TRY(driver().find_device(ordinal, device));
  CUDA_TRY(driver().find_device(peer, other));
  if (value == nullptr || attribute < 1 || attribute > 4 || ordinal == peer) return CUDA_ERROR_INVALID_VALUE;
  const bool reach = can_reach(*device, *other);
  const bool nvlink = driver().model().board(device->gpu).nvlinks > 0;
  if (attribute == 1)
    *value = reach && !nvlink ? 1 : 0;
  else
    *value = reach && (attribute == 2 || nvlink) ? 1 : 0;
  return CUDA_SUCCESS;
}

CUDA_ENTRY cuProfilerStart() { return driver().ready(); }
CUDA_ENTRY cuProfilerStop() { return driver().ready(); }

}  // namespace tranche::emulator::cuda
