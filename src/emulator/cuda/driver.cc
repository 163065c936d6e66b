#include "emulator/cuda/driver.h"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <thread>

#include "emulator/cuda/checkpoint.h"
#include "emulator/cuda/mig_visible.h"
#include "emulator/cuda/mps_client.h"
#include "emulator/cuda/visible_devices.h"
#include "emulator/device_nodes.h"
#include "emulator/mig_nodes.h"

namespace tranche::emulator::cuda {
namespace {

constexpr uint64_t kBytesPerMiB = uint64_t{1} << 20;
constexpr uint64_t kCopyStartNs = 1500;  // chosen: what a copy takes before the first byte moves

const char* environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// The description of CUDA_ERROR_DEVICE_UNAVAILABLE in cuda.h names both modes. (That of cuCtxCreate still
// says CUDA_ERROR_UNKNOWN for the prohibited one, as it did before this code existed.)
CUresult result_of(Admission admission) {
  switch (admission) {
    case Admission::admitted:
      return CUDA_SUCCESS;
    case Admission::out_of_memory:
      return CUDA_ERROR_OUT_OF_MEMORY;
    case Admission::prohibited:
    case Admission::used_by_another:
      return CUDA_ERROR_DEVICE_UNAVAILABLE;
    case Admission::mps_recovers:
      return CUDA_ERROR_MPS_SERVER_NOT_READY;
    case Admission::mps_is_full:
      return CUDA_ERROR_MPS_MAX_CLIENTS_REACHED;
  }
  return CUDA_ERROR_UNKNOWN;
}

// The thread's own default stream in each context.
std::shared_ptr<Stream> per_thread_stream(const std::shared_ptr<Context>& context) {
  static std::atomic<uint64_t> next_id{uint64_t{1} << 32};
  thread_local std::map<uint64_t, std::shared_ptr<Stream>> streams;
  std::shared_ptr<Stream>& stream = streams[context->id];
  if (stream == nullptr) {
    stream = std::make_shared<Stream>();
    stream->context = context.get();
    stream->owner = context;
    stream->id = next_id.fetch_add(1);
  }
  return stream;
}

}  // namespace

std::vector<std::shared_ptr<Context>>& context_stack() {
  thread_local std::vector<std::shared_ptr<Context>> stack;
  return stack;
}

Driver& Driver::instance() {
  static Driver* const driver = new Driver;
  return *driver;
}

CUresult Driver::initialise(unsigned flags) {
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(init_mutex_);
  if (ready_.load()) return CUDA_SUCCESS;
  if (model_ != nullptr) return CUDA_ERROR_NOT_INITIALIZED;  // after a fork
  auto model = DeviceModel::attach(default_state_directory());
  if (!model) return CUDA_ERROR_NO_DEVICE;
  if ((*model)->server_faults().driver_mismatch.load() != 0) return CUDA_ERROR_SYSTEM_DRIVER_MISMATCH;
  model_ = std::move(*model);
  const CUresult entered = enter_server();
  if (entered != CUDA_SUCCESS) {
    for (const int node : nodes_) close(node);
    nodes_.clear();
    devices_.clear();
    model_.reset();
    return entered;
  }
  pthread_atfork(nullptr, nullptr, [] { instance().ready_.store(false); });
  ready_.store(true, std::memory_order_release);
  start_checkpoints();
  return CUDA_SUCCESS;
}

CUresult Driver::enter_server() {
  CUDA_TRY(open_devices());
  const auto slot = model_->enter();
  if (!slot) return CUDA_ERROR_UNKNOWN;
  slot_ = *slot;
  join_lock_step();
  read_mps_settings();
  for (const auto& device : devices_) {
    if (device->mig) model_->use_mig_device(slot_, *device->mig);
    device->memory =
        std::make_unique<DeviceMemory>(*model_, slot_, device->gpu, DeviceMemory::Window::of_the_row);
  }
  return CUDA_SUCCESS;
}

void Driver::read_mps_settings() {
  const std::vector<uint64_t> limits = memory_limits_of_client(
      environment("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"), static_cast<uint32_t>(devices_.size()));
  for (size_t i = 0; i < devices_.size(); ++i) {
    Device& device = *devices_[i];
    if (!model_->is_mps(device.gpu)) continue;
    const uint32_t all = model_->board(device.gpu).multiprocessors;
    const uint32_t some = multiprocessors_of_client(environment("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"), all);
    device.multiprocessors = some < all ? some : 0;
    if (!limits.empty()) model_->limit_own_memory(device.gpu, limits[i]);
  }
}

// $TRANCHE_EMULATOR_LOCK_STEP, a number: which client of a server in lock step this process is.
void Driver::join_lock_step() {
  const char* const number = std::getenv("TRANCHE_EMULATOR_LOCK_STEP");
  if (number != nullptr && *number != '\0') {
    model_->join_lock_step(static_cast<uint32_t>(std::strtoul(number, nullptr, 10)), slot_);
  }
}

// Opens the nodes and keeps them open, so that /proc/PID/fd tells who holds a GPU.
CUresult Driver::open_devices() {
  for (const DeviceNode& node : {control_node(), memory_node()}) {
    const int file = open_node(node);
    if (file < 0) return nodes_.empty() ? CUDA_ERROR_NO_DEVICE : CUDA_ERROR_UNKNOWN;
    nodes_.push_back(file);
  }
  std::map<uint32_t, int> opened;
  std::vector<uint32_t> gpus;
  for (uint32_t gpu = 0; gpu < model_->gpu_count(); ++gpu) {
    const int file = model_->is_lost(gpu) ? -1 : open_node(gpu_node(model_->identity(gpu).minor));
    if (file < 0) continue;
    opened.emplace(gpu, file);
    gpus.push_back(gpu);
  }
  gpus = order_devices(*model_, std::move(gpus), environment("CUDA_DEVICE_ORDER"));
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  std::optional<MigDeviceInfo> mig;
  if (visible != nullptr && names_mig_device(visible)) {
    mig = find_mig_device(*model_, gpus, visible);
    gpus = mig ? std::vector<uint32_t>{mig->gpu} : std::vector<uint32_t>{};
  } else {
    if (visible != nullptr) gpus = select_devices(*model_, gpus, visible);
    mig = settle_mig(*model_, gpus);
  }
  if (mig && !open_mig_device(*mig)) gpus.clear();
  for (const auto& [gpu, file] : opened) {
    if (std::find(gpus.begin(), gpus.end(), gpu) == gpus.end())
      close(file);
    else
      nodes_.push_back(file);
  }
  for (const uint32_t gpu : gpus) {
    devices_.push_back(std::make_unique<Device>());
    devices_.back()->gpu = gpu;
    devices_.back()->mig = mig;
  }
  return gpus.empty() ? CUDA_ERROR_NO_DEVICE : CUDA_SUCCESS;
}

Driver::Device* Driver::device(CUdevice ordinal) {
  if (ordinal < 0 || static_cast<size_t>(ordinal) >= devices_.size()) return nullptr;
  return devices_[static_cast<size_t>(ordinal)].get();
}

CUdevice Driver::ordinal_of(uint32_t gpu) const {
  for (size_t i = 0; i < devices_.size(); ++i) {
    if (devices_[i]->gpu == gpu) return static_cast<CUdevice>(i);
  }
  return -1;
}

CUresult Driver::find_device(CUdevice ordinal, Device*& device) {
  CUDA_TRY(ready());
  device = this->device(ordinal);
  return device == nullptr ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

CUresult Driver::create_context(CUdevice ordinal, unsigned flags, unsigned api_version, bool primary,
                                std::shared_ptr<Context>& context, uint64_t bytes) {
  Device* const device = this->device(ordinal);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  CUDA_TRY(static_cast<CUresult>(model_->refusal(device->gpu)));
  if (device->contexts.load() == 0) CUDA_TRY(fault_on(device->gpu));
  if (bytes == 0) bytes = model_->board(device->gpu).context_mib * kBytesPerMiB;
  CUDA_TRY(result_of(model_->admit_context(slot_, device->gpu, bytes)));
  context = std::make_shared<Context>();
  context->device = ordinal;
  context->gpu = device->gpu;
  context->id = next_id_.fetch_add(1);
  context->flags = flags;
  context->api_version = api_version;
  context->primary = primary;
  context->charged_bytes = bytes;
  context->multiprocessors = static_cast<int>(device->multiprocessors);
  context->legacy_stream.context = context.get();
  context->legacy_stream.legacy = true;
  context->legacy_stream.id = context->id << 16;
  device->contexts.fetch_add(1);
  contexts.add(context);
  return CUDA_SUCCESS;
}

void Driver::destroy_context(const std::shared_ptr<Context>& context) {
  if (context->destroyed.exchange(true)) return;
  contexts.remove(context->handle);
  Device& device = *this->device(context->device);
  const bool last = device.contexts.fetch_sub(1) == 1;
  if (last) model_->cancel(slot_, context->gpu);
  const auto in_context = [&](const auto& object) { return object.context.get() == context.get(); };
  streams.remove_if([&](const Stream& stream) { return stream.context == context.get(); });
  events.remove_if(in_context);
  for (const auto& module : modules.remove_if(in_context)) {
    functions.remove_if([&](const Function& function) { return function.module == module->handle; });
  }
  arrays.remove_if(in_context);
  release_host_of(context->handle);
  mipmapped_arrays.remove_if(in_context);
  space.close_all_of(context->handle);
  device.memory->release_all_of(context->handle);
  if (context->limit_bytes > 0) device.memory->discharge(context->limit_bytes);
  model_->remove_context(slot_, context->gpu, context->charged_bytes);
}

// What the model says of the process (an injected fault), and what the context's own work has met.
CUresult Driver::fault_of(Context& context) {
  StickyFault& fault = context.fault;
  int result = fault.result.load(std::memory_order_relaxed);
  if (result != 0) return static_cast<CUresult>(result);
  const int coming = fault.coming.load(std::memory_order_acquire);
  if (coming != 0 && model_->is_done(slot_, context.gpu, fault.tag.load())) {
    result = coming;
    report_fault(context, result);
    if (model_->is_mps(context.gpu)) model_->lose_all_contexts(context.gpu, result);
  }
  if (const int32_t injected = model_->own_fault(context.gpu); injected != 0) result = injected;
  if (result != 0) fault.result.store(result);
  return static_cast<CUresult>(result);
}

// The kernel's driver tells what a program did as an XID: 31 for a page that is not there, 13 for what a
// multiprocessor could not do. Other results have none of their own.
void Driver::report_fault(const Context& context, int result) {
  const bool is_page_fault = result == CUDA_ERROR_ILLEGAL_ADDRESS;
  const bool is_exception = result >= CUDA_ERROR_HARDWARE_STACK_ERROR && result <= CUDA_ERROR_LAUNCH_FAILED;
  if (!is_page_fault && !is_exception) return;
  XidRecord record{context.gpu, is_page_fault ? 31u : 13u, getpid()};
  if (const auto& mig = device(context.device)->mig; mig.has_value()) {
    record.gpu_instance = mig->gpu_instance;
    record.compute_instance = mig->compute_instance;
  }
  record.time_ns = monotonic_now();
  model_->record_xid(record);
}

CUresult Driver::refuse_in_capture() {
  if (graphs.captures_global.load(std::memory_order_relaxed) == 0) return CUDA_SUCCESS;
  if (capture_mode_of_thread() == 2) return CUDA_SUCCESS;
  const std::lock_guard lock(graphs.mutex);
  streams.each([](Stream& stream) {
    if (stream.capture != nullptr && stream.capture->mode == 0) stream.capture->invalidated = true;
  });
  return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

int& capture_mode_of_thread() {
  thread_local int mode = 0;
  return mode;
}

CUresult Driver::current(std::shared_ptr<Context>& context) {
  CUDA_TRY(ready());
  const auto& stack = context_stack();
  if (stack.empty() || stack.back() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (stack.back()->destroyed.load()) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  context = stack.back();
  return fault_of(*context);
}

CUresult Driver::resolve_stream(CUstream handle, DefaultStream mode, std::shared_ptr<Stream>& stream) {
  CUDA_TRY(ready());
  const auto number = reinterpret_cast<uintptr_t>(handle);
  if (number > kPerThreadStream) {
    stream = streams.find(handle);
    return stream == nullptr ? CUDA_ERROR_INVALID_HANDLE : fault_of(*stream->context);
  }
  std::shared_ptr<Context> context;
  CUDA_TRY(current(context));
  const bool per_thread = number == kPerThreadStream || (number == 0 && mode == DefaultStream::per_thread);
  stream =
      per_thread ? per_thread_stream(context) : std::shared_ptr<Stream>(context, &context->legacy_stream);
  return CUDA_SUCCESS;
}

void Driver::enqueue(Stream& stream, uint64_t work_ns, uint32_t demand) {
  queue(stream, {work_ns, demand, false, {}});
}

void Driver::enqueue_copy(Stream& stream, uint64_t bytes, const CopyWay& way) {
  const uint32_t gpu = stream.context->gpu;
  const Board& board = model_->board(gpu);
  const bool over_bus = way.from < 0 || way.to < 0;
  const bool between_gpus = !over_bus && way.from != way.to && board.nvlinks == 0;
  // MB/s. A lane of PCIe carries some 985 MB/s at generation 3 and doubles with each, less 20 % in practice;
  // device memory is read and written at the board's bandwidth: bus width times clock times 2 (double data
  // rate).
  const uint64_t lane = uint64_t{985} << (std::max(board.pcie_generation, 3u) - 3);
  const uint64_t bus = lane * board.pcie_width * 8 / 10;
  const uint64_t inside = uint64_t{board.memory_clock_mhz} * 2 * board.memory_bus_bits / 8 / 2;
  const uint64_t rate = std::max<uint64_t>(over_bus || between_gpus ? bus : inside, 1);
  model_->pace_copy(gpu, bytes);
  const uint64_t work_ns = kCopyStartNs + bytes / rate * 1000 + bytes % rate * 1000 / rate;
  GpuWork work{work_ns, 0, true, {}};
  const auto count = [&](CUdevice device, Bus direction) {
    if (device >= 0 && device == stream.context->device)
      work.bus_bytes[static_cast<size_t>(direction)] = bytes;
  };
  if (over_bus || between_gpus) {
    count(way.to, Bus::to_gpu);
    count(way.from, Bus::from_gpu);
  }
  const Launched launched = queue(stream, work);
  if (!between_gpus) return;
  const CUdevice peer = way.to == stream.context->device ? way.from : way.to;
  SharedTransfer transfer = launched.transfer;
  transfer.bytes = bytes;
  model_->count_transfer(device(peer)->gpu, peer == way.to ? Bus::to_gpu : Bus::from_gpu, transfer);
}

Launched Driver::queue(Stream& stream, const GpuWork& work) {
  finish_host_functions(stream);
  Device& device = *this->device(stream.context->device);
  const Launched launched = model_->launch(slot_, device.gpu, work);
  stream.last_tag.store(launched.tag, std::memory_order_relaxed);
  const uint64_t number = device.launches.fetch_add(1, std::memory_order_relaxed);
  const uint64_t oldest = device.queued[number % device.queued.size()].exchange(launched.tag);
  if (oldest > launched.reached_tag) model_->wait(slot_, device.gpu, oldest);
  return launched;
}

uint64_t Driver::tag_of(Stream& stream) {
  return stream.legacy ? model_->position(slot_, stream.context->gpu).tag : stream.last_tag.load();
}

CUresult Driver::synchronise(Stream& stream) {
  model_->wait(slot_, stream.context->gpu, tag_of(stream));
  finish_host_functions(stream);
  settle_pools();
  return fault_of(*stream.context);
}

PoolMoment Driver::moment(Stream& stream) {
  const Launched position = model_->position(slot_, stream.context->gpu);
  return {stream.id, stream.legacy ? position.tag : stream.last_tag.load(), position.reached_tag};
}

void Driver::settle_pools() {
  pools.each([](Pool& pool) { pool.settle(); });
}

CUresult Driver::free_block(CUdeviceptr address, const PoolMoment& moment) {
  Block block;
  CUdevice ordinal = 0;
  if (!find_block(address, block, ordinal) || block.address != address || block.kind == BlockKind::array) {
    return free_graph_memory(address);
  }
  if (block.pool != nullptr) {
    const std::shared_ptr<Pool> pool = pools.find(block.pool);
    return pool == nullptr ? CUDA_ERROR_INVALID_VALUE : pool->release(address, moment);
  }
  return device(ordinal)->memory->release(address) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

void Driver::finish_host_functions(Stream& stream) {
  if (stream.host->pending.load(std::memory_order_acquire) == 0) return;
  std::unique_lock lock(stream.host->mutex);
  stream.host->changed.wait(lock, [&] { return stream.host->pending == 0; });
}

void Driver::run_on_host(const std::shared_ptr<Stream>& stream, void (*call)(void*, void*), void* function,
                         void* data) {
  finish_host_functions(*stream);
  const uint64_t tag = tag_of(*stream);
  const std::shared_ptr<Stream::HostFunctions> host = stream->host;
  {
    const std::lock_guard lock(host->mutex);
    ++host->pending;
  }
  std::thread([this, host, gpu = stream->context->gpu, tag, call, function, data] {
    model_->wait(slot_, gpu, tag);
    call(function, data);
    const std::lock_guard lock(host->mutex);
    --host->pending;
    host->changed.notify_all();
  }).detach();
}

bool Driver::find_block(CUdeviceptr address, Block& block, CUdevice& ordinal) {
  for (ordinal = 0; ordinal < device_count(); ++ordinal) {
    if (device(ordinal)->memory->find(address, block)) return true;
  }
  bool found = false;
  pools.each([&](Pool& pool) {
    if (found || !pool.has_own_memory() || !pool.memory().find(address, block)) return;
    ordinal = pool.device();
    found = true;
  });
  return found;
}

bool Driver::find_place(CUdeviceptr address, Place& place) {
  Block block;
  CUdevice ordinal = 0;
  if (find_block(address, block, ordinal)) {
    place = {block.address, block.bytes, block.backing, 0,    ordinal,
             block.context, block.pool,  block.id,      true, false};
    return true;
  }
  Mapping mapping;
  if (!space.find(address, mapping)) return false;
  const Physical& physical = *mapping.physical;
  const bool on_device = physical.properties.location.type == kLocationDevice;
  const bool virtual_memory = mapping.kind == MappingKind::mapped;
  bool accessible = !virtual_memory;
  for (const auto& [device, flags] : mapping.access) accessible = accessible || flags != kAccessNone;
  place = {mapping.address,
           mapping.bytes,
           physical.backing,
           mapping.offset,
           on_device ? physical.properties.location.id : -1,
           mapping.context,
           nullptr,
           mapping.id,
           accessible,
           virtual_memory};
  return true;
}

bool Driver::find_host(uintptr_t address, HostBlock& block) {
  const std::lock_guard lock(host_mutex_);
  auto found = host_blocks_.upper_bound(address);
  if (found == host_blocks_.begin()) return false;
  --found;
  if (address - found->first >= found->second.bytes) return false;
  block = found->second;
  return true;
}

bool Driver::add_host(const HostBlock& block) {
  const std::lock_guard lock(host_mutex_);
  const auto after = host_blocks_.lower_bound(block.address);
  if (after != host_blocks_.end() && after->first < block.address + block.bytes) return false;
  if (after != host_blocks_.begin()) {
    const HostBlock& before = std::prev(after)->second;
    if (before.address + before.bytes > block.address) return false;
  }
  const auto [added, is_new] = host_blocks_.emplace(block.address, block);
  added->second.id = next_id_.fetch_add(1);
  return is_new;
}

bool Driver::remove_host(uintptr_t address, HostBlock::Kind kind, HostBlock& block) {
  const std::lock_guard lock(host_mutex_);
  const auto found = host_blocks_.find(address);
  if (found == host_blocks_.end() || found->second.kind != kind) return false;
  block = found->second;
  host_blocks_.erase(found);
  return true;
}

void Driver::release_host_of(CUcontext context) {
  std::vector<HostBlock> released;
  {
    const std::lock_guard lock(host_mutex_);
    for (auto it = host_blocks_.begin(); it != host_blocks_.end();) {
      if (it->second.context != context) {
        ++it;
        continue;
      }
      released.push_back(it->second);
      it = host_blocks_.erase(it);
    }
  }
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  for (const HostBlock& block : released) {
    if (block.charged > 0) device(block.on_device)->memory->discharge(block.charged);
    if (block.kind == HostBlock::Kind::managed) managed_blocks.fetch_sub(1);
    if (block.kind == HostBlock::Kind::registered) continue;
    munmap(reinterpret_cast<void*>(block.address), (block.bytes + page - 1) / page * page);
  }
}

void Driver::move_managed(uintptr_t address, CUdevice ordinal) {
  if (managed_blocks.load(std::memory_order_relaxed) == 0) return;
  change_host(address, [&](HostBlock& block) {
    if (block.kind != HostBlock::Kind::managed || block.on_device == ordinal) return;
    if (block.charged > 0) device(block.on_device)->memory->discharge(block.charged);
    block.charged = 0;
    block.on_device = ordinal;
    Device* const target = device(ordinal);
    if (target == nullptr) return;
    const uint64_t bytes = round_up_to_page(block.bytes);
    if (target->memory->charge(bytes)) block.charged = bytes;
  });
}

}  // namespace tranche::emulator::cuda
