#include "emulator/device_model.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "base/random.h"
#include "emulator/robust_lock.h"

namespace tranche::emulator {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr mode_t kEveryone = 0666;

std::string model_path(const std::string& directory) { return directory + "/device_model"; }
std::string processes_path(const std::string& directory) { return directory + "/processes"; }

Error system_error(const std::string& what, const std::string& path) {
  const int number = errno;
  const ErrorCode code = number == EACCES ? ErrorCode::denied : ErrorCode::unavailable;
  return Error(code, "cannot " + what + " " + path + ": " + std::strerror(number));
}

template <size_t Size>
void copy_text(std::array<char, Size>& to, std::string_view from) {
  const size_t length = from.copy(to.data(), Size - 1);
  to[length] = '\0';
}

// FNV-1a: a seed from a name.
uint64_t seed_of(std::string_view name, uint32_t gpu, std::string_view board) {
  uint64_t hash = 0xCBF29CE484222325;
  const auto mix = [&hash](uint8_t byte) { hash = (hash ^ byte) * 0x100000001B3; };
  for (char c : name) mix(static_cast<uint8_t>(c));
  mix(0);
  mix(static_cast<uint8_t>(gpu));
  for (char c : board) mix(static_cast<uint8_t>(c));
  return hash;
}

void name_gpu(GpuIdentity& identity, std::string_view server, uint32_t gpu, const Board& board) {
  Random random(seed_of(server, gpu, board.key));
  for (size_t word = 0; word < 2; ++word) {
    const uint64_t bits = random.next();
    std::memcpy(identity.uuid.data() + 8 * word, &bits, sizeof bits);
  }
  identity.uuid[6] = static_cast<uint8_t>((identity.uuid[6] & 0x0F) | 0x40);  // RFC 9562 version 4
  identity.uuid[8] = static_cast<uint8_t>((identity.uuid[8] & 0x3F) | 0x80);
  std::string text = "GPU-";
  for (size_t i = 0; i < identity.uuid.size(); ++i) {
    std::array<char, 3> hex;
    std::snprintf(hex.data(), hex.size(), "%02x", static_cast<unsigned>(identity.uuid[i]));
    text.append(hex.data());
    if (i == 3 || i == 5 || i == 7 || i == 9) text.push_back('-');
  }
  copy_text(identity.uuid_text, text);
  copy_text(identity.serial, std::to_string(1'320'000'000'000 + random.below(99'999'999'999)));
}

void describe_gpu(SharedGpu& gpu, const ServerDescription& description, uint32_t index) {
  GpuIdentity& identity = gpu.identity;
  identity.board = description.gpus[index];
  const Board& board = boards()[identity.board];
  name_gpu(identity, description.name, index, board);
  identity.minor = index;
  identity.pci_bus = 3 + 3 * index;  // ascending, so that index order is PCI bus order
  identity.memory_bytes = board.memory_mib * kMiB;
  identity.reserve_bytes = board.reserve_mib * kMiB;
  gpu.timeline.now = monotonic_now();
  const auto& mps = description.mps_gpus;
  const bool is_mps = description.mps_everywhere || std::find(mps.begin(), mps.end(), index) != mps.end();
  gpu.timeline.sharing = is_mps ? Sharing::side_by_side : Sharing::slices;
  initialise_robust_mutex(gpu.lock);
}

int64_t wall_now() {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return now.tv_sec * int64_t{1'000'000'000} + now.tv_nsec;
}

void describe_server(SharedState& state, const ServerDescription& description) {
  state.version = kStateVersion;
  state.bytes = sizeof(SharedState);
  state.gpu_count = static_cast<uint32_t>(description.gpus.size());
  copy_text(state.server_name, description.name);
  copy_text(state.driver_version, description.driver_version);
  state.cuda_version = cuda_version_of_driver(description.driver_version);
  state.guest = description.guest;
  state.is_licensed = description.is_licensed ? 1 : 0;
  state.created_wall_ns = wall_now();
  state.created_ns = monotonic_now();
  initialise_robust_mutex(state.table_lock);
  initialise_robust_mutex(state.lock_step.lock);
  for (uint32_t gpu = 0; gpu < state.gpu_count; ++gpu) describe_gpu(state.gpus[gpu], description, gpu);
  std::atomic_thread_fence(std::memory_order_release);
  state.magic = kStateMagic;
}

// A new file under a temporary name, of mode 0666 whatever the umask says.
Result<int> make_file(const std::string& path, off_t bytes) {
  const int file = open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, kEveryone);
  if (file < 0) return fail(system_error("create", path));
  if (fchmod(file, kEveryone) != 0 || ftruncate(file, bytes) != 0) {
    Error error = system_error("prepare", path);
    close(file);
    unlink(path.c_str());
    return fail(std::move(error));
  }
  return file;
}

Result<void> check_layout(const SharedState& state, const std::string& directory) {
  if (state.magic == kStateMagic && state.version == kStateVersion && state.bytes == sizeof(SharedState) &&
      state.gpu_count >= 1 && state.gpu_count <= kMaxGpus) {
    return {};
  }
  return fail(ErrorCode::corrupt, model_path(directory) +
                                      " was made by another version of the emulator; run tranche-emulator"
                                      " stop and start again");
}

}  // namespace

uint64_t monotonic_now() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

uint64_t DeviceModel::now() const {
  const SharedLockStep& step = state_->lock_step;
  return step.is_on.load(std::memory_order_acquire) != 0 ? step.now_ns.load() : monotonic_now();
}

std::string default_state_directory() {
  const char* chosen = std::getenv("TRANCHE_EMULATOR");
  return chosen != nullptr && *chosen != '\0' ? chosen : "/run/tranche-emulator";
}

DeviceModel::DeviceModel(std::string directory, SharedState* state)
    : directory_(std::move(directory)), state_(state), gpu_count_(state->gpu_count), lock_file_(-1) {
  own_limits_.fill(UINT64_MAX);
}

DeviceModel::~DeviceModel() { munmap(state_, sizeof(SharedState)); }

Result<std::unique_ptr<DeviceModel>> DeviceModel::map(const std::string& directory, int state_file) {
  struct stat status;
  if (fstat(state_file, &status) != 0 || static_cast<size_t>(status.st_size) != sizeof(SharedState)) {
    return fail(ErrorCode::corrupt, model_path(directory) +
                                        " was made by another version of the emulator; run"
                                        " tranche-emulator stop and start again");
  }
  void* memory = mmap(nullptr, sizeof(SharedState), PROT_READ | PROT_WRITE, MAP_SHARED, state_file, 0);
  if (memory == MAP_FAILED) return fail(system_error("map", model_path(directory)));
  return std::unique_ptr<DeviceModel>(new DeviceModel(directory, static_cast<SharedState*>(memory)));
}

Result<std::unique_ptr<DeviceModel>> DeviceModel::create(const std::string& directory,
                                                         const ServerDescription& description) {
  if (description.gpus.empty() || description.gpus.size() > kMaxGpus) {
    return fail(ErrorCode::invalid_argument, "an emulated server has 1 to 64 GPUs");
  }
  for (const uint32_t gpu : description.mps_gpus) {
    if (gpu < description.gpus.size()) continue;
    return fail(ErrorCode::invalid_argument, "the server has no GPU " + std::to_string(gpu) +
                                                 " to be shared under MPS; GPUs are numbered from 0");
  }
  const std::string temporary = model_path(directory) + ".new";
  unlink(temporary.c_str());
  TRY_ASSIGN(const int file, make_file(temporary, sizeof(SharedState)));
  void* memory = mmap(nullptr, sizeof(SharedState), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (memory == MAP_FAILED) return fail(system_error("map", temporary));
  describe_server(*static_cast<SharedState*>(memory), description);
  munmap(memory, sizeof(SharedState));

  unlink(processes_path(directory).c_str());
  TRY_ASSIGN(const int processes, make_file(processes_path(directory), 0));
  close(processes);
  if (rename(temporary.c_str(), model_path(directory).c_str()) != 0) {
    return fail(system_error("create", model_path(directory)));
  }
  return attach(directory);
}

Result<std::unique_ptr<DeviceModel>> DeviceModel::attach(const std::string& directory) {
  const int file = open(model_path(directory).c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) return fail(system_error("open", model_path(directory)));
  auto model = map(directory, file);
  close(file);
  if (!model) return model;
  TRY(check_layout(*(*model)->state_, directory));
  (*model)->lock_file_ = open(processes_path(directory).c_str(), O_RDWR | O_CLOEXEC);
  if ((*model)->lock_file_ < 0) return fail(system_error("open", processes_path(directory)));
  return model;
}

const Board& DeviceModel::board(uint32_t gpu) const {
  return boards()[identity(gpu).board % boards().size()];
}

uint64_t DeviceModel::usable_bytes(uint32_t gpu) const {
  return identity(gpu).memory_bytes - identity(gpu).reserve_bytes;
}

const DriverLevel& DeviceModel::level() const { return driver_level(driver_version()); }

std::string DeviceModel::driver_version() const {
  return std::string(state_->driver_version.data(),
                     strnlen(state_->driver_version.data(), state_->driver_version.size()));
}

std::string DeviceModel::server_name() const {
  return std::string(state_->server_name.data(),
                     strnlen(state_->server_name.data(), state_->server_name.size()));
}

}  // namespace tranche::emulator
