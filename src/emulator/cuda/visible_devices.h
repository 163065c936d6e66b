// Which GPUs a process sees and in what order, from CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "emulator/device_model.h"

namespace tranche::emulator::cuda {

// `gpus`: those whose node could be opened, by PCI bus. The order CUDA numbers them in: by PCI bus if
// `order` is "PCI_BUS_ID", else the fastest first and the others after it.
std::vector<uint32_t> order_devices(const DeviceModel& model, std::vector<uint32_t> gpus,
                                    std::string_view order);

// The selection of `visible` ("1,0", "GPU-8f2c", ...) among `gpus`. As the driver does: indices count in
// `gpus`, a UUID may be shortened while it is unique, the list ends at the first entry that names nothing,
// and naming a GPU twice selects none.
std::vector<uint32_t> select_devices(const DeviceModel& model, const std::vector<uint32_t>& gpus,
                                     std::string_view visible);

}  // namespace tranche::emulator::cuda
