// The emulated server as every process sees it: what each GPU is, what runs on it, and the account a CUDA
// process keeps there. libcuda.so.1 enters processes and charges them; libnvidia-ml.so.1 only reads.
//
// It knows processes, bytes and time, and nothing of jobs, limits or guards: it is the oracle for those.
//
// Errors: attaching fails with a sentence; afterwards nothing fails but what a GPU may refuse (memory).
// Threading: every method from any thread. Times are CLOCK_MONOTONIC ns.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "emulator/board.h"
#include "emulator/driver_level.h"
#include "emulator/mig_devices.h"
#include "emulator/server_description.h"
#include "emulator/shared_state.h"

namespace tranche::emulator {

// $TRANCHE_EMULATOR, or /run/tranche-emulator.
std::string default_state_directory();

// One GPU at one moment, as NVML tells it.
struct GpuReading {
  uint64_t total_bytes;  // all of it, the driver's reserve included
  uint64_t reserve_bytes;
  uint64_t used_bytes;           // by processes, without the reserve
  uint32_t utilisation_percent;  // of the newest complete sample period (1/6 s): lags as NVML does
  uint32_t memory_utilisation_percent;
  uint64_t busy_ns;  // time with at least one kernel since the server was made; the oracle
  uint64_t energy_millijoules;
  uint32_t power_milliwatts;          // over the last second
  uint32_t power_instant_milliwatts;  // of the newest complete sample period
  uint32_t temperature;               // degrees Celsius
  uint32_t fan_percent;
  uint32_t clock_mhz, memory_clock_mhz;
  uint32_t performance_state;  // 0 busy or with a context, 8 idle
  uint64_t throttle_reasons;   // NVML's bits of what slows it down now, by a fault
  uint64_t time_ns;            // when this was read
};

// One process on one GPU.
struct ProcessReading {
  int32_t pid;           // as the reader sees it; 0 if it lives in a PID namespace out of sight
  uint64_t start_ticks;  // field 22 of /proc/PID/stat
  uint64_t contexts;
  uint64_t used_bytes;                                                      // with its contexts
  uint32_t gpu_instance = kNoInstanceId, compute_instance = kNoInstanceId;  // of its MIG device
  uint64_t context_bytes;  // the part of used_bytes that is contexts
  uint64_t peak_bytes;
  uint64_t busy_ns;  // GPU time it has had; the oracle
  uint64_t launches;
  uint32_t utilisation_percent;  // its share of the newest complete sample period
  uint64_t sample_time_ns;       // end of that period
};

// GPU time in one complete sample period.
struct UtilisationSample {
  uint64_t end_ns;
  uint32_t percent;
};

// A process as NVML accounts for it.
struct AccountReading {
  int32_t pid;
  bool is_running;
  uint64_t busy_ns, peak_bytes;
  uint64_t came_ns, ended_ns;  // ended: now, if it runs
};

// What holds a cgroup on one GPU.
struct MemoryLimit {
  uint64_t soft_bytes, hard_bytes;
  uint64_t used_bytes;
};

// Work that was queued: it is done when the GPU reaches `tag`; it has reached `reached_tag` now.
struct Launched {
  uint64_t tag;
  uint64_t reached_tag;
  SharedTransfer transfer = {};  // of a copy: when it is on the bus, as far as can be said now
};

// The two directions of PCIe, as the GPU sees them.
enum class Bus : uint32_t { to_gpu = 0, from_gpu = 1 };

// Work for a GPU: how long it takes there alone, and how much of the multiprocessors it needs (thousandths).
struct GpuWork {
  uint64_t ns = 0;
  uint32_t demand = 1000;
  bool copy = false;                    // by a copy engine: the GPU is not busy meanwhile
  std::array<uint64_t, 2> bus_bytes{};  // what a copy moves over PCIe, by Bus
};

// Whether a process may have a context on a GPU.
enum class Admission {
  admitted,
  out_of_memory,
  prohibited,
  used_by_another,
  mps_recovers,  // a fault has hit the clients of MPS on the GPU, and not all of them have ended
  mps_is_full,
};

// One XID as it happened.
struct XidRecord {
  uint32_t gpu = 0, code = 0;
  int32_t pid = 0;  // 0: no process in particular
  uint32_t gpu_instance = kNoInstanceId, compute_instance = kNoInstanceId;
  uint64_t time_ns = 0;
};

class DeviceModel {
 public:
  // Makes the files of a new server in `directory`, which exists; replaces an old server's.
  static Result<std::unique_ptr<DeviceModel>> create(const std::string& directory,
                                                     const ServerDescription& description);
  // The server of `directory`.
  static Result<std::unique_ptr<DeviceModel>> attach(const std::string& directory);
  // Unmaps. The record lock of this process's account, if it has one, stays until the process ends: closing
  // any descriptor of that file would drop it.
  ~DeviceModel();
  DeviceModel(const DeviceModel&) = delete;
  DeviceModel& operator=(const DeviceModel&) = delete;

