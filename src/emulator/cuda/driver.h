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
#include <set>
#include <string>
#include <vector>

#include "emulator/cuda/address_space.h"
#include "emulator/cuda/cuda_api.h"
#include "emulator/cuda/device_memory.h"
#include "emulator/cuda/handle_table.h"
#include "emulator/cuda/objects.h"
#include "emulator/device_model.h"

namespace tranche::emulator::cuda {

// Which stream a null handle means: of the plain entry points, and of those with _ptsz or _ptds.
enum class DefaultStream { legacy, per_thread };

// Where the bytes of an address are, whatever made it: an allocation, a mapping, memory of another process.
struct Place {
  CUdeviceptr start = 0;  // of what the address belongs to
  uint64_t bytes = 0;
  Backing backing;
  uint64_t offset = 0;   // of `start` in the backing
  CUdevice device = -1;  // -1: host memory
  CUcontext context = nullptr;
  CUmemoryPool pool = nullptr;
  uint64_t id = 0;
  bool accessible = true;  // cuMemSetAccess was called for it
  bool mapped = false;     // virtual memory
};

// Host memory that CUDA knows.
struct HostBlock {
  enum class Kind { allocated, registered, managed };
  Kind kind = Kind::allocated;
  uintptr_t address = 0;
  size_t bytes = 0;
  unsigned flags = 0;
  CUcontext context = nullptr;
  uint64_t id = 0;
  // Managed memory: what is charged while it is on a GPU, and what was advised.
  CUdevice on_device = -1;
  uint64_t charged = 0;
  int preferred = -2, prefetched = -2;  // ordinals; -1 the CPU, -2 none
  bool read_mostly = false;
  std::set<CUdevice> accessed_by{};
};

// The way of a copy: between which two of the host (-1) and the GPUs (ordinals).
struct CopyWay {
  CUdevice from = -1, to = -1;
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
    // Bytes of graphs' allocations: taken, and kept for the next launch (device_mutex).
    std::vector<std::shared_ptr<Physical>> graph_memory;
    uint64_t graph_used = 0, graph_used_high = 0, graph_reserved = 0, graph_reserved_high = 0;
    std::atomic<uint32_t> contexts{0};
    uint32_t multiprocessors = 0;  // that a client of MPS may use; 0: all
    // The tags of the newest launches: a launch waits while this many are queued, as the driver's ring does.
    std::array<std::atomic<uint64_t>, 1024> queued{};
    std::atomic<uint64_t> launches{0};
  };

  // Never destroyed: threads of the program may call during exit.
  static Driver& instance();

  CUresult initialise(unsigned flags);
  // CUDA_SUCCESS once initialised, in the process that was.
  CUresult ready() const { return ready_.load(std::memory_order_acquire) ? CUDA_SUCCESS : not_ready(); }

  // Checkpoints (checkpoint.cc): calls of other threads wait from hold_calls to release_calls.
  void hold_calls();
  void release_calls();

  DeviceModel& model() { return *model_; }
  uint32_t slot() const { return slot_; }
  int device_count() const { return static_cast<int>(devices_.size()); }
  Device* device(CUdevice ordinal);         // null if there is none
  CUdevice ordinal_of(uint32_t gpu) const;  // of a GPU of the server; -1 if it cannot be seen
  CUresult find_device(CUdevice ordinal, Device*& device);
  std::mutex& device_mutex() { return device_mutex_; }  // of the primary contexts and pools

  // Contexts. create charges the context's memory: `bytes`, or what the board's contexts take.
  CUresult create_context(CUdevice ordinal, unsigned flags, unsigned api_version, bool primary,
                          std::shared_ptr<Context>& context, uint64_t bytes = 0);
  void destroy_context(const std::shared_ptr<Context>& context);
  // The calling thread's current context.
  CUresult current(std::shared_ptr<Context>& context);
  // The error that the context is stuck with, if its work has met one.
  CUresult fault_of(Context& context);
  // Calls that would break a capture of another thread answer an error, and the capture is invalid.
  CUresult refuse_in_capture();

  CUresult resolve_stream(CUstream handle, DefaultStream mode, std::shared_ptr<Stream>& stream);
  // Queues GPU time on a stream, after its host functions; `demand` in thousandths of the multiprocessors.
  void enqueue(Stream& stream, uint64_t work_ns, uint32_t demand = 1000);
  // Queues the time that a copy of so many bytes takes, over the bus or inside the GPU, and counts it on the
  // buses that it crosses.
  void enqueue_copy(Stream& stream, uint64_t bytes, const CopyWay& way);
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
  // The same for any device or mapped address.
  bool find_place(CUdeviceptr address, Place& place);
  PoolMoment moment(Stream& stream);
  // Pools give back what a synchronisation lets them.
  void settle_pools();
  CUresult free_block(CUdeviceptr address, const PoolMoment& moment);
  bool find_host(uintptr_t address, HostBlock& block);
  bool add_host(const HostBlock& block);  // false if it overlaps one
  bool remove_host(uintptr_t address, HostBlock::Kind kind, HostBlock& block);
  // Calls `change` on the live host block at `address`, under the lock of all of them.
  template <class Change>
  bool change_host(uintptr_t address, Change change) {
    const std::lock_guard lock(host_mutex_);
    auto found = host_blocks_.upper_bound(address);
    if (found == host_blocks_.begin()) return false;
    --found;
    if (address - found->first >= found->second.bytes) return false;
    change(found->second);
    return true;
  }
  // Frees what a context that is going allocated and registered.
  void release_host_of(CUcontext context);
  // Managed memory goes where it is used: -1 the CPU, else a device, which is charged for it as far as it has
  // room.
  void move_managed(uintptr_t address, CUdevice device);
  std::atomic<uint32_t> managed_blocks{0};
  template <class Visit>
  void each_host(Visit visit) {
    const std::lock_guard lock(host_mutex_);
    for (auto& [address, block] : host_blocks_) visit(block);
  }

  HandleTable<CUcontext, Context> contexts;
  HandleTable<CUstream, Stream> streams;
  HandleTable<CUevent, Event> events;
  HandleTable<CUmodule, Module> modules;
  HandleTable<CUfunction, Function> functions;
  HandleTable<CUlibrary, Library> libraries;
  HandleTable<CUkernel, Kernel> kernels;
  HandleTable<CUmemoryPool, Pool> pools;
  HandleTable<CUarray, Array> arrays;
  HandleTable<CUmipmappedArray, MipmappedArray> mipmapped_arrays;
  HandleTable<CUgreenCtx, GreenContext> green_contexts;
  AddressSpace space;
  std::atomic<uint32_t> legacy_handles{0};  // given out by cuIpcGetMemHandle
  Graphs graphs;

 private:
  Driver() = default;
  CUresult not_ready() const;
  Launched queue(Stream& stream, const GpuWork& work);
  CUresult open_devices();
  CUresult enter_server();
  void join_lock_step();
  void read_mps_settings();
  void report_fault(const Context& context, int result);

  std::atomic<bool> ready_{false};
  std::atomic<bool> held_{false};
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

// How strict the calling thread is about captures of others: CUstreamCaptureMode.
int& capture_mode_of_thread();

// Makes a mipmapped array in new memory (address 0), or in `room` bytes that are there.
CUresult create_mipmapped(CUmipmappedArray* handle, const CUDA_ARRAY3D_DESCRIPTOR& description,
                          unsigned levels, CUdeviceptr address, uint64_t room);

inline Driver& driver() { return Driver::instance(); }

}  // namespace tranche::emulator::cuda
