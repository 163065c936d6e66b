// bench-emulator-calls [CALLS]: what a call of the emulated driver costs the caller, in ns, on one core: a
// launch of a kernel that takes no GPU time, an allocation with its release, and the same from a pool. It
// must stay small, or it would hide what the guard costs. Run under `tranche-emulator run --board h100-80:1
// --`.
#include <dlfcn.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <initializer_list>

namespace {

void* library() {
  static void* const handle = dlopen("libcuda.so.1", RTLD_NOW);
  return handle;
}

template <class... Arguments>
int call(const char* name, Arguments... arguments) {
  const auto function = reinterpret_cast<int (*)(Arguments...)>(dlsym(library(), name));
  return function == nullptr ? -1 : function(arguments...);
}

double cpu_ns() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

// Mean cost of `step()` over `calls` of them, in time of the processor, which a busy machine does not change
// much.
template <class Step>
void measure(const char* what, uint64_t calls, Step step) {
  for (uint64_t i = 0; i < calls / 10; ++i) step();
  const double start = cpu_ns();
  for (uint64_t i = 0; i < calls; ++i) step();
  std::printf("%-34s %8.0f ns\n", what, (cpu_ns() - start) / static_cast<double>(calls));
}

constexpr const char* kPtx =
    ".version 7.0\n.target sm_52\n.address_size 64\n.visible .entry tranche_busy(.param .u64 us)\n{ ret; }\n";

}  // namespace

int main(int count, char** arguments) {
  const uint64_t calls = count > 1 ? std::strtoull(arguments[1], nullptr, 10) : 200'000;
  void *context = nullptr, *module = nullptr, *function = nullptr, *stream = nullptr;
  if (library() == nullptr || call("cuInit", 0u) != 0 || call("cuCtxCreate_v2", &context, 0u, 0) != 0 ||
      call("cuModuleLoadData", &module, static_cast<const void*>(kPtx)) != 0 ||
      call("cuModuleGetFunction", &function, module, "tranche_busy") != 0 ||
      call("cuStreamCreate", &stream, 1u) != 0) {
    std::fprintf(stderr, "bench-emulator-calls: run under tranche-emulator run --board h100-80:1 --\n");
    return 1;
  }
  using Launch = int (*)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*,
                         void**, void**);
  using Allocate = int (*)(uint64_t*, size_t);
  using Release = int (*)(uint64_t);
  using AllocateAsync = int (*)(uint64_t*, size_t, void*);
  using ReleaseAsync = int (*)(uint64_t, void*);
  const auto launch = reinterpret_cast<Launch>(dlsym(library(), "cuLaunchKernel"));
  const auto allocate = reinterpret_cast<Allocate>(dlsym(library(), "cuMemAlloc_v2"));
  const auto release = reinterpret_cast<Release>(dlsym(library(), "cuMemFree_v2"));
  const auto allocate_async = reinterpret_cast<AllocateAsync>(dlsym(library(), "cuMemAllocAsync"));
  const auto release_async = reinterpret_cast<ReleaseAsync>(dlsym(library(), "cuMemFreeAsync"));
  uint64_t microseconds = 0, address = 0;
  void* parameters[] = {&microseconds};
  measure("launch", calls, [&] { launch(function, 1, 1, 1, 32, 1, 1, 0, stream, parameters, nullptr); });
  for (const size_t bytes : {size_t{1000}, size_t{4} << 20, size_t{1} << 30}) {
    std::printf("%zu bytes:\n", bytes);
    measure("  allocate and free", calls / 4, [&] {
      if (allocate(&address, bytes) == 0) release(address);
    });
    measure("  allocate and free in a stream", calls / 4, [&] {
      if (allocate_async(&address, bytes, stream) == 0) release_async(address, stream);
    });
  }
  return 0;
}