  uint32_t gpu_count() const { return gpu_count_; }
  const GpuIdentity& identity(uint32_t gpu) const { return state_->gpus[gpu].identity; }
  const Board& board(uint32_t gpu) const;
  uint64_t usable_bytes(uint32_t gpu) const;
  std::string driver_version() const;
  const DriverLevel& level() const;  // of that version
  std::string server_name() const;
  const std::string& directory() const { return directory_; }  // of its files
  int32_t cuda_version() const { return state_->cuda_version; }
  Guest guest() const { return state_->guest; }
  bool is_licensed() const { return state_->is_licensed != 0; }
  uint64_t created_ns() const { return state_->created_ns; }
  int64_t created_wall_ns() const { return state_->created_wall_ns; }

  // The model's time, ns: CLOCK_MONOTONIC, or virtual on a server that runs in lock step.
  uint64_t now() const;

  // What observers ask. Accounts of dead processes are closed first.
  GpuReading read(uint32_t gpu);
  std::vector<ProcessReading> processes(uint32_t gpu);
  // The complete sample periods that ended after `since_ns`, oldest first; at most some ten seconds.
  std::vector<UtilisationSample> samples(uint32_t gpu, uint64_t since_ns);
  // The same for each process that was busy: pid, percent and end of the newest period after `since_ns`.
  std::vector<ProcessReading> busy_processes(uint32_t gpu, uint64_t since_ns);

  // Closes the accounts of processes that are gone.
  void reap();

  // ---- What an administrator sets (settings.cc, memory_limits.cc) ----

  SharedGpuSettings& settings(uint32_t gpu) { return state_->gpus[gpu].settings; }
  // Switches accounting on or off; switching it, or clearing, forgets those that ended.
  void set_accounting(uint32_t gpu, bool on);
  void clear_accounting(uint32_t gpu);
  // Those that run and the newest that ended while accounting was on.
  std::vector<AccountReading> accounts(uint32_t gpu);
  // Graphics clocks that kernels run at from now on, within the board's; 0 for both: not locked.
  void lock_clocks(uint32_t gpu, uint32_t least_mhz, uint32_t most_mhz);
  // Bytes that copies have moved over PCIe until now: a copy moves them evenly while it is on the bus.
  uint64_t bytes_moved(uint32_t gpu, Bus direction);
  // A copy by another GPU of this server moved bytes over this one's bus in that time.
  void count_transfer(uint32_t gpu, Bus direction, const SharedTransfer& transfer);

  // The limits of a cgroup, by the full path of its directory in a cgroup2 file system; 0 and UINT64_MAX take
  // them away. Fails with not_found if the directory is none, over_limit if there are too many.
  Result<void> set_memory_limit(uint32_t gpu, const std::string& path, uint64_t soft, uint64_t hard);
  // The same cgroup's limits and what its processes hold; not_found also if it has none.
  Result<MemoryLimit> memory_limit(uint32_t gpu, const std::string& path);
  // The limit of the calling process's own cgroup, which changes what it is shown; null if only a parent, or
  // nothing, is limited.
  std::unique_ptr<MemoryLimit> own_memory_limit(uint32_t gpu);

  // ---- Faults (faults.cc; their state is in fault_state.h, their meaning in xid.h) ----

  // What is wrong now, to be looked at and to be set.
  SharedGpuFaults& faults(uint32_t gpu) { return state_->gpus[gpu].faults; }
  SharedServerFaults& server_faults() { return state_->faults; }

