// Virtual machines: what kind of guest the server is, and the licence of a vGPU guest.
#include <string_view>

#include "emulator/nvml/nvml_call.h"

namespace tranche::emulator::nvml {
namespace {

constexpr uint32_t kComputeLicence = 4;  // NVML's code of the product for compute
constexpr uint8_t kExpiryNotAvailable = 0, kExpiryNotApplicable = 5;

template <size_t Size>
void write_text(std::string_view text, std::array<char, Size>& to) {
  to = {};
  std::memcpy(to.data(), text.data(), std::min(text.size(), Size - 1));
}

void fill(const Gpu& gpu, LicensableFeatures& answer) {
  answer = {};
  if (gpu.model.guest() != Guest::vgpu) return;
  const bool is_licensed = gpu.model.is_licensed();
  answer.is_supported = 1;
  answer.count = 1;
  LicensableFeature& feature = answer.features[0];
  feature.code = kComputeLicence;
  feature.state = is_licensed ? 1 : 0;
  feature.is_enabled = is_licensed ? 1 : 0;
  feature.expiry.status = is_licensed ? kExpiryNotApplicable : kExpiryNotAvailable;
  write_text(is_licensed ? "Licensed" : "Unlicensed", feature.licence);
  write_text("NVIDIA Virtual Compute Server", feature.product);
}

Return licensable_features(Device* device, LicensableFeatures* features) {
  return answer_one(device, features, [](const Gpu& gpu, LicensableFeatures& answer) {
    fill(gpu, answer);
    return Return::success;
  });
}

}  // namespace

NVML_EXPORT Return nvmlDeviceGetVirtualizationMode(Device* device, uint32_t* mode) {
  return answer_one(device, mode, [](const Gpu& gpu, uint32_t& answer) {
    answer = static_cast<uint32_t>(gpu.model.guest());  // NVML numbers them alike
    return Return::success;
  });
}

// The older forms of this structure are shorter than it is now, and are not known here.
NVML_EXPORT Return nvmlDeviceGetGridLicensableFeatures_v4(Device* device, LicensableFeatures* features) {
  return licensable_features(device, features);
}

}  // namespace tranche::emulator::nvml
