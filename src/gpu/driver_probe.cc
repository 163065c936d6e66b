#include "gpu/driver_probe.h"

#include <utility>

namespace tranche {

bool DriverProbe::start(const std::string& program, std::vector<std::string> arguments, Duration deadline,
                        std::function<void(const Answer&)> answered) {
  if (link_) return false;
  arguments.insert(arguments.end(), {"--probe", "1"});
  auto link = SamplerLink::start(reactor_, reaper_, *this, program, std::move(arguments));
  if (!link) return false;
  link_ = std::move(*link);
  answered_ = std::move(answered);
  timer_ = reactor_.at(reactor_.clock().since_boot() + deadline, [this] { end(); });
  return true;
}

void DriverProbe::inventory_arrived(const sampler::Inventory& message) {
  const Answer answer{.code = message.code,
                      .problem = sampler::field_text(message.problem),
                      .driver_version = sampler::field_text(message.driver_version),
                      .gpu_count = message.gpu_count};
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
