// Device memory and its health.
#include <algorithm>
#include <memory>

#include "emulator/nvml/mig_handles.h"
#include "emulator/nvml/nvml_call.h"

namespace tranche::emulator::nvml {
namespace {

constexpr uint64_t kMiB = 1u << 20;

// Error counters of boards with ECC.
template <class Body>
Return on_ecc_board(Device* device, Body body) {
  return with_gpu(device, [&](const Gpu& gpu) { return gpu.board.ecc ? body(gpu) : Return::not_supported; });
}

uint64_t ecc_errors(const Gpu& gpu, uint32_t error_type, uint32_t counter_type) {
  return gpu.model.faults(gpu.number).ecc[error_type][counter_type].load();
}

bool is_counter(uint32_t error_type, uint32_t counter_type) { return error_type <= 1 && counter_type <= 1; }

// Pages are retired before Ampere, rows remapped from there on.
bool retires_pages(const Gpu& gpu) { return gpu.board.ecc && gpu.board.architecture < Architecture::Ampere; }

Return no_retired_pages(Device* device, uint32_t cause, uint32_t* count) {
  return answer_one(device, count, [&](const Gpu& gpu, uint32_t& answer) {
    if (cause > 1) return Return::invalid_argument;
    if (!retires_pages(gpu)) return Return::not_supported;
    answer = 0;
    return Return::success;
  });
}

}  // namespace

// `used` of the first form has the driver's reserve in it, 346 MiB on an idle RTX 4090, from release 510 on;
// before, the reserve was neither used nor free.
NVML_EXPORT Return nvmlDeviceGetMemoryInfo(Device* device, Memory* memory) {
  if (is_mig_device(device) && memory != nullptr) {
    const Return answered = mig_memory(device, memory->total, memory->used);
    if (answered == Return::success) memory->free = memory->total - std::min(memory->total, memory->used);
    return answered;
  }
  return answer_one(device, memory, [](const Gpu& gpu, Memory& answer) {
    const GpuReading reading = gpu.read();
    const uint64_t held = reading.reserve_bytes + reading.used_bytes;
    const bool has_reserve = gpu.model.level().number("nvml.memory_used_has_reserve") != 0;
    answer = {.total = has_reserve ? reading.total_bytes : reading.total_bytes - reading.reserve_bytes,
              .free = reading.total_bytes - held,
              .used = has_reserve ? held : reading.used_bytes};
    return Return::success;
  });
}

// Inside a cgroup that has a limit of its own (not only a parent that has one) the limit is the total.
NVML_EXPORT Return nvmlDeviceGetMemoryInfo_v2(Device* device, MemoryV2* memory) {
  if (is_mig_device(device) && memory != nullptr) {
    if (memory->version != versioned<MemoryV2>(2)) return Return::argument_version_mismatch;
    memory->reserved = 0;
    const Return answered = mig_memory(device, memory->total, memory->used);
    if (answered == Return::success) memory->free = memory->total - std::min(memory->total, memory->used);
    return answered;
  }
  return answer_one(device, memory, [](const Gpu& gpu, MemoryV2& answer) {
    if (answer.version != versioned<MemoryV2>(2)) return Return::argument_version_mismatch;
    const GpuReading reading = gpu.read();
    answer.total = reading.total_bytes;
    answer.reserved = reading.reserve_bytes;
    answer.used = reading.used_bytes;
    answer.free = reading.total_bytes - reading.reserve_bytes - reading.used_bytes;
    const std::unique_ptr<MemoryLimit> limit = gpu.model.own_memory_limit(gpu.number);
    if (limit != nullptr && limit->hard_bytes < reading.total_bytes) {
      answer.total = limit->hard_bytes;
      answer.reserved = 0;
      answer.used = std::min(limit->used_bytes, limit->hard_bytes);
      answer.free = std::min(answer.free, answer.total - answer.used);
    }
    return Return::success;
  });
}

// Nothing is mapped through BAR1 but the driver's own megabyte.
// An instance has its part of what is left, as nvidia-smi shows it: 32767 and 8191 of 65536 MiB.
NVML_EXPORT Return nvmlDeviceGetBAR1MemoryInfo(Device* device, Bar1Memory* memory) {
  if (is_mig_device(device) && memory != nullptr) {
    return with_mig_device(device, [&](const Gpu& gpu, const MigDeviceInfo& info) {
      const MigBoard* const board = gpu.model.mig(gpu.number);
      if (board == nullptr || info.profile == nullptr) return Return::not_found;
      const uint64_t total = (gpu.detail.bar1_mib - 1) * kMiB * info.profile->units / board->units;
      *memory = {.total = total, .free = total, .used = 0};
      return Return::success;
    });
  }
  return answer_one(device, memory, [](const Gpu& gpu, Bar1Memory& answer) {
    const uint64_t total = gpu.detail.bar1_mib * kMiB;
    answer = {.total = total, .free = total - kMiB, .used = kMiB};
    return Return::success;
  });
}

NVML_EXPORT Return nvmlDeviceGetEccMode(Device* device, uint32_t* current, uint32_t* pending) {
  return on_ecc_board(device, [&](const Gpu&) {
    if (any_null(current, pending)) return Return::invalid_argument;
    *current = *pending = kEnabled;
    return Return::success;
  });
}

NVML_EXPORT Return nvmlDeviceGetDefaultEccMode(Device* device, uint32_t* mode) {
  return on_ecc_board(device, [&](const Gpu&) {
    if (mode == nullptr) return Return::invalid_argument;
    *mode = kEnabled;
    return Return::success;
  });
}

NVML_EXPORT Return nvmlDeviceGetTotalEccErrors(Device* device, uint32_t error_type, uint32_t counter_type,
                                               uint64_t* errors) {
  return on_ecc_board(device, [&](const Gpu& gpu) {
    if (errors == nullptr || !is_counter(error_type, counter_type)) return Return::invalid_argument;
    *errors = ecc_errors(gpu, error_type, counter_type);
    return Return::success;
  });
}

NVML_EXPORT Return nvmlDeviceGetDetailedEccErrors(Device* device, uint32_t error_type, uint32_t counter_type,
                                                  EccErrorCounts* errors) {
  return on_ecc_board(device, [&](const Gpu& gpu) {
    if (errors == nullptr || !is_counter(error_type, counter_type)) return Return::invalid_argument;
    *errors = {};
    errors->device_memory = ecc_errors(gpu, error_type, counter_type);
    return Return::success;
  });
}

// Only the counter of device memory is kept; the caches' differ by architecture.
NVML_EXPORT Return nvmlDeviceGetMemoryErrorCounter(Device* device, uint32_t error_type, uint32_t counter_type,
                                                   uint32_t location, uint64_t* errors) {
  constexpr uint32_t kDeviceMemory = 2, kLocations = 8;
  return on_ecc_board(device, [&](const Gpu& gpu) {
    if (errors == nullptr || !is_counter(error_type, counter_type) || location >= kLocations) {
      return Return::invalid_argument;
    }
    if (location != kDeviceMemory) return Return::not_supported;
    *errors = ecc_errors(gpu, error_type, counter_type);
    return Return::success;
  });
}

NVML_EXPORT Return nvmlDeviceGetRetiredPages(Device* device, uint32_t cause, uint32_t* count, uint64_t*) {
  return no_retired_pages(device, cause, count);
}
NVML_EXPORT Return nvmlDeviceGetRetiredPages_v2(Device* device, uint32_t cause, uint32_t* count, uint64_t*,
                                                uint64_t*) {
  return no_retired_pages(device, cause, count);
}
NVML_EXPORT Return nvmlDeviceGetRetiredPagesPendingStatus(Device* device, uint32_t* pending) {
  return answer_one(device, pending, [](const Gpu& gpu, uint32_t& answer) {
    if (!retires_pages(gpu)) return Return::not_supported;
    answer = kDisabled;
    return Return::success;
  });
}

NVML_EXPORT Return nvmlDeviceGetRemappedRows(Device* device, uint32_t* correctable, uint32_t* uncorrectable,
                                             uint32_t* is_pending, uint32_t* failure) {
  return with_gpu(device, [&](const Gpu& gpu) {
    if (any_null(correctable, uncorrectable, is_pending, failure)) return Return::invalid_argument;
    if (!tells_remapped_rows(gpu)) return Return::not_supported;
    const SharedGpuFaults& faults = gpu.model.faults(gpu.number);
    *correctable = faults.rows_corrected.load();
    *uncorrectable = faults.rows_uncorrected.load();
    *is_pending = faults.rows_pending.load();
    *failure = faults.rows_failure.load();
    return Return::success;
  });
}

}  // namespace tranche::emulator::nvml
