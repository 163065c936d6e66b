// A program of a job that talks to the emulated device without libcuda, as others do by ioctl to a real one:
// linked statically, it has no loader, no driver's library and no guard, and takes device memory from the
// device model itself.
//
//   raw_device MIB      takes that much on the first GPU, says so, and holds it until its input ends
#include <cstdio>
#include <cstdlib>

#include "emulator/device_model.h"

int main(int argc, char** argv) {
  using tranche::emulator::DeviceModel;
  const auto model = DeviceModel::attach(tranche::emulator::default_state_directory());
  if (!model) return std::fprintf(stderr, "no emulated server\n"), 1;
  const auto slot = (*model)->enter();
  if (!slot) return std::fprintf(stderr, "no place for a process\n"), 1;
  const uint64_t bytes = std::strtoull(argc > 1 ? argv[1] : "0", nullptr, 10) << 20;
  if (!(*model)->add_context(*slot, 0, uint64_t{256} << 20) || !(*model)->charge(*slot, 0, bytes)) {
    return std::puts("held"), 0;
  }
  std::puts("escapes");
  std::fflush(stdout);
  while (std::getchar() != EOF) continue;
  return 0;
}
