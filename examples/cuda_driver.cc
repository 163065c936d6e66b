#include "cuda_driver.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstring>

namespace examples {
namespace {

constexpr size_t kBytesPerMib = 1024 * 1024;
constexpr size_t kBlockMib = 256;  // memory is held in blocks, so that a large piece need not be in one piece
constexpr size_t kWrittenBytes = 64 * 1024;

// Spins on the GPU's own clock. On a real GPU every thread of the grid does so; the driver compiles this text
// for the GPU that it finds, any since Volta.
constexpr char kBusyKernel[] = R"(
.version 6.3
.target sm_70
.address_size 64

.visible .entry tranche_busy(.param .u64 microseconds)
{
  .reg .pred %done;
  .reg .u64 %duration, %start, %now, %passed;
  ld.param.u64 %duration, [microseconds];
  mul.lo.u64 %duration, %duration, 1000;
  mov.u64 %start, %globaltimer;
again:
  mov.u64 %now, %globaltimer;
  sub.u64 %passed, %now, %start;
  setp.ge.u64 %done, %passed, %duration;
  @!%done bra again;
  ret;
}
)";

template <class Function>
void resolve(void* library, Function*& target, const char* name) {
  void* const symbol = dlsym(library, name);
  if (symbol == nullptr) {
    throw Problem(std::string("the NVIDIA driver lacks ") + name + "; install a newer driver");
  }
  std::memcpy(&target, &symbol, sizeof target);
}

}  // namespace

CudaDriver::CudaDriver() {
  void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    throw Problem(
        "libcuda.so.1 cannot be loaded: install the NVIDIA driver, or start this program through "
        "`tranche run` or `tranche-emulator run`");
  }
  CUresult (*initialise)(unsigned) = nullptr;
  CUresult (*count)(int*) = nullptr;
  resolve(library, initialise, "cuInit");
  resolve(library, count, "cuDeviceGetCount");
  resolve(library, error_text_, "cuGetErrorString");
  resolve(library, device_get, "cuDeviceGet");
  resolve(library, device_name, "cuDeviceGetName");
  resolve(library, primary_context_retain, "cuDevicePrimaryCtxRetain");
  resolve(library, context_set_current, "cuCtxSetCurrent");
  // The names without _v2 are an older interface with 32-bit addresses.
  resolve(library, memory_allocate, "cuMemAlloc_v2");
  resolve(library, memory_free, "cuMemFree_v2");
  resolve(library, memory_info, "cuMemGetInfo_v2");
  resolve(library, memory_set, "cuMemsetD8_v2");
  resolve(library, module_load, "cuModuleLoadData");
  resolve(library, module_function, "cuModuleGetFunction");
  resolve(library, launch, "cuLaunchKernel");
  resolve(library, stream_create, "cuStreamCreate");
  resolve(library, stream_synchronize, "cuStreamSynchronize");

  const CUresult initialised = initialise(0);
  const CUresult counted = initialised == kCudaSuccess ? count(&device_count_) : initialised;
  if (counted == kCudaNoDevice || (counted == kCudaSuccess && device_count_ == 0)) {
    throw Problem(
        "no GPU is visible to this process: ask for one, for example with `tranche run -G 1 -- ...`");
  }
  check(counted, "starting the driver");
}

void CudaDriver::check(CUresult result, const std::string& what) const {
  if (result == kCudaSuccess) return;
  const char* text = nullptr;
  if (error_text_(result, &text) != kCudaSuccess || text == nullptr) text = "unknown error";
  throw Problem(what + " failed: " + text + " (CUDA error " + std::to_string(result) + ")");
}

BusyGpu::BusyGpu(const CudaDriver& cuda, int index) : cuda_(cuda) {
  CUdevice device = 0;
  cuda_.check(cuda_.device_get(&device, index), "finding GPU " + std::to_string(index));
  char name[128] = {};
  cuda_.check(cuda_.device_name(name, sizeof name - 1, device), "asking for the GPU's name");
  name_ = name;
  cuda_.check(cuda_.primary_context_retain(&context_, device), "making a context on " + name_);
  use();
  CUmodule module = nullptr;
  cuda_.check(cuda_.module_load(&module, kBusyKernel), "loading the kernel on " + name_);
  cuda_.check(cuda_.module_function(&kernel_, module, "tranche_busy"), "finding the kernel on " + name_);
  constexpr unsigned kNonBlocking = 1;
  cuda_.check(cuda_.stream_create(&stream_, kNonBlocking), "making a stream on " + name_);
}

void BusyGpu::use() const { cuda_.check(cuda_.context_set_current(context_), "using " + name_); }

size_t BusyGpu::free_mib() const {
  use();
  size_t free = 0, total = 0;
  cuda_.check(cuda_.memory_info(&free, &total), "asking for free memory on " + name_);
  return free / kBytesPerMib;
}

void BusyGpu::hold(size_t mib) {
  use();
  const size_t blocks_before = held_.size();
  const size_t held_before = held_mib_;
  for (size_t left = mib; left > 0;) {
    const size_t block = std::min(left, kBlockMib);
    CUdeviceptr address = 0;
    const CUresult result = cuda_.memory_allocate(&address, block * kBytesPerMib);
    if (result == kCudaOutOfMemory) {
      release_to(blocks_before);
      held_mib_ = held_before;
      throw Problem(name_ + " has no room for " + std::to_string(mib) +
                    " MiB more: " + std::to_string(free_mib()) +
                    " MiB are free for this program; ask for less, or for a larger slice");
    }
    cuda_.check(result, "allocating on " + name_);
    held_.push_back(address);
    held_mib_ += block;
    left -= block;
    // The beginning is enough to show that it is there, and spares the memory of an emulated GPU's host.
    cuda_.check(cuda_.memory_set(address, 0x5A, std::min(block * kBytesPerMib, kWrittenBytes)),
                "writing memory on " + name_);
  }
}

void BusyGpu::release_to(size_t blocks) {
  while (held_.size() > blocks) {
    cuda_.check(cuda_.memory_free(held_.back()), "freeing memory on " + name_);
    held_.pop_back();
  }
}

void BusyGpu::release() {
  use();
  release_to(0);
  held_mib_ = 0;
}

void BusyGpu::start_work(uint64_t microseconds) {
  use();
  void* parameters[] = {&microseconds};
  cuda_.check(cuda_.launch(kernel_, 1, 1, 1, 32, 1, 1, 0, stream_, parameters, nullptr),
              "launching a kernel on " + name_);
}

void BusyGpu::finish() const {
  use();
  cuda_.check(cuda_.stream_synchronize(stream_), "waiting for " + name_);
}

}  // namespace examples
