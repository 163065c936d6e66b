#include "emulator/program/standing_server.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <set>

#include "emulator/device_model.h"
#include "emulator/device_nodes.h"
#include "emulator/former_bytes.h"
#include "emulator/program/libraries.h"

namespace tranche::emulator {
namespace {

constexpr const char* kDeviceDirectory = "/dev";

Result<void> refuse_beside_real_driver() {
  if (!has_real_driver(kDeviceDirectory) && access("/proc/driver/nvidia", F_OK) != 0) return {};
  return fail(ErrorCode::conflict,
              "this machine has a real NVIDIA driver, and emulated GPUs never stand beside real ones; use"
              " tranche-emulator run, which keeps them apart");
}

Result<void> make_directory(const std::string& path) {
  if (mkdir(path.c_str(), 0755) == 0 || errno == EEXIST) return {};
  return fail(ErrorCode::denied, "cannot make " + path + ": " + std::strerror(errno) +
                                     "; a server for the machine needs root, tranche-emulator run does not");
}

void remove_files(const std::string& directory) {
  remove_libraries(directory + "/lib");
  rmdir((directory + "/lib").c_str());
  for (const char* name : {"device_model", "device_model.new", "processes"}) {
    unlink((directory + "/" + name).c_str());
  }
  remove_former_bytes(directory);
  rmdir(directory.c_str());
}

Result<void> build(const std::string& directory, const ServerDescription& server) {
  TRY(make_directory(directory));
  TRY(make_directory(directory + "/lib"));
  TRY(install_libraries(directory + "/lib", server.driver_version));
  TRY_ASSIGN(const auto model, DeviceModel::create(directory, server));
  TRY(make_former_bytes(directory, model->gpu_count()));
  return make_nodes(kDeviceDirectory, model->gpu_count(), 0);
}

std::string processes_in_use(DeviceModel& model) {
  std::set<int32_t> pids;
  for (uint32_t gpu = 0; gpu < model.gpu_count(); ++gpu) {
    for (const ProcessReading& process : model.processes(gpu)) pids.insert(process.pid);
  }
  std::string text;
  for (const int32_t pid : pids) text.append(text.empty() ? "" : ", ").append(std::to_string(pid));
  return text;
}

}  // namespace

Result<std::string> start_server(const ServerDescription& server) {
  TRY(refuse_beside_real_driver());
  const std::string directory = default_state_directory();
  if (DeviceModel::attach(directory)) {
    return fail(ErrorCode::conflict,
                "an emulated server stands already in " + directory + "; run tranche-emulator stop first");
  }
  if (has_emulated_nodes(kDeviceDirectory)) {
    return fail(
        ErrorCode::conflict,
        "another emulated server has its nodes in /dev; stop that one first (TRANCHE_EMULATOR names its "
        "folder), or remove what is left of it with tranche-emulator stop --force");
  }
  Result<void> built = build(directory, server);
  if (!built) {
    static_cast<void>(remove_nodes(kDeviceDirectory));
    remove_files(directory);
    return fail(std::move(built).error());
  }
  return directory + "/lib";
}

Result<void> stop_server(bool force) {
  TRY(refuse_beside_real_driver());
  const std::string directory = default_state_directory();
  const bool exists = access((directory + "/device_model").c_str(), F_OK) == 0;
  if (!exists && !force) {
    return fail(ErrorCode::not_found, "there is no emulated server in " + directory + "; nothing to stop");
  }
  if (!force) {
    if (auto model = DeviceModel::attach(directory)) {
      const std::string pids = processes_in_use(**model);
      if (!pids.empty()) {
        return fail(ErrorCode::conflict,
                    "processes use the emulated GPUs (" + pids + "); end them first, or use --force");
      }
    }
  }
  TRY(remove_nodes(kDeviceDirectory));
  remove_files(directory);
  if (access(directory.c_str(), F_OK) == 0 && access((directory + "/device_model").c_str(), F_OK) == 0) {
    return fail(ErrorCode::denied, "cannot remove " + directory + "; run stop as root");
  }
  return {};
}

}  // namespace tranche::emulator