  // Records the XID, wakes who waits for one, and does to the contexts on the GPU what it does. `pid`: the
  // process at fault as the caller sees it; 0: every process that has a context there.
  void raise_xid(uint32_t gpu, uint32_t code, int32_t pid = 0, uint32_t gpu_instance = kNoInstanceId,
                 uint32_t compute_instance = kNoInstanceId);
  // Only writes the XID down and wakes who waits for one: what it says has happened already.
  void record_xid(const XidRecord& record);
  // A fault of one client of MPS on the GPU is every client's.
  void lose_all_contexts(uint32_t gpu, int32_t cuda_result);
  bool is_lost(uint32_t gpu) const { return state_->gpus[gpu].faults.lost.load() != 0; }
  // The CUDA result that the contexts of this process on the GPU are stuck with; 0: they are well.
  int32_t own_fault(uint32_t gpu) const;
  // The CUDA result with which a new context on the GPU is refused; 0: it is not.
  int32_t refusal(uint32_t gpu) const;
  // Puts the GPU right, as a reset, a reboot or a visit to the workshop would. Contexts that were lost stay
  // so.
  void clear_faults(uint32_t gpu);
  // What a reset of an idle GPU puts right. A GPU off the bus, a failed remapping, heat and blocked calls
  // stay.
  void repair_by_reset(uint32_t gpu);
  // Of the server itself: blocked library, mismatch, checkpoints.
  void clear_server_faults();
  // Sleeps for as long as NVML calls are blocked: about this GPU, or all of them.
  void wait_while_nvml_blocked(uint32_t gpu);
  void wait_while_nvml_blocked();
  // From now on: NVML calls block until `until_ns`. 0: no more.
  void block_nvml(SharedBlock& block, uint64_t until_ns);
  void throttle(uint32_t gpu, uint64_t reasons);  // 0: no more
  // How long ever, for one reason (a bit) or for any.
  uint64_t throttled_ns(uint32_t gpu, uint64_t reason = UINT64_MAX) const;
  uint64_t add_ghost(uint32_t gpu, uint64_t bytes);  // as much as is free; how much that was
  // Sleeps for as long as `bytes` take at the speed to which a fault holds copies; not at all without one.
  void pace_copy(uint32_t gpu, uint64_t bytes);
  // Where GPU `gpu` has its node from now on.
  void set_minor(uint32_t gpu, uint32_t minor);

  // XIDs are numbered from 0; the newest kXidsKept are kept.
  uint32_t xid_count() const { return state_->faults.xid_count.load(std::memory_order_acquire); }
  // False if that one has not happened or is no longer kept.
  bool xid(uint32_t number, XidRecord& record) const;
  // Sleeps until there are more than `seen` of them; false when `timeout_ns` have passed first.
  bool wait_for_xid(uint32_t seen, uint64_t timeout_ns);

  // ---- MIG (mig_devices.cc; the rules are in mig/layout.h) ----

  const MigBoard* mig(uint32_t gpu) const { return mig_board(board(gpu).key); }
  bool mig_enabled(uint32_t gpu) const { return state_->gpus[gpu].mig.enabled != 0; }
  bool mig_pending(uint32_t gpu) const { return state_->gpus[gpu].mig.pending != 0; }
  // Takes effect at once on an idle GPU, which the driver resets on the way; in_use: somebody uses it or
  // instances exist, and the mode waits for a reset.
  MigResult set_mig_mode(uint32_t gpu, bool on);
  // A copy of how it is cut up.
  SharedMig mig_layout(uint32_t gpu);
  MigResult create_gpu_instance(uint32_t gpu, uint32_t profile_id, std::optional<uint32_t> start,
                                uint32_t& id);
  MigResult destroy_gpu_instance(uint32_t gpu, uint32_t id);
  MigResult create_compute_instance(uint32_t gpu, uint32_t gpu_instance, uint32_t query,
                                    std::optional<uint32_t> start, uint32_t& id);
  // in_use while a process has a context there.
  MigResult destroy_compute_instance(uint32_t gpu, uint32_t gpu_instance, uint32_t id);
  uint32_t mig_capacity(uint32_t gpu, const GpuInstanceProfile& profile);
  // By position: those of GPU instances that begin at lower units first.
  std::vector<MigDeviceInfo> mig_devices(uint32_t gpu);
  // Memory in use in a GPU instance.
  uint64_t used_bytes(uint32_t gpu, uint32_t gpu_instance);
  // Instances go, a pending mode takes effect; in_use: somebody uses the GPU.
  MigResult reset_gpu(uint32_t gpu);
  // The machine boots again: all GPUs are reset, and where the generation loses it the mode goes too.
  void reboot();

  // ---- The account of the calling process (libcuda only) ----

  // Its work and memory on the GPU are those of this MIG device from now on.
  // GPU time that the compute instance has had with at least one kernel at work; the oracle.
  uint64_t instance_busy_ns(const MigDeviceInfo& device);
  void use_mig_device(uint32_t slot, const MigDeviceInfo& device);
  // Which process has a row, for handles that other processes open: its id as this process sees it, 0 if the
  // program that `image` names is gone.
  int32_t find_process(uint32_t slot, uint64_t image) const;
  uint64_t image(uint32_t slot) const { return state_->processes[slot % kMaxProcesses].image; }

