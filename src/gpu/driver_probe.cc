#include "gpu/driver_probe.h"

#include <utility>

namespace tranche {

bool DriverProbe::start(const std::string& program, std::vector<std::string> arguments, Duration deadline,
                        const std::vector<uint32_t>& look_at, std::function<void(const Answer&)> answered) {
  if (link_) return false;
  arguments.insert(arguments.end(), {"--probe", "1"});
  for (const uint32_t index : look_at)
    arguments.insert(arguments.end(), {"--look-at", std::to_string(index)});
  looks_.clear();
  looked_at_.clear();
  auto link = SamplerLink::start(reactor_, reaper_, *this, program, std::move(arguments));
  if (!link) return false;
  link_ = std::move(*link);
  answered_ = std::move(answered);
  timer_ = reactor_.at(reactor_.clock().since_boot() + deadline, [this] { end(); });
  return true;
}

void DriverProbe::gpu_arrived(const sampler::Gpu& message) { looked_at_ = sampler::field_text(message.uuid); }

void DriverProbe::reading_arrived(const sampler::Reading& message) {
  if (!looked_at_.empty() && looks_.size() < sampler::kGpusMax) looks_.push_back({looked_at_, message});
  looked_at_.clear();
}

void DriverProbe::inventory_arrived(const sampler::Inventory& message) {
  const Answer answer{.code = message.code,
                      .problem = sampler::field_text(message.problem),
                      .driver_version = sampler::field_text(message.driver_version),
                      .gpu_count = message.gpu_count,
                      .looks = std::exchange(looks_, {})};
  const auto answered = std::exchange(answered_, nullptr);
  end();
  if (answered) answered(answer);
}

void DriverProbe::end() {
  answered_ = nullptr;
  if (!link_) return;
  link_->silence();
  // Not inside one of the link's own calls; the timer is this object's, so it goes with it.
  timer_ = reactor_.at(reactor_.clock().since_boot(), [this] { link_.reset(); });
}

}  // namespace tranche
