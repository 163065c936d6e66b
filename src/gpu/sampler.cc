#include "gpu/sampler.h"

#include <poll.h>
#include <sys/socket.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <thread>
#include <utility>

#include "gpu/topology.h"
#include "linux/files.h"

namespace tranche {

using nvml::Call;
using nvml::Code;

namespace {

constexpr size_t kChecksPendingMax = 256;
constexpr uint32_t kXidWaitMilliseconds = 1000;

int64_t boot_nanoseconds() {
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

constexpr std::string_view kWslText =
    "this is the Windows Subsystem for Linux, whose GPU has no device node of its own and so cannot be given "
    "to "
    "one job and kept from another; install Tranche on Linux itself";

bool runs_under_wsl(const std::string& proc_root) {
  const auto release = read_file(proc_root + "/sys/kernel/osrelease", 256);
  if (!release) return false;
  std::string text = *release;
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text.find("microsoft") != std::string::npos || text.find("wsl") != std::string::npos;
}

std::string failure_text(Call call, Code code) {
  return std::string(nvml::call_name(call)) + " failed: " + nvml::code_text(code);
}

}  // namespace

Sampler::Sampler(SamplerOptions options)
    : options_(std::move(options)), names_([this](uid_t uid, const std::string& name) {
        sampler::UserName message;
        message.uid = uid;
        sampler::set_field(message.name, name);
        send(message, sampler::Kind::user_name, 0, false);
      }) {}

template <class Message>
void Sampler::send(Message& message, sampler::Kind kind, uint64_t id, bool may_be_dropped, size_t size) {
  message.header = {
      .size = static_cast<uint32_t>(size), .version = sampler::kProtocolVersion, .kind = kind, .id = id};
  const int flags = MSG_NOSIGNAL | (may_be_dropped ? MSG_DONTWAIT : 0);
  while (::send(options_.socket, &message, size, flags) < 0 && errno == EINTR) {
  }
  // Any other failure is the daemon's end or its delay; the main thread sees the former.
}

void Sampler::run() {
  names_.start();
  std::thread([this] { take_inventory(); }).detach();
  const int64_t period_milliseconds = options_.progress_period.count() / kMillisecond.count();
  int64_t next_progress = 0;
  while (true) {
    const int64_t now = boot_nanoseconds();
    if (now >= next_progress) {
      report_progress();
      next_progress = now + options_.progress_period.count();
    }
    pollfd waiting{.fd = options_.socket, .events = POLLIN, .revents = 0};
    if (::poll(&waiting, 1, static_cast<int>(period_milliseconds)) <= 0) continue;
    std::array<std::byte, 256> packet;
    const ssize_t size = ::recv(options_.socket, packet.data(), packet.size(), MSG_DONTWAIT);
    if (size == 0 || (size < 0 && errno != EAGAIN && errno != EINTR)) return;
    if (size < 0) continue;
    const auto request =
        sampler::decode<sampler::Request>(std::span(packet).first(static_cast<size_t>(size)));
    if (request) handle(*request);
  }
}

void Sampler::handle(const sampler::Request& request) {
  const std::lock_guard lock(workers_mutex_);
  for (const auto& worker : workers_) {
    if (worker->gpu != request.gpu) continue;
    const std::lock_guard worker_lock(worker->mutex);
    if (request.header.kind == sampler::Kind::resume) worker->paused = false;
    if (request.header.kind == sampler::Kind::check && worker->checks.size() < kChecksPendingMax) {
      worker->checks.push_back(request.header.id);
    }
    worker->wake.notify_one();
  }
}

void Sampler::report_progress() {
  sampler::Progress progress;
  const auto add = [&](uint32_t gpu, const nvml::CallInFlight& in_flight) {
    const Call call = in_flight.call.load(std::memory_order_acquire);
    progress.activities[progress.count++] = {.gpu = gpu,
                                             .call = static_cast<uint32_t>(call),
                                             .entered = in_flight.entered.load(std::memory_order_relaxed)};
  };
  add(inventory_gpu_.load(std::memory_order_relaxed), inventory_in_flight_);
  {
    const std::lock_guard lock(workers_mutex_);
    for (const auto& worker : workers_) add(worker->gpu, worker->in_flight);
  }
  const size_t size = offsetof(sampler::Progress, activities) + progress.count * sizeof(sampler::Activity);
  send(progress, sampler::Kind::progress, 0, true, size);
}

void Sampler::take_inventory() {
  nvml::CallInFlight& in_flight = inventory_in_flight_;
  in_flight.entered.store(boot_nanoseconds(), std::memory_order_relaxed);
  in_flight.call.store(Call::load_library, std::memory_order_release);
  const bool is_wsl = runs_under_wsl(options_.roots.proc);
  auto library = nvml::NvmlLibrary::open(options_.library_dir);
  in_flight.call.store(Call::none, std::memory_order_release);
  sampler::Inventory inventory;
  if (is_wsl || !library) {
    inventory.code = static_cast<int32_t>(Code::library_not_found);
    sampler::set_field(inventory.problem, is_wsl ? std::string(kWslText) : library.error().message());
    return send(inventory, sampler::Kind::inventory, 0, false);
  }
  library_ = std::move(*library);
  nvml::NvmlCaller nvml(*library_, in_flight);
  const std::string problem = start_driver(nvml, inventory);
  if (!problem.empty() || options_.probe) {
    for (const uint32_t index : options_.look_at) {
      if (problem.empty() && index < inventory.gpu_count) look_at(nvml, index);
    }
    sampler::set_field(inventory.problem, problem);
    return send(inventory, sampler::Kind::inventory, 0, false);
  }
  Found found;
  for (uint32_t index = 0; index < inventory.gpu_count; ++index) describe(nvml, index, found);
  describe_links(nvml, found);
  describe_mig(nvml, found);
  {
    // Before the daemon hears of the GPUs, since it may ask at once; the threads find its questions waiting.
    const std::lock_guard lock(workers_mutex_);
    workers_ = std::move(found.workers);
  }
  const auto events = nvml.event_set();
  if (events.ok()) {
    xids_ = events.value;
    std::thread([this] { watch_xids(); }).detach();
  }
  send_inventory(inventory, found);
  for (const auto& worker : workers_) std::thread([this, &worker = *worker] { work(worker); }).detach();
}

std::string Sampler::start_driver(nvml::NvmlCaller& nvml, sampler::Inventory& inventory) {
  const auto failed = [&](Call call, Code code) {
    inventory.call = static_cast<uint32_t>(call);
    inventory.code = static_cast<int32_t>(code);
    return failure_text(call, code);
  };
  const Code initialised = nvml.init();
  if (initialised != Code::success) return failed(Call::init, initialised);
  const auto count = nvml.device_count();
  if (!count.ok()) return failed(Call::device_count, count.code);
  if (count.value > sampler::kGpusMax) {
    return "the driver reports " + std::to_string(count.value) + " GPUs; at most " +
           std::to_string(sampler::kGpusMax) + " are supported";
  }
  inventory.gpu_count = count.value;
  const auto driver = nvml.driver_version();
  if (driver.ok()) sampler::set_field(inventory.driver_version, driver.value);
  return {};
}

void Sampler::describe(nvml::NvmlCaller& nvml, uint32_t index, Found& found) {
  sampler::GpuProblem problem;
  problem.index = index;
  problem.skipped = options_.skip_indices.contains(index) ? 1 : 0;
  if (problem.skipped != 0) return found.problems.push_back(problem);

  inventory_gpu_.store(index, std::memory_order_relaxed);
  auto gpu = std::make_unique<sampler::Gpu>();
  auto worker = std::make_unique<Worker>();
  worker->gpu = gpu->index = index;
  Call call = Call::device_handle;
  const auto device = nvml.device(index);
  Code code = device.code;
  if (code == Code::success) {
    call = Call::uuid;
    const auto uuid = nvml.uuid(device.value);
    code = uuid.ok() && uuid.value.empty() ? Code::no_data : uuid.code;
    sampler::set_field(gpu->uuid, uuid.value);
    worker->device = device.value;
    worker->paused = options_.skip_uuids.contains(sampler::field_text(gpu->uuid));
  }
  if (code == Code::success && !worker->paused) {
    call = Call::memory;
    code = describe_device(nvml, device.value, options_.roots, *gpu);
  }
  inventory_gpu_.store(sampler::kNoGpu, std::memory_order_relaxed);
  if (code == Code::success) {
    found.gpus.push_back(std::move(gpu));
    found.workers.push_back(std::move(worker));
    return;
  }
  problem.code = static_cast<int32_t>(code);
  problem.call = static_cast<uint32_t>(call);
  found.problems.push_back(problem);
}

void Sampler::look_at(nvml::NvmlCaller& nvml, uint32_t index) {
  const auto device = nvml.device(index);
  if (!device.ok()) return;
  const auto uuid = nvml.uuid(device.value);
  if (!uuid.ok()) return;
  auto gpu = std::make_unique<sampler::Gpu>();
  gpu->index = index;
  sampler::set_field(gpu->uuid, uuid.value);
  auto reading = std::make_unique<sampler::Reading>();
  reading->gpu = index;
  reading->taken_at = boot_nanoseconds();
  read_device(nvml, device.value, options_.roots, true, *reading);
  send(*gpu, sampler::Kind::gpu, 0, false);
  send(*reading, sampler::Kind::reading, 0, false,
       offsetof(sampler::Reading, processes) + reading->process_count * sizeof(sampler::Process));
}

void Sampler::describe_links(nvml::NvmlCaller& nvml, Found& found) {
  const auto add = [](sampler::Gpu& gpu, uint32_t peer, LinkKind kind) {
    gpu.links[gpu.link_count++] = {peer, static_cast<uint32_t>(kind)};
  };
  for (size_t i = 0; i < found.gpus.size(); ++i) {
    if (found.workers[i]->paused) continue;
    inventory_gpu_.store(found.gpus[i]->index, std::memory_order_relaxed);
    for (size_t j = 0; j < i; ++j) {
      if (found.workers[j]->paused) continue;
      const auto level = nvml.common_ancestor(found.workers[i]->device, found.workers[j]->device);
      const auto nvlink = nvml.joined_by_nvlink(found.workers[i]->device, found.workers[j]->device);
      const LinkKind kind = link_kind(level.known(), nvlink.ok() && nvlink.value);
      add(*found.gpus[i], found.gpus[j]->index, kind);
      add(*found.gpus[j], found.gpus[i]->index, kind);
    }
    inventory_gpu_.store(sampler::kNoGpu, std::memory_order_relaxed);
  }
}

void Sampler::send_inventory(sampler::Inventory& inventory, Found& found) {
  send(inventory, sampler::Kind::inventory, 0, false);
  for (const auto& gpu : found.gpus) send(*gpu, sampler::Kind::gpu, 0, false);
  for (sampler::MigDevice& instance : found.mig_devices) send(instance, sampler::Kind::mig_device, 0, false);
  for (sampler::GpuProblem& problem : found.problems) send(problem, sampler::Kind::gpu_problem, 0, false);
  struct End {
    sampler::Header header;
  } end;
  send(end, sampler::Kind::inventory_end, 0, false);
}

void Sampler::describe_mig(nvml::NvmlCaller& nvml, Found& found) {
  for (size_t i = 0; i < found.gpus.size(); ++i) {
    if (found.workers[i]->paused || found.gpus[i]->mig_enabled == 0) continue;
    inventory_gpu_.store(found.gpus[i]->index, std::memory_order_relaxed);
    for (const nvml::MigDevice& device : nvml.mig_devices(found.workers[i]->device).value) {
      sampler::MigDevice message;
      message.gpu = found.gpus[i]->index;
      message.gpu_instance = device.gpu_instance;
      message.compute_instance = device.compute_instance;
      message.multiprocessors = device.attributes.multiprocessors;
      message.gpu_instance_slices = device.attributes.gpu_instance_slices;
      message.compute_instance_slices = device.attributes.compute_instance_slices;
      message.memory_mib = device.attributes.memory_mib;
      sampler::set_field(message.uuid, device.uuid);
      found.mig_devices.push_back(message);
    }
    inventory_gpu_.store(sampler::kNoGpu, std::memory_order_relaxed);
  }
}

// Each GPU's own thread registers it, since that may not return. A driver without events is asked no more.
void Sampler::watch_xids() {
  nvml::NvmlCaller nvml(*library_, xids_in_flight_);
  while (true) {
    const auto event = nvml.wait_for_xid(xids_, kXidWaitMilliseconds);
    if (event.code == Code::timeout) continue;
    if (event.code == Code::function_not_found) return;
    if (!event.ok()) {  // also when one of the GPUs is lost: what others tell is wanted all the same
      std::this_thread::sleep_for(std::chrono::milliseconds(kXidWaitMilliseconds));
      continue;
    }
    const auto known = std::find_if(workers_.begin(), workers_.end(),
                                    [&](const auto& worker) { return worker->device == event.value.device; });
    if (known == workers_.end()) continue;
    sampler::Xid message;
    message.gpu = (*known)->gpu;
    message.code = event.value.code;
    message.seen_at = boot_nanoseconds();
    send(message, sampler::Kind::xid, 0, false);
  }
}

void Sampler::work(Worker& worker) {
  using SteadyClock = std::chrono::steady_clock;
  const auto period = std::chrono::nanoseconds(options_.period.count());
  nvml::NvmlCaller nvml(*library_, worker.in_flight);
  std::vector<uint64_t> checks;
  auto next = SteadyClock::now();
  while (true) {
    {
      std::unique_lock lock(worker.mutex);
      const auto wanted = [&] { return !worker.paused && !worker.checks.empty(); };
      while (!wanted() && (worker.paused || SteadyClock::now() < next)) {
        if (worker.paused) {
          worker.wake.wait(lock);
        } else {
          worker.wake.wait_until(lock, next);
        }
      }
      checks.clear();
      std::swap(checks, worker.checks);
    }
    if (xids_ != nullptr && !worker.told_of_xids) {
      worker.told_of_xids = nvml.register_xids(worker.device, xids_) != Code::gpu_is_lost;
    }
    // All who asked before this look are answered by it.
    const bool thorough = SteadyClock::now() >= next;
    read(worker, nvml, thorough);
    const size_t size =
        offsetof(sampler::Reading, processes) + worker.reading.process_count * sizeof(sampler::Process);
    for (const uint64_t id : checks) send(worker.reading, sampler::Kind::reading, id, false, size);
    if (thorough) {
      send(worker.reading, sampler::Kind::reading, 0, true, size);
      next = std::max(next + period, SteadyClock::now());
    }
  }
}

void Sampler::read(Worker& worker, nvml::NvmlCaller& nvml, bool thorough) {
  sampler::Reading& reading = worker.reading;
  std::memset(static_cast<void*>(&reading), 0, offsetof(sampler::Reading, processes));
  for (uint32_t i = 0; i < sampler::kProcessesMax && reading.processes[i].pid != 0; ++i)
    reading.processes[i] = {};
  reading.gpu = worker.gpu;
  reading.taken_at = boot_nanoseconds();
  read_device(nvml, worker.device, options_.roots, thorough, reading);
  for (uint32_t i = 0; i < reading.process_count; ++i) {
    if ((reading.processes[i].known & sampler::kKnownUser) != 0) names_.want(reading.processes[i].uid);
  }
}

}  // namespace tranche