  // Gives this process a row; again after a fork in the child. Fails when kMaxProcesses have one.
  Result<uint32_t> enter();
  // Closes the account at once.
  void leave(uint32_t slot);
  // Takes device memory for a context, if the compute mode lets the process have one.
  Admission admit_context(uint32_t slot, uint32_t gpu, uint64_t bytes);
  // Takes device memory for a context or for memory, exactly up to the usable bytes; false: out of memory.
  bool add_context(uint32_t slot, uint32_t gpu, uint64_t bytes);
  void remove_context(uint32_t slot, uint32_t gpu, uint64_t bytes);
  bool charge(uint32_t slot, uint32_t gpu, uint64_t bytes);
  void discharge(uint32_t slot, uint32_t gpu, uint64_t bytes);
  uint64_t free_bytes(uint32_t gpu);
  // The calling process may hold no more memory on the GPU than this, contexts aside.
  void limit_own_memory(uint32_t gpu, uint64_t bytes) { own_limits_[gpu % kMaxGpus] = bytes; }

  // Memory that is shared by a file, which `key` tells from others (exports.cc). share_memory: it is charged
  // to `slot` already, and whoever holds it when that one lets go is charged next; false: no more can be kept
  // in mind.
  bool share_memory(uint32_t slot, uint32_t gpu, uint64_t key, uint64_t bytes);
  bool hold_memory(uint32_t slot, uint64_t key);  // false: nobody shares it
  void drop_memory(uint32_t slot, uint64_t key);

  // Queues work; its tag is what is_done, wait and time_done take.
  Launched launch(uint32_t slot, uint32_t gpu, const GpuWork& work);
  // The tags of everything that the process has queued and of what is done.
  Launched position(uint32_t slot, uint32_t gpu);
  bool is_done(uint32_t slot, uint32_t gpu, uint64_t tag);
  // Sleeps until the work is done.
  void wait(uint32_t slot, uint32_t gpu, uint64_t tag);
  // When it was done, which it is; `not_before` and `tag_then`: a moment when `tag_then` was.
  uint64_t time_done(uint32_t slot, uint32_t gpu, uint64_t tag, uint64_t not_before, uint64_t tag_then);
  // Time slices, or side by side as under MPS.
  void set_sharing(uint32_t gpu, Sharing sharing);
  // Whether contexts of different processes share the GPU's multiprocessors and their fate.
  bool is_mps(uint32_t gpu) const { return sharing(gpu) == Sharing::side_by_side; }
  Sharing sharing(uint32_t gpu) const { return state_->gpus[gpu].timeline.sharing; }
  // Drops what this process has queued on the GPU (its last context went).
  void cancel(uint32_t slot, uint32_t gpu);

  // ---- Lock step (lock_step.cc): virtual time that moves when all clients wait ----

  // From now on time is virtual and moves when all of `count` clients, numbered from 0, sleep or wait in the
  // model; one of them runs at a time, so that equal programs make equal histories.
  void start_lock_step(uint32_t count);
  // Makes the process of row `slot` a client; returns when all have come and it is its turn.
  void join_lock_step(uint32_t client, uint32_t slot);
  // It is no more waited for. Called with a turn.
  void leave_lock_step();
  // Sleeps until the model's time; not in lock step, until CLOCK_MONOTONIC has it.
  void sleep_until_time(uint64_t time_ns);

 private:
  class GpuLock;
  class Uses;  // NOLINT(cppcoreguidelines-virtual-class-destructor): see gpu_lock.h

  DeviceModel(std::string directory, SharedState* state);
  static Result<std::unique_ptr<DeviceModel>> map(const std::string& directory, int state_file);

