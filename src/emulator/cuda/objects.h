// What CUDA's handles stand for: contexts, streams, events, modules, functions, memory pools.
//
// Ownership: the tables of Driver hold them; an object that is in use elsewhere lives on until released,
// so that destroying one in another thread is harmless.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "emulator/cuda/graph.h"
#include "emulator/cuda/memory_pool.h"

namespace tranche::emulator::cuda {

// The order in which a stream's work happens. All work of a process on one GPU is one queue in the device
// model, served in the order of submission; a stream only remembers the tag of its own last work.
struct Stream {
  CUstream handle = nullptr;
  Context* context = nullptr;  // kept alive by `owner`, or the context that holds this stream
  std::shared_ptr<Context> owner;
  bool legacy = false;  // synchronises with everything in the context
  unsigned flags = 0;
  int priority = 0;
  uint64_t id = 0;
  CUgreenCtx green = nullptr;
  std::atomic<uint64_t> last_tag{0};
  // Under Graphs::mutex: the capture that this stream takes part in, and what its next node depends on.
  std::atomic<bool> capturing{false};
  std::shared_ptr<Capture> capture;
  std::vector<CUgraphNode> capture_dependencies;

  // Host functions run on a thread of their own; work submitted behind one waits for it at submission.
  struct HostFunctions {
    std::mutex mutex;
    std::condition_variable changed;
    std::atomic<uint32_t> pending{0};
  };
  std::shared_ptr<HostFunctions> host = std::make_shared<HostFunctions>();
};

inline constexpr size_t kLimitCount = 11;

// An error that work of a context met: every call in the context answers it until the context is gone.
struct StickyFault {
  std::atomic<int> result{0};
  std::atomic<int> coming{0};  // what the work that ends at `tag` will meet
  std::atomic<uint64_t> tag{0};
};

struct Context {
  CUcontext handle = nullptr;
  CUdevice device = 0;  // ordinal among the visible devices
  uint32_t gpu = 0;     // index in the device model
  uint64_t id = 0;
  unsigned flags = 0;
  unsigned api_version = 3020;
  bool primary = false;
  std::atomic<bool> destroyed{false};
  std::atomic<int> attached{1};
  uint64_t charged_bytes = 0;
  StickyFault fault;
  CUgreenCtx green = nullptr;  // of a context that was made from a green one
  int multiprocessors = 0;     // that it may use; 0: all
  Stream legacy_stream;
  std::mutex mutex;  // of what follows
  std::array<size_t, kLimitCount> limits{1024, size_t{1} << 20, size_t{8} << 20, 2, 2048, 128};
  uint64_t limit_bytes = 0;  // charged for limits above their defaults
  int cache_configuration = 0;
  int shared_configuration = 0;
  std::set<CUcontext> peers;
};

struct SharedEvent;  // entry_interprocess.cc

struct Event {
  CUevent handle = nullptr;
  std::shared_ptr<Context> context;
  unsigned flags = 0;
  std::mutex mutex;  // of what follows
  bool recorded = false;
  uint32_t gpu = 0;
  uint64_t tag = 0;
  uint64_t reached_tag = 0;  // what was done when it was recorded
  uint64_t recorded_ns = 0;
  uint64_t done_ns = 0;  // 0 until seen done
  // Recorded in a capture: what a stream that waits for it depends on.
  std::shared_ptr<Capture> capture;
  std::vector<CUgraphNode> captured_nodes;
  std::shared_ptr<SharedEvent> shared;  // with other processes
};

// Code that was loaded: names of kernels and sizes of globals from PTX; binaries are taken as they come and
// answer to any name.
struct Image {
  bool any_name = false;
  size_t bytes = 0;  // of the code, which take device memory where it is loaded
  std::vector<std::string> kernels;
  std::map<std::string, size_t, std::less<>> globals;
  std::map<std::string, std::vector<size_t>, std::less<>> parameters;  // sizes, by kernel
};

struct Function;

struct Module {
  CUmodule handle = nullptr;
  std::shared_ptr<Context> context;
  std::shared_ptr<const Image> image;
  std::mutex mutex;  // of what follows
  std::map<std::string, std::shared_ptr<Function>, std::less<>> functions;
  std::map<std::string, CUdeviceptr, std::less<>> globals;
  CUdeviceptr code = 0;  // 0 until it is loaded: see load_function
};

struct Function {
  CUfunction handle = nullptr;
  std::string name;
  CUmodule module = nullptr;
  bool busy = false;       // takes its time from its first parameter
  bool fault = false;      // ends in the error that its first parameter says
  uint32_t demand = 1000;  // of the multiprocessors, in thousandths, if its name says so
  std::vector<size_t> parameters;
  std::atomic<bool> loaded{false};
  Shape old_shape;  // of the launch functions before CUDA 4
  std::vector<uint8_t> old_parameters;
  std::atomic<int> dynamic_shared_bytes{0};
  std::atomic<int> carveout{-1};
};

struct Library;

struct Kernel {
  CUkernel handle = nullptr;
  std::string name;
  CUlibrary library = nullptr;
};

struct Library {
  CUlibrary handle = nullptr;
  std::shared_ptr<const Image> image;
  std::mutex mutex;  // of what follows
  std::map<std::string, std::shared_ptr<Kernel>, std::less<>> kernels;
  std::map<CUcontext, CUmodule> modules;  // loaded on first use in a context
};

struct Array {
  CUarray handle = nullptr;
  CUdevice device = 0;
  std::shared_ptr<Context> context;
  CUDA_ARRAY3D_DESCRIPTOR description{};
  size_t element_bytes = 0;
  CUdeviceptr address = 0;  // of its first element
  bool is_level = false;    // of a mipmapped array, which owns the bytes
};

struct MipmappedArray {
  CUmipmappedArray handle = nullptr;
  std::shared_ptr<Context> context;
  CUDA_ARRAY3D_DESCRIPTOR description{};
  CUdeviceptr address = 0;
  uint64_t bytes = 0;
  bool owns_bytes = true;
  std::vector<CUarray> levels;
};

struct GreenContext {
  CUgreenCtx handle = nullptr;
  CUdevice device = 0;
  uint64_t id = 0;
  int multiprocessors = 0;
  std::shared_ptr<Context> context;  // the primary context, with its own share of the multiprocessors
};

}  // namespace tranche::emulator::cuda
