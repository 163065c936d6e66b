// Which GPUs there are, and what each is.
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>

#include "emulator/nvml/mig_handles.h"
#include "emulator/nvml/nvml_call.h"

namespace tranche::emulator::nvml {
namespace {

Return count_gpus(uint32_t* count) {
  return with_session([&](const Session& session) {
    if (count == nullptr) return Return::invalid_argument;
    *count = static_cast<uint32_t>(session.visible().size());
    return Return::success;
  });
}

Return handle_by_index(uint32_t index, Device** device) {
  return with_session([&](const Session& session) {
    if (device == nullptr || index >= session.visible().size()) return Return::invalid_argument;
    if (session.model().is_lost(session.visible()[index])) return Return::gpu_is_lost;
    *device = session.handle(index);
    return Return::success;
  });
}

// The handle of the first GPU for which matches(gpu) holds.
template <class Matches>
Return handle_where(const Session& session, Device** device, Matches matches) {
  for (uint32_t index = 0; index < session.visible().size(); ++index) {
    if (!matches(gpu_at(session, index))) continue;
    if (session.model().is_lost(session.visible()[index])) return Return::gpu_is_lost;
    *device = session.handle(index);
    return Return::success;
  }
  return Return::not_found;
}

struct PciAddress {
  uint32_t domain, bus, device;
  bool operator==(const PciAddress&) const = default;
};

// A hexadecimal number of 1 to 8 digits at the start of `text`, which loses it.
std::optional<uint32_t> take_hexadecimal(std::string_view& text) {
  uint64_t value = 0;
  size_t digits = 0;
  for (; digits < text.size(); ++digits) {
    const char c = text[digits];
    const bool decimal = c >= '0' && c <= '9';
    const char lower = static_cast<char>(c | 0x20);
    if (!decimal && !(lower >= 'a' && lower <= 'f')) break;
    value = value * 16 + static_cast<uint64_t>(decimal ? c - '0' : lower - 'a' + 10);
    if (digits == 8) return std::nullopt;
  }
  if (digits == 0) return std::nullopt;
  text.remove_prefix(digits);
  return static_cast<uint32_t>(value);
}

bool take(char expected, std::string_view& text) {
  if (text.empty() || text.front() != expected) return false;
  text.remove_prefix(1);
  return true;
}

// "[domain:]bus:device[.0]", in hexadecimal.
std::optional<PciAddress> parse_pci(std::string_view text) {
  const std::optional<uint32_t> first = take_hexadecimal(text);
  if (!first || !take(':', text)) return std::nullopt;
  const std::optional<uint32_t> second = take_hexadecimal(text);
  if (!second) return std::nullopt;
  PciAddress address{0, *first, *second};
  if (take(':', text)) {
    const std::optional<uint32_t> third = take_hexadecimal(text);
    if (!third) return std::nullopt;
    address = {*first, *second, *third};
  }
  if (take('.', text) && !take('0', text)) return std::nullopt;
  return text.empty() ? std::optional(address) : std::nullopt;
}

Return handle_by_pci(const char* bus_id, Device** device) {
  return with_session([&](const Session& session) {
    if (bus_id == nullptr || device == nullptr) return Return::invalid_argument;
    const std::optional<PciAddress> wanted = parse_pci(std::string_view(bus_id, strnlen(bus_id, 64)));
    if (!wanted) return Return::invalid_argument;
    return handle_where(session, device, [&](const Gpu& gpu) {
      return PciAddress{gpu.identity.pci_domain, gpu.identity.pci_bus, gpu.identity.pci_device} == *wanted;
    });
  });
}

constexpr uint32_t kNvidiaVendor = 0x10DE;

template <size_t Size>
void write_bus_id(const Gpu& gpu, int domain_digits, std::array<char, Size>& text) {
  std::snprintf(text.data(), Size, "%0*X:%02X:%02X.0", domain_digits, gpu.identity.pci_domain,
                gpu.identity.pci_bus, gpu.identity.pci_device);
}

template <class Info>
void write_address(const Gpu& gpu, Info& info) {
  info.domain = gpu.identity.pci_domain;
  info.bus = gpu.identity.pci_bus;
  info.device = gpu.identity.pci_device;
  info.pci_device_id = gpu.board.pci_device_id << 16 | kNvidiaVendor;
}

}  // namespace

NVML_EXPORT Return nvmlDeviceGetCount(uint32_t* count) { return count_gpus(count); }
NVML_EXPORT Return nvmlDeviceGetCount_v2(uint32_t* count) { return count_gpus(count); }
NVML_EXPORT Return nvmlDeviceGetHandleByIndex(uint32_t index, Device** device) {
  return handle_by_index(index, device);
}
NVML_EXPORT Return nvmlDeviceGetHandleByIndex_v2(uint32_t index, Device** device) {
  return handle_by_index(index, device);
}

NVML_EXPORT Return nvmlDeviceGetHandleByUUID(const char* uuid, Device** device) {
  return with_session([&](const Session& session) {
    if (uuid == nullptr || device == nullptr) return Return::invalid_argument;
    const std::string_view wanted(uuid, strnlen(uuid, 96));
    return handle_where(session, device,
                        [&](const Gpu& gpu) { return wanted == gpu.identity.uuid_text.data(); });
  });
}

NVML_EXPORT Return nvmlDeviceGetHandleBySerial(const char* serial, Device** device) {
  return with_session([&](const Session& session) {
    if (serial == nullptr || device == nullptr) return Return::invalid_argument;
    const std::string_view wanted(serial, strnlen(serial, 64));
    return handle_where(session, device, [&](const Gpu& gpu) {
      return gpu.detail.has_serial && wanted == gpu.identity.serial.data();
    });
  });
}

NVML_EXPORT Return nvmlDeviceGetHandleByPciBusId(const char* bus_id, Device** device) {
  return handle_by_pci(bus_id, device);
}
NVML_EXPORT Return nvmlDeviceGetHandleByPciBusId_v2(const char* bus_id, Device** device) {
  return handle_by_pci(bus_id, device);
}

NVML_EXPORT Return nvmlDeviceGetName(Device* device, char* name, uint32_t length) {
  if (is_mig_device(device)) return mig_name(device, name, length);
  return with_gpu(device, [&](const Gpu& gpu) { return copy_text(gpu.board.name, name, length); });
}

NVML_EXPORT Return nvmlDeviceGetUUID(Device* device, char* uuid, uint32_t length) {
  if (is_mig_device(device)) return mig_uuid(device, uuid, length);
  return with_gpu(device,
                  [&](const Gpu& gpu) { return copy_text(gpu.identity.uuid_text.data(), uuid, length); });
}

NVML_EXPORT Return nvmlDeviceGetSerial(Device* device, char* serial, uint32_t length) {
  return with_gpu(device, [&](const Gpu& gpu) {
    if (serial == nullptr) return Return::invalid_argument;
    if (!gpu.detail.has_serial) return Return::not_supported;
    return copy_text(gpu.identity.serial.data(), serial, length);
  });
}

NVML_EXPORT Return nvmlDeviceGetIndex(Device* device, uint32_t* index) {
  return answer_one(device, index, [](const Gpu& gpu, uint32_t& answer) {
    answer = gpu.index;
    return Return::success;
  });
}

NVML_EXPORT Return nvmlDeviceGetMinorNumber(Device* device, uint32_t* minor) {
  return answer_one(device, minor, [](const Gpu& gpu, uint32_t& answer) {
    answer = gpu.identity.minor;
    return Return::success;
  });
}

NVML_EXPORT Return nvmlDeviceGetBrand(Device* device, uint32_t* brand) {
  return answer_one(device, brand, [](const Gpu& gpu, uint32_t& answer) {
    answer = static_cast<uint32_t>(gpu.board.brand);
    return Return::success;
  });
}

NVML_EXPORT Return nvmlDeviceGetArchitecture(Device* device, uint32_t* architecture) {
  return answer_one(device, architecture, [](const Gpu& gpu, uint32_t& answer) {
    answer = static_cast<uint32_t>(gpu.board.architecture);
    return Return::success;
  });
}

NVML_EXPORT Return nvmlDeviceGetCudaComputeCapability(Device* device, int32_t* major, int32_t* minor) {
  return with_gpu(device, [&](const Gpu& gpu) {
    if (any_null(major, minor)) return Return::invalid_argument;
    *major = static_cast<int32_t>(gpu.board.compute_major);
    *minor = static_cast<int32_t>(gpu.board.compute_minor);
    return Return::success;
  });
}

NVML_EXPORT Return nvmlDeviceGetNumGpuCores(Device* device, uint32_t* cores) {
  return answer_one(device, cores, [](const Gpu& gpu, uint32_t& answer) {
    answer = gpu.board.multiprocessors * gpu.board.cores_per_multiprocessor;
    return Return::success;
  });
}

NVML_EXPORT Return nvmlDeviceGetMemoryBusWidth(Device* device, uint32_t* bits) {
  return answer_one(device, bits, [](const Gpu& gpu, uint32_t& answer) {
    answer = gpu.board.memory_bus_bits;
    return Return::success;
  });
}

// Boards with one GPU each; NVML derives the board's id from its PCI bus.
NVML_EXPORT Return nvmlDeviceGetBoardId(Device* device, uint32_t* board) {
  return answer_one(device, board, [](const Gpu& gpu, uint32_t& answer) {
    answer = gpu.identity.pci_domain << 16 | gpu.identity.pci_bus << 8;
    return Return::success;
  });
}
NVML_EXPORT Return nvmlDeviceGetMultiGpuBoard(Device* device, uint32_t* multiple) {
  return answer_one(device, multiple, [](const Gpu&, uint32_t& answer) {
    answer = 0;
    return Return::success;
  });
}
NVML_EXPORT Return nvmlDeviceOnSameBoard(Device* first, Device* second, int32_t* same) {
  return answer_one(first, same, [&](const Gpu& gpu, int32_t& answer) {
    if (!gpu.session.index_of(second)) return Return::invalid_argument;
    answer = first == second ? 1 : 0;
    return Return::success;
  });
}

NVML_EXPORT Return nvmlDeviceGetPciInfo(Device* device, PciInfoV1* info) {
  return answer_one(device, info, [](const Gpu& gpu, PciInfoV1& answer) {
    answer = {};
    write_bus_id(gpu, 4, answer.bus_id);
    write_address(gpu, answer);
    return Return::success;
  });
}

NVML_EXPORT Return nvmlDeviceGetPciInfo_v2(Device* device, PciInfoV2* info) {
  return answer_one(device, info, [](const Gpu& gpu, PciInfoV2& answer) {
    answer = {};
    write_bus_id(gpu, 4, answer.bus_id);
    write_address(gpu, answer);
    answer.pci_subsystem_id = answer.pci_device_id;
    return Return::success;
  });
}

NVML_EXPORT Return nvmlDeviceGetPciInfo_v3(Device* device, PciInfoV3* info) {
  return answer_one(device, info, [](const Gpu& gpu, PciInfoV3& answer) {
    answer = {};
    write_bus_id(gpu, 4, answer.bus_id_legacy);
    write_bus_id(gpu, 8, answer.bus_id);
    write_address(gpu, answer);
    answer.pci_subsystem_id = answer.pci_device_id;
    return Return::success;
  });
}

NVML_EXPORT Return nvmlDeviceGetPciInfoExt(Device* device, PciInfoExtended* info) {
  return answer_one(device, info, [](const Gpu& gpu, PciInfoExtended& answer) {
    if (answer.version != versioned<PciInfoExtended>(1)) return Return::argument_version_mismatch;
    answer = {};
    answer.version = versioned<PciInfoExtended>(1);
    write_bus_id(gpu, 8, answer.bus_id);
    write_address(gpu, answer);
    answer.pci_subsystem_id = answer.pci_device_id;
    answer.base_class = 3;                     // display controller
    answer.sub_class = gpu.board.fan ? 0 : 2;  // VGA for a graphics card, else 3D
    return Return::success;
  });
}

}  // namespace tranche::emulator::nvml