  bool is_mine(const SharedProcess& process) const;
  // Whether the process of `slot` lives; `pid` becomes its id as this process sees it.
  bool is_alive(uint32_t slot, int32_t& pid) const;
  void close_account(uint32_t slot);
  SharedExport* find_export(uint64_t key);
  void drop_export(SharedExport& row, uint32_t slot);
  void drop_exports_of(uint32_t slot);
  void wake_waiters(uint32_t gpu);
  // What `slot` may still take in its MIG device; without bound if it has none. The caller holds the GPU.
  uint64_t instance_room(uint32_t slot, uint32_t gpu) const;
  uint64_t used_in_instance(uint32_t gpu, uint32_t gpu_instance) const;
  uint64_t instance_bytes(uint32_t gpu, uint32_t gpu_instance) const;
  // The other processes with contexts on the GPU: how many, and whether any of them has lost its own.
  struct Others {
    uint32_t count = 0;
    bool any_lost = false;
  };
  Others others(uint32_t slot, uint32_t gpu) const;
  // Whose time the work of `slot` takes: an index of instance_timelines, kMaxExecutors for the whole GPU's.
  uint32_t executor_of(uint32_t slot, const SharedGpu& gpu) const;
  // The work as it is on the multiprocessors that `slot` has: what needs more of them takes longer.
  GpuWork on_own_multiprocessors(uint32_t slot, uint32_t gpu, const GpuWork& work) const;
  // Busy time of the whole GPU: under MIG each instance counts as much as it has of the multiprocessors.
  uint64_t busy_ns(uint32_t gpu) const;
  uint64_t busy_in(uint32_t gpu, uint64_t period) const;
  // Keeps what the compute instances' executors have counted, which go now.
  void retire_instances(GpuLock& lock) const;
  // Calls `visit(timeline, multiprocessors)` for the executor of each compute instance.
  template <class Visit>
  void each_executor(uint32_t gpu, Visit visit) const {
    const SharedGpu& shared = state_->gpus[gpu];
    for (const SharedGpuInstance& instance : shared.mig.instances) {
      for (const SharedComputeInstance& compute : instance.compute) {
        if (instance.exists == 0 || compute.exists == 0) continue;
        visit(shared.instance_timelines[compute.executor % kMaxExecutors], compute.multiprocessors);
      }
    }
  }
  bool has_contexts(uint32_t gpu, std::optional<uint32_t> gpu_instance,
                    std::optional<uint32_t> compute_instance) const;
  // Loses the contexts of `slot` on the GPU, with their queued work. The caller holds the GPU.
  void lose_contexts(uint32_t slot, GpuLock& lock, int32_t cuda_result);
  // What a process that ends leaves behind, if a fault says so: of `bytes`, what the GPU keeps in use.
  static void leave_ghost(SharedGpuFaults& faults, int32_t pid, uint64_t bytes, uint64_t& kept);
  uint32_t process_count() const;
  // Calls `visit(slot)` for each row in use.
  template <class Visit>
  void each_process(Visit visit) const {
    const uint32_t count = process_count();
    for (uint32_t slot = 0; slot < count; ++slot) {
      if (state_->processes[slot].in_use.load(std::memory_order_acquire) != 0) visit(slot);
    }
  }
  ProcessReading reading(uint32_t slot, uint32_t gpu, uint64_t period) const;
  // Brings the GPU's time up to now at the old clock, and kernels run at what `change` makes of it from then
  // on.
  template <class Change>
  void change_clock(uint32_t gpu, Change change);
  static void note_transfer(SharedGpu& gpu, Bus direction, const SharedTransfer& transfer);
  // Keeps what the account says, for those who ask after its process ended. Under the GPU's lock.
  void remember_ended(uint32_t slot, uint32_t gpu);
  // How much more the calling process may take on the GPU. Under the GPU's lock.
  uint64_t room(uint32_t gpu) const;
  // The same for memory that is no context.
  uint64_t memory_room(uint32_t gpu) const;
  // How much more the limits of cgroups let the calling process take on the GPU. Under the GPU's lock.
  uint64_t memory_limit_room(uint32_t gpu) const;
  uint64_t used_by_cgroup(uint32_t gpu, std::string_view cgroup) const;
  // Whether `bytes` more are within what a soft limit guarantees to the cgroup.
  bool is_guaranteed(uint32_t gpu, std::string_view cgroup, uint64_t bytes) const;
  // Whether it may lose its memory to those whom it is guaranteed: it is within no soft limit that it keeps.
  bool is_evictable(uint32_t gpu, std::string_view cgroup) const;
  // Under MPS, for memory that is guaranteed to the caller: terminates clients that have more than their
  // share until there is room; false, and nobody is touched, if there would be none.
  bool win_back(GpuLock& lock, uint32_t gpu, uint64_t bytes);
  void sleep_in_lock_step(uint64_t time_ns);
  void await_turn();
  void pass_turn();
  void repair_table();
  void repair_gpu(uint32_t gpu);

  std::string directory_;
  SharedState* state_;
  uint32_t gpu_count_;
  int32_t lock_step_client_ = -1;      // number of this process in lock step; -1: not in it
  int lock_file_;                      // `processes`; never closed, see ~DeviceModel
  uint32_t own_slot_ = kMaxProcesses;  // of this process, once it has entered
  std::array<uint64_t, kMaxGpus> own_limits_;
};

// CLOCK_MONOTONIC in ns: the time of the model.
uint64_t monotonic_now();

}  // namespace tranche::emulator
