// The sampler's inside: one thread a GPU asks NVML, so that a GPU which never answers keeps nobody else
// waiting; one thread turns user ids into names, because a directory server can hang too; the main thread
// speaks to the daemon and touches neither, so it always can say who is stuck in what.
//
// Nothing is ever joined or cancelled: the process ends by _exit when the daemon closes the socket.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "base/units.h"
#include "gpu/device_reader.h"
#include "gpu/user_names.h"

namespace tranche {

struct SamplerOptions {
  int socket = -1;          // SEQPACKET, to the daemon
  std::string library_dir;  // where libnvidia-ml.so.1 is; empty: the dynamic linker's choice
  Duration period = kSecond;
  Duration progress_period = 250 * kMillisecond;
  ReaderRoots roots;
  std::set<uint32_t> skip_indices;   // not even described
  std::set<std::string> skip_uuids;  // asked for nothing but its UUID until `resume`
  bool probe = false;                // only whether the driver lets a new process in, then nothing more
  std::set<uint32_t> look_at;        // of a probe: GPUs to read once on the way
};

class Sampler {
 public:
  explicit Sampler(SamplerOptions options);
  // Serves the socket until it closes; the caller then ends the process.
  void run();

 private:
  // One GPU's thread and what the main thread hands it. The mutex is never held across a call.
  struct Worker {
    uint32_t gpu = 0;
    nvml::Device device = nullptr;
    nvml::CallInFlight in_flight;
    std::mutex mutex;
    std::condition_variable wake;
    std::vector<uint64_t> checks;  // ids to answer
    bool paused = false;
    bool told_of_xids = false;  // the thread's own: registered for them, or the driver does not offer it
    sampler::Reading reading;   // the thread's own
  };

  void take_inventory();
  // The GPUs of an inventory while it is taken; `gpus` and `workers` are parallel.
  struct Found {
    std::vector<std::unique_ptr<sampler::Gpu>> gpus;
    std::vector<std::unique_ptr<Worker>> workers;
    std::vector<sampler::GpuProblem> problems;
    std::vector<sampler::MigDevice> mig_devices;
  };
  // Returns why there is no inventory; empty if there is one.
  std::string start_driver(nvml::NvmlCaller& nvml, sampler::Inventory& inventory);
  void describe(nvml::NvmlCaller& nvml, uint32_t index, Found& found);
  // One reading of a GPU, told before the inventory: `gpu` with its UUID alone, then the reading.
  void look_at(nvml::NvmlCaller& nvml, uint32_t index);
  void describe_links(nvml::NvmlCaller& nvml, Found& found);
  void describe_mig(nvml::NvmlCaller& nvml, Found& found);
  void send_inventory(sampler::Inventory& inventory, Found& found);
  void work(Worker& worker);
  // Tells of XIDs as they happen.
  void watch_xids();
  void read(Worker& worker, nvml::NvmlCaller& nvml, bool thorough);
  void handle(const sampler::Request& request);
  void report_progress();
  template <class Message>
  void send(Message& message, sampler::Kind kind, uint64_t id, bool may_be_dropped,
            size_t size = sizeof(Message));

  SamplerOptions options_;
  UserNames names_;
  std::unique_ptr<nvml::NvmlLibrary> library_;  // set by the inventory thread before any worker starts
  nvml::CallInFlight inventory_in_flight_;
  std::atomic<uint32_t> inventory_gpu_{sampler::kNoGpu};
  nvml::CallInFlight xids_in_flight_;
  nvml::EventSet xids_ = nullptr;  // set before any worker starts
  std::mutex workers_mutex_;
  std::vector<std::unique_ptr<Worker>> workers_;
};

}  // namespace tranche
