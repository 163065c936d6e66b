// Which MIG device a process sees, if any: exactly one, as before release 570 and as frameworks still assume.
//
// `CUDA_VISIBLE_DEVICES` names it ("MIG-<uuid>", shortened while unique, or the older
// "MIG-GPU-<uuid>/<gi>/<ci>"); of several the first counts. Unset, or with numbers of GPUs, the first GPU
// decides: if that is in MIG mode the process sees its first MIG device and nothing else, otherwise the GPUs
// that are not in MIG mode (chosen).
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "emulator/device_model.h"

namespace tranche::emulator::cuda {

inline bool names_mig_device(std::string_view visible) { return visible.starts_with("MIG-"); }

// The device that `visible` names among those of `gpus`.
std::optional<MigDeviceInfo> find_mig_device(DeviceModel& model, const std::vector<uint32_t>& gpus,
                                             std::string_view visible);
// By the rule for numbers: drops from `gpus` what the process does not see; the MIG device, if it is one.
// Without a device on a GPU in MIG mode `gpus` becomes empty.
std::optional<MigDeviceInfo> settle_mig(DeviceModel& model, std::vector<uint32_t>& gpus);

}  // namespace tranche::emulator::cuda
