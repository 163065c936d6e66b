#include "emulator/nvml/session.h"

#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <mutex>

#include "emulator/device_nodes.h"

namespace tranche::emulator::nvml {

// One object a GPU of the server, so that a handle can be checked and stays the same over re-initialisation.
struct Device {
  char unused;
};

namespace {

std::array<Device, kMaxGpus> g_devices;

std::mutex g_mutex;
std::shared_ptr<Session> g_session;
uint64_t g_uses = 0;

// The server last attached to. It is kept mapped after the last shutdown: detaching and attaching again
// would cost a file descriptor each time (DeviceModel keeps its lock file open).
struct Attachment {
  std::shared_ptr<DeviceModel> model;
  dev_t device = 0;
  ino_t file = 0;
};
Attachment g_attachment;

// The model of the server that stands now: an earlier attachment when it is still that one.
std::shared_ptr<DeviceModel> attached_model() {
  const std::string directory = default_state_directory();
  struct stat status;
  if (stat((directory + "/device_model").c_str(), &status) != 0) return nullptr;
  if (g_attachment.model != nullptr && g_attachment.device == status.st_dev &&
      g_attachment.file == status.st_ino) {
    return g_attachment.model;
  }
  Result<std::unique_ptr<DeviceModel>> model = DeviceModel::attach(directory);
  if (!model) return nullptr;
  g_attachment = {std::shared_ptr<DeviceModel>(std::move(*model)), status.st_dev, status.st_ino};
  return g_attachment.model;
}

// Opens a node, patiently while its loop device is going away: another emulated server that ended has told
// the kernel to forget the device, and for some 60 ms opening it answers ENXIO before it is made anew.
int open_patiently(const DeviceNode& node) {
  constexpr int kTries = 500;
  constexpr timespec kPause{.tv_sec = 0, .tv_nsec = 2'000'000};
  int opened = open_node(node);
  for (int i = 0; i < kTries && opened < 0 && errno == ENXIO; ++i) {
    struct stat status;
    if (stat(("/dev/" + node.name).c_str(), &status) != 0 || !S_ISBLK(status.st_mode)) {
      errno = ENXIO;
      break;
    }
    nanosleep(&kPause, nullptr);
    opened = open_node(node);
  }
  return opened;
}

// What the driver's library answers when it cannot open the control node.
Return why_no_control_node(int error) {
  switch (error) {
    case ENOENT:
    case ENXIO:
    case ENODEV:
      return Return::driver_not_loaded;
    case EACCES:
      return Return::no_permission;
    default:
      return Return::unknown;  // a device filter's EPERM reads "Unknown Error" on real servers too
  }
}

}  // namespace

Session::Session(std::shared_ptr<DeviceModel> model) : model_(std::move(model)) {}

Session::~Session() {
  for (const int node : gpu_nodes_) {
    if (node >= 0) close(node);
  }
  if (control_node_ >= 0) close(control_node_);
}

Return Session::open(std::shared_ptr<Session>& session) {
  std::shared_ptr<DeviceModel> model = attached_model();
  if (model == nullptr) return Return::driver_not_loaded;
  model->wait_while_nvml_blocked();
  if (model->server_faults().driver_mismatch.load() != 0) return Return::lib_rm_version_mismatch;
  std::shared_ptr<Session> opened(new Session(std::move(model)));
  opened->control_node_ = open_patiently(control_node());
  if (opened->control_node_ < 0) return why_no_control_node(errno);
  for (uint32_t gpu = 0; gpu < opened->model_->gpu_count(); ++gpu) {
    const int node = open_patiently(gpu_node(opened->model_->identity(gpu).minor));
    if (node < 0) continue;
    close(node);
    opened->visible_.push_back(gpu);
  }
  opened->gpu_nodes_.resize(opened->visible_.size(), -1);
  session = std::move(opened);
  return Return::success;
}

Device* device_of_gpu(uint32_t gpu) { return &g_devices[gpu % kMaxGpus]; }
Device* Session::handle(uint32_t index) const {
  const std::lock_guard lock(mutex_);
  if (gpu_nodes_[index] < 0) gpu_nodes_[index] = open_node(gpu_node(model_->identity(visible_[index]).minor));
  return &g_devices[visible_[index]];
}

std::optional<uint32_t> Session::index_of(const Device* device) const {
  for (uint32_t index = 0; index < visible_.size(); ++index) {
    if (device == &g_devices[visible_[index]]) return index;
  }
  return std::nullopt;
}

Return begin_session(uint32_t flags) {
  if ((flags & ~(kInitNoGpus | kInitNoAttach)) != 0) return Return::invalid_argument;
  const std::lock_guard lock(g_mutex);
  if (g_session == nullptr) {
    const Return opened = Session::open(g_session);
    if (opened != Return::success) return opened;
  }
  ++g_uses;
  return Return::success;
}

Return end_session() {
  const std::lock_guard lock(g_mutex);
  if (g_uses == 0) return Return::uninitialized;
  if (--g_uses == 0) g_session = nullptr;
  return Return::success;
}

std::shared_ptr<Session> current_session() {
  const std::lock_guard lock(g_mutex);
  return g_session;
}

}  // namespace tranche::emulator::nvml
