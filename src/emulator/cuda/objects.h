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

#include "emulator/cuda/cuda_api.h"

namespace tranche::emulator::cuda {

struct Context;

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
  std::atomic<uint64_t> last_tag{0};

  // Host functions run on a thread of their own; work submitted behind one waits for it at submission.
  struct HostFunctions {
    std::mutex mutex;
    std::condition_variable changed;
    std::atomic<uint32_t> pending{0};
  };
  std::shared_ptr<HostFunctions> host = std::make_shared<HostFunctions>();
};

inline constexpr size_t kLimitCount = 8;

struct Context {
  CUcontext handle = nullptr;
  CUdevice device = 0;  // ordinal among the visible devices
  uint32_t gpu = 0;     // index in the device model
  uint64_t id = 0;
  unsigned flags = 0;
  unsigned api_version = 3020;
  bool primary = false;
  std::atomic<bool> destroyed{false};
  uint64_t charged_bytes = 0;
  Stream legacy_stream;
  std::mutex mutex;  // of what follows
  std::array<size_t, kLimitCount> limits{1024, size_t{1} << 20, size_t{8} << 20, 2, 2048, 128, 0, 0};
  int cache_configuration = 0;
  int shared_configuration = 0;
  std::set<CUcontext> peers;
};

struct Event {
  CUevent handle = nullptr;
  std::shared_ptr<Context> context;
  unsigned flags = 0;
  std::mutex mutex;  // of what follows
  bool recorded = false;
  uint32_t gpu = 0;
  uint64_t tag = 0;
  uint64_t recorded_ns = 0;
  uint64_t done_ns = 0;  // 0 until seen done
};

// Code that was loaded: names of kernels and sizes of globals from PTX; binaries are taken as they come and
// answer to any name.
struct Image {
  bool any_name = false;
  std::vector<std::string> kernels;
  std::map<std::string, size_t, std::less<>> globals;
};

struct Function;

struct Module {
  CUmodule handle = nullptr;
  std::shared_ptr<Context> context;
  std::shared_ptr<const Image> image;
  std::mutex mutex;  // of what follows
  std::map<std::string, std::shared_ptr<Function>, std::less<>> functions;
  std::map<std::string, CUdeviceptr, std::less<>> globals;
};

struct Function {
  CUfunction handle = nullptr;
  std::string name;
  CUmodule module = nullptr;
  bool busy = false;  // takes its time from its first parameter
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

struct Pool {
  CUmemoryPool handle = nullptr;
  CUdevice device = 0;
  bool is_default = false;
  std::mutex mutex;  // of what follows
  uint64_t release_threshold = 0;
  std::array<int, 4> reuse{0, 1, 1, 1};  // by attribute number 1..3
  uint64_t used = 0, used_high = 0;
};

}  // namespace tranche::emulator::cuda
