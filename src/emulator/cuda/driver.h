// The state of the emulated driver in one process: the devices it may see and every live object.
//
// Threading: all methods from any thread. After a fork the child's driver is unusable, as the real one is.
#pragma once

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "emulator/cuda/cuda_api.h"
#include "emulator/cuda/device_memory.h"
#include "emulator/cuda/handle_table.h"
#include "emulator/cuda/objects.h"
#include "emulator/device_model.h"

namespace tranche::emulator::cuda {

// Which stream a null handle means: of the plain entry points, and of those with _ptsz or _ptds.
enum class DefaultStream { legacy, per_thread };

// Host memory that CUDA knows.
struct HostBlock {
  enum class Kind { allocated, registered, managed };
  Kind kind = Kind::allocated;
  uintptr_t address = 0;
  size_t bytes = 0;
  unsigned flags = 0;
  CUcontext context = nullptr;
  uint64_t id = 0;
};

class Driver {
 public:
  struct Device {
    uint32_t gpu = 0;                  // index in the device model
    std::optional<MigDeviceInfo> mig;  // the part of the GPU that it is
    std::unique_ptr<DeviceMemory> memory;
    std::shared_ptr<Context> primary;
    uint32_t primary_users = 0;
    unsigned primary_flags = 0;
    CUmemoryPool pool = nullptr;          // current
    CUmemoryPool default_pool = nullptr;  // made on first use
    std::atomic<uint32_t> contexts{0};
    // The tags of the newest launches: a launch waits while this many are queued, as the driver's ring does.
    std::array<std::atomic<uint64_t>, 1024> queued{};
    std::atomic<uint64_t> launches{0};
  };

  // Never destroyed: threads of the program may call during exit.
  static Driver& instance();

  CUresult initialise(unsigned flags);
  // CUDA_SUCCESS once initialised, in the process that was.
  CUresult ready() const { return ready_.load(std::memory_order_acquire) ? CUDA_SUCCESS : not_ready(); }

  DeviceModel& model() { return *model_; }
  uint32_t slot() const { return slot_; }
  int device_count() const { return static_cast<int>(devices_.size()); }
  Device* device(CUdevice ordinal);  // null if there is none
  CUresult find_device(CUdevice ordinal, Device*& device);
  std::mutex& device_mutex() { return device_mutex_; }  // of the primary contexts and pools

  // Contexts. create charges the context's memory.
  CUresult create_context(CUdevice ordinal, unsigned flags, unsigned api_version, bool primary,
                          std::shared_ptr<Context>& context);
  void destroy_context(const std::shared_ptr<Context>& context);
  // The calling thread's current context.
  CUresult current(std::shared_ptr<Context>& context);

  CUresult resolve_stream(CUstream handle, DefaultStream mode, std::shared_ptr<Stream>& stream);
  // Queues GPU time on a stream, after its host functions.
  void enqueue(Stream& stream, uint64_t work_ns);
  // The tag at which everything submitted to the stream so far is done.
  uint64_t tag_of(Stream& stream);
  // Sleeps until it is done, host functions included; the fault of the context if that is what ended it.
  CUresult synchronise(Stream& stream);
  // What a context of this process on the GPU is stuck with: a fault is sticky, until the process ends.
  CUresult fault_on(uint32_t gpu) const { return static_cast<CUresult>(model_->own_fault(gpu)); }
  // Waits until no host function of the stream is left.
  void finish_host_functions(Stream& stream);
  void run_on_host(const std::shared_ptr<Stream>& stream, void (*call)(void*, void*), void* function,
                   void* data);

  // The live device block that holds `address`, and the ordinal of its device.
  bool find_block(CUdeviceptr address, Block& block, CUdevice& ordinal);
  bool find_host(uintptr_t address, HostBlock& block);
  bool add_host(const HostBlock& block);  // false if it overlaps one
  bool remove_host(uintptr_t address, HostBlock::Kind kind, HostBlock& block);

  HandleTable<CUcontext, Context> contexts;
  HandleTable<CUstream, Stream> streams;
  HandleTable<CUevent, Event> events;
  HandleTable<CUmodule, Module> modules;
  HandleTable<CUfunction, Function> functions;
  HandleTable<CUlibrary, Library> libraries;
  HandleTable<CUkernel, Kernel> kernels;
  HandleTable<CUmemoryPool, Pool> pools;

 private:
  Driver() = default;
  CUresult not_ready() const { return CUDA_ERROR_NOT_INITIALIZED; }
  CUresult open_devices();
  CUresult enter_server();

  std::atomic<bool> ready_{false};
  std::mutex init_mutex_;
  std::unique_ptr<DeviceModel> model_;
  uint32_t slot_ = 0;
  std::vector<int> nodes_;  // open for as long as the process lives
  std::vector<std::unique_ptr<Device>> devices_;
  std::mutex device_mutex_;
  std::mutex host_mutex_;
  std::map<uintptr_t, HostBlock> host_blocks_;
  std::atomic<uint64_t> next_id_{1};
};

// The stack of current contexts of the calling thread, newest last.
std::vector<std::shared_ptr<Context>>& context_stack();

inline Driver& driver() { return Driver::instance(); }

}  // namespace tranche::emulator::cuda
