// nvmlDeviceGetFieldValues: many values in one call, each with its own result.
#include <algorithm>
#include <ctime>

#include "emulator/nvml/nvml_call.h"

namespace tranche::emulator::nvml {
namespace {

// Numbers of the fields that are answered; the others below kFieldEnd exist and are not supported.
namespace field_number {
constexpr uint32_t ecc_current = 1;
constexpr uint32_t ecc_pending = 2;
constexpr uint32_t ecc_single_volatile = 3;
constexpr uint32_t ecc_double_volatile = 4;
constexpr uint32_t ecc_single_aggregate = 5;
constexpr uint32_t ecc_double_aggregate = 6;
constexpr uint32_t retired_single = 29;
constexpr uint32_t retired_double = 30;
constexpr uint32_t retired_pending = 31;
constexpr uint32_t policy_power = 74;
constexpr uint32_t policy_thermal = 75;
constexpr uint32_t total_energy = 83;
constexpr uint32_t nvlink_count = 91;
constexpr uint32_t pcie_replays = 94;
constexpr uint32_t remapped_correctable = 142;
constexpr uint32_t remapped_uncorrectable = 143;
constexpr uint32_t remapped_pending = 144;
constexpr uint32_t remapped_failure = 145;
constexpr uint32_t nvlink_speed = 164;
constexpr uint32_t nvlink_state = 165;
constexpr uint32_t nvlink_version = 166;
constexpr uint32_t resetless_mig = 184;
constexpr uint32_t power_average = 185;
constexpr uint32_t power_instant = 186;
constexpr uint32_t power_min_limit = 187;
constexpr uint32_t power_max_limit = 188;
constexpr uint32_t power_default_limit = 189;
constexpr uint32_t power_current_limit = 190;
constexpr uint32_t power_requested_limit = 192;
constexpr uint32_t pcie_sent_bytes = 197;
constexpr uint32_t pcie_received_bytes = 198;
constexpr uint32_t recovery_action = 230;
constexpr uint32_t software_thermal_ns = 269;
constexpr uint32_t hardware_thermal_ns = 270;
constexpr uint32_t power_brake_ns = 271;
}  // namespace field_number

// The GPU and one reading of it, shared by all fields of a call.
struct Source {
  const Gpu& gpu;
  GpuReading reading;
};

Return number32(FieldValue& field, uint32_t value) {
  field.type = ValueType::u32;
  field.value.u64 = 0;
  field.value.u32 = value;
  return Return::success;
}
Return number64(FieldValue& field, uint64_t value) {
  field.type = ValueType::u64;
  field.value.u64 = value;
  return Return::success;
}

// Values of health.
Return health_value(const Source& source, uint32_t field, FieldValue& value) {
  const SharedGpuFaults& faults = source.gpu.model.faults(source.gpu.number);
  const bool retires = source.gpu.board.ecc && source.gpu.board.architecture < Architecture::Ampere;
  switch (field) {
    case field_number::ecc_current:
    case field_number::ecc_pending:
      return source.gpu.board.ecc ? number32(value, 1) : Return::not_supported;
    case field_number::ecc_single_volatile:
    case field_number::ecc_double_volatile:
    case field_number::ecc_single_aggregate:
    case field_number::ecc_double_aggregate: {
      const uint32_t place = field - field_number::ecc_single_volatile;  // corrected first, volatile first
      return source.gpu.board.ecc ? number64(value, faults.ecc[place % 2][place / 2].load())
                                  : Return::not_supported;
    }
    case field_number::retired_single:
    case field_number::retired_double:
      return retires ? number64(value, 0) : Return::not_supported;
    case field_number::retired_pending:
      return retires ? number32(value, 0) : Return::not_supported;
    case field_number::remapped_correctable:
    case field_number::remapped_uncorrectable:
    case field_number::remapped_pending:
    case field_number::remapped_failure: {
      const std::array rows{faults.rows_corrected.load(), faults.rows_uncorrected.load(),
                            faults.rows_pending.load(), faults.rows_failure.load()};
      return tells_remapped_rows(source.gpu)
                 ? number32(value, rows[field - field_number::remapped_correctable])
                 : Return::not_supported;
    }
    case field_number::recovery_action:
      return number32(value, faults.recovery.load());
    default:
      return Return::not_supported;
  }
}

// Power is the host's where the guest has a share of a GPU.
Return power_value(const Source& source, uint32_t field, FieldValue& value) {
  const Gpu& gpu = source.gpu;
  if (gpu.is_share()) return Return::not_supported;
  switch (field) {
    case field_number::power_average:
      return number32(value, source.reading.power_milliwatts);
    case field_number::power_instant:
      return number32(value, source.reading.power_instant_milliwatts);
    case field_number::power_min_limit:
      return number32(value, gpu.detail.power_min_mw);
    case field_number::power_max_limit:
      return number32(value, gpu.detail.power_max_mw);
    case field_number::power_default_limit:
      return number32(value, gpu.board.power_limit_mw);
    case field_number::power_current_limit:
    case field_number::power_requested_limit:
      return number32(value, gpu.power_limit_mw());
    default:
      return Return::not_supported;
  }
}

// A link is named by the field's scope. Speeds in MB/s of one link and direction: 25, 26.562 and 53.125 GB/s.
Return link_value(const Source& source, uint32_t field, FieldValue& value) {
  const Board& board = source.gpu.board;
  if (board.nvlinks == 0) return Return::not_supported;
  if (value.scope >= board.nvlinks) return Return::invalid_argument;
  const bool is_blackwell = board.architecture >= Architecture::Blackwell;
  const bool is_hopper = board.architecture >= Architecture::Hopper;
  if (field == field_number::nvlink_state) return number32(value, 1);
  if (field == field_number::nvlink_version) return number32(value, is_blackwell ? 7 : is_hopper ? 6 : 4);
  return number32(value, is_blackwell ? 53125 : is_hopper ? 26562 : 25781);
}

// Time with lowered clocks, by reason: the truth, of which the bits of the moment are a snapshot.
Return throttle_value(const Source& source, uint32_t field, FieldValue& value) {
  if (source.gpu.is_share()) return Return::not_supported;
  const auto had = [&](uint64_t reason) { return source.gpu.model.throttled_ns(source.gpu.number, reason); };
  switch (field) {
    case field_number::policy_power:
      return number64(value, had(kReasonPowerCap));
    case field_number::policy_thermal:
      return number64(value, std::max(had(kReasonSoftwareThermal), had(kReasonHardwareThermal)));
    case field_number::software_thermal_ns:
      return number64(value, had(kReasonSoftwareThermal));
    case field_number::hardware_thermal_ns:
      return number64(value, had(kReasonHardwareThermal));
    default:
      return number64(value, had(kReasonPowerBrake));
  }
}

Return value_of(const Source& source, uint32_t field, FieldValue& value) {
  switch (field) {
    case field_number::total_energy:
      return number64(value, source.reading.energy_millijoules);
    case field_number::nvlink_count:
      return number32(value, source.gpu.board.nvlinks);
    case field_number::pcie_replays:
      return number32(value, 0);
    case field_number::resetless_mig:  // Hopper and later switch MIG without a reset
      return number32(value, source.gpu.board.architecture >= Architecture::Hopper ? 1 : 0);
    case field_number::pcie_sent_bytes:
      return number64(value, source.gpu.model.bytes_moved(source.gpu.number, Bus::from_gpu));
    case field_number::pcie_received_bytes:
      return number64(value, source.gpu.model.bytes_moved(source.gpu.number, Bus::to_gpu));
    case field_number::policy_power:
    case field_number::policy_thermal:
    case field_number::software_thermal_ns:
    case field_number::hardware_thermal_ns:
    case field_number::power_brake_ns:
      return throttle_value(source, field, value);
    case field_number::nvlink_speed:
    case field_number::nvlink_state:
    case field_number::nvlink_version:
      return link_value(source, field, value);
    default:
      if (field >= field_number::power_average && field <= field_number::power_requested_limit)
        return power_value(source, field, value);
      return health_value(source, field, value);
  }
}

void fill(const Source& source, int64_t now_us, FieldValue& value) {
  value.timestamp_us = now_us;
  value.latency_us = 0;
  value.type = ValueType::u32;
  value.value.u64 = 0;
  const auto end = static_cast<uint32_t>(source.gpu.model.level().number("nvml.fields"));
  value.result = value.field == 0 || value.field >= end ? Return::invalid_argument
                                                        : value_of(source, value.field, value);
}

}  // namespace

NVML_EXPORT Return nvmlDeviceGetFieldValues(Device* device, int32_t count, FieldValue* values) {
  return with_gpu(device, [&](const Gpu& gpu) {
    if (values == nullptr || count <= 0) return Return::invalid_argument;
    const Source source{gpu, gpu.read()};
    const int64_t now_us = static_cast<int64_t>(wall_us(gpu.model, source.reading.time_ns));
    for (int32_t i = 0; i < count; ++i) fill(source, now_us, values[i]);
    return Return::success;
  });
}

}  // namespace tranche::emulator::nvml
