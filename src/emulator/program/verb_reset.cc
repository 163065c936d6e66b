#include "emulator/program/verb_reset.h"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <memory>
#include <optional>

#include "emulator/device_model.h"
#include "emulator/device_nodes.h"
#include "emulator/mig_nodes.h"
#include "emulator/program/fault_words.h"

namespace tranche::emulator {
namespace {

using Folder = std::unique_ptr<DIR, int (*)(DIR*)>;
Folder open_folder(const std::string& path) { return {opendir(path.c_str()), closedir}; }

bool has_open(const std::string& process, dev_t node) {
  const std::string path = "/proc/" + process + "/fd";
  const Folder files = open_folder(path);
  if (files == nullptr) return false;  // it has ended
  while (const dirent* entry = readdir(files.get())) {
    struct stat status;
    if (stat((path + "/" + entry->d_name).c_str(), &status) != 0) continue;
    if (S_ISBLK(status.st_mode) && status.st_rdev == node) return true;
  }
  return false;
}

// A process that has the GPU's node open, as "4711 (python3)".
std::optional<std::string> holder_of(const DeviceNode& node) {
  struct stat status;
  if (stat(("/dev/" + node.name).c_str(), &status) != 0) return std::nullopt;
  const Folder processes = open_folder("/proc");
  if (processes == nullptr) return std::nullopt;
  while (const dirent* entry = readdir(processes.get())) {
    const std::string pid = entry->d_name;
    const bool is_process =
        std::all_of(pid.begin(), pid.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
    if (!is_process || !has_open(pid, status.st_rdev)) continue;
    std::string program(256, '\0');
    const ssize_t length = readlink(("/proc/" + pid + "/exe").c_str(), program.data(), program.size());
    program.resize(length < 0 ? 0 : static_cast<size_t>(length));
    return pid + " (" + program.substr(program.rfind('/') + 1) + ")";
  }
  return std::nullopt;
}

}  // namespace

Result<void> run_reset(const std::vector<std::string>& words) {
  if (words.size() != 2 || words[0] != "--gpu") {
    return fail(ErrorCode::invalid_argument, "say which GPU: tranche-emulator reset --gpu N");
  }
  TRY_ASSIGN(const uint64_t gpu, parse_fault_number(words[1], kMaxGpus - 1, "--gpu"));
  TRY_ASSIGN(const auto model, DeviceModel::attach(default_state_directory()));
  if (gpu >= model->gpu_count()) {
    return fail(ErrorCode::not_found, "there is no GPU " + words[1] + "; see tranche-emulator status");
  }
  const auto number = static_cast<uint32_t>(gpu);
  const auto holder = holder_of(gpu_node(model->identity(number).minor));
  if (holder || model->reset_gpu(number) == MigResult::in_use) {
    return fail(ErrorCode::conflict, "GPU " + words[1] + " is in use by process " +
                                         holder.value_or("of another namespace") + "; end it first");
  }
  model->repair_by_reset(number);
  return refresh_mig_nodes(*model, "/dev");
}

}  // namespace tranche::emulator
