#include "emulator/cuda/driver.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <thread>

#include "emulator/cuda/mig_visible.h"
#include "emulator/cuda/visible_devices.h"
#include "emulator/device_nodes.h"
#include "emulator/mig_nodes.h"

namespace tranche::emulator::cuda {
namespace {

constexpr uint64_t kBytesPerMiB = uint64_t{1} << 20;

const char* environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
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
  return CUDA_SUCCESS;
}

CUresult Driver::enter_server() {
  CUDA_TRY(open_devices());
  const auto slot = model_->enter();
  if (!slot) return CUDA_ERROR_UNKNOWN;
  slot_ = *slot;
  for (const auto& device : devices_) {
    if (device->mig) model_->use_mig_device(slot_, *device->mig);
    device->memory = std::make_unique<DeviceMemory>(*model_, slot_, device->gpu);
  }
  return CUDA_SUCCESS;
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

CUresult Driver::find_device(CUdevice ordinal, Device*& device) {
  CUDA_TRY(ready());
  device = this->device(ordinal);
  return device == nullptr ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

CUresult Driver::create_context(CUdevice ordinal, unsigned flags, unsigned api_version, bool primary,
                                std::shared_ptr<Context>& context) {
  Device* const device = this->device(ordinal);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  CUDA_TRY(static_cast<CUresult>(model_->refusal(device->gpu)));
  CUDA_TRY(fault_on(device->gpu));
  const uint64_t bytes = model_->board(device->gpu).context_mib * kBytesPerMiB;
  if (!model_->add_context(slot_, device->gpu, bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  context = std::make_shared<Context>();
  context->device = ordinal;
  context->gpu = device->gpu;
  context->id = next_id_.fetch_add(1);
  context->flags = flags;
  context->api_version = api_version;
  context->primary = primary;
  context->charged_bytes = bytes;
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
  device.memory->release_all_of(context->handle);
  model_->remove_context(slot_, context->gpu, context->charged_bytes);
}

CUresult Driver::current(std::shared_ptr<Context>& context) {
  CUDA_TRY(ready());
  const auto& stack = context_stack();
  if (stack.empty() || stack.back() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (stack.back()->destroyed.load()) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  context = stack.back();
  return fault_on(context->gpu);
}

CUresult Driver::resolve_stream(CUstream handle, DefaultStream mode, std::shared_ptr<Stream>& stream) {
  CUDA_TRY(ready());
  const auto number = reinterpret_cast<uintptr_t>(handle);
  if (number > kPerThreadStream) {
    stream = streams.find(handle);
    return stream == nullptr ? CUDA_ERROR_INVALID_HANDLE : fault_on(stream->context->gpu);
  }
  std::shared_ptr<Context> context;
  CUDA_TRY(current(context));
  const bool per_thread = number == kPerThreadStream || (number == 0 && mode == DefaultStream::per_thread);
  stream =
      per_thread ? per_thread_stream(context) : std::shared_ptr<Stream>(context, &context->legacy_stream);
  return CUDA_SUCCESS;
}

void Driver::enqueue(Stream& stream, uint64_t work_ns) {
  finish_host_functions(stream);
  Device& device = *this->device(stream.context->device);
  const Launched launched = model_->launch(slot_, device.gpu, work_ns);
  stream.last_tag.store(launched.tag, std::memory_order_relaxed);
  const uint64_t number = device.launches.fetch_add(1, std::memory_order_relaxed);
  const uint64_t oldest = device.queued[number % device.queued.size()].exchange(launched.tag);
  if (oldest > launched.reached_tag) model_->wait(device.gpu, oldest);
}

uint64_t Driver::tag_of(Stream& stream) {
  return stream.legacy ? model_->queued(slot_, stream.context->gpu) : stream.last_tag.load();
}

CUresult Driver::synchronise(Stream& stream) {
  model_->wait(stream.context->gpu, tag_of(stream));
  finish_host_functions(stream);
  return fault_on(stream.context->gpu);
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
    model_->wait(gpu, tag);
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
  return false;
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

}  // namespace tranche::emulator::cuda
