#include "emulator/program/verb_fault.h"

#include <signal.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <string_view>

#include "emulator/device_model.h"
#include "emulator/device_nodes.h"
#include "emulator/program/fault_list.h"
#include "emulator/program/fault_words.h"
#include "emulator/program/unkillable.h"
#include "emulator/xid.h"

namespace tranche::emulator {
namespace {

constexpr const char* kFaultyDevices = "/dev";

template <class Value>
using Names = std::array<std::pair<std::string_view, Value>, 4>;

constexpr Names<CheckpointStep> kCheckpointSteps{{{"locked", CheckpointStep::lock},
                                                  {"checkpointed", CheckpointStep::checkpoint},
                                                  {"restored", CheckpointStep::restore},
                                                  {"running", CheckpointStep::unlock}}};

Result<void> count_ecc_errors(SharedGpuFaults& faults, const FaultOrder& order) {
  TRY_ASSIGN(const uint64_t count, parse_fault_number(order.value, 1'000'000'000, "the number of errors"));
  for (auto& counter : faults.ecc[order.kind == "ecc-corrected" ? 0 : 1]) counter.fetch_add(count);
  return {};
}

Result<void> remap_row(DeviceModel& model, uint32_t gpu, const std::string& state) {
  constexpr uint32_t kRemapRecorded = 63, kRemapFailed = 64;
  SharedGpuFaults& faults = model.faults(gpu);
  if (state != "pending" && state != "failure") {
    return fail(ErrorCode::invalid_argument, "row-remap is pending or failure, not \"" + state + "\"");
  }
  faults.rows_uncorrected.fetch_add(1);
  (state == "pending" ? faults.rows_pending : faults.rows_failure).store(1);
  model.raise_xid(gpu, state == "pending" ? kRemapRecorded : kRemapFailed);
  return {};
}

Result<void> leave_memory(DeviceModel& model, uint32_t gpu, const FaultOrder& order) {
  if (order.value.empty()) {
    const Leaving leaving = order.kind == "ghost-process" ? Leaving::memory_and_name : Leaving::memory;
    model.faults(gpu).leaving.store(static_cast<uint32_t>(leaving));
    return {};
  }
  TRY_ASSIGN(const uint64_t bytes, parse_fault_bytes(order.value));
  const uint64_t added = model.add_ghost(gpu, bytes);
  if (added < bytes)
    std::fprintf(stderr, "tranche-emulator: GPU %u had only %llu MiB free; they are taken\n", gpu,
                 static_cast<unsigned long long>(added >> 20));
  return {};
}

Result<void> renumber(DeviceModel& model, uint32_t gpu, const std::string& value) {
  constexpr uint64_t kLastGpuMinor = 254;  // 255 is the control node
  TRY_ASSIGN(const uint64_t minor, parse_fault_number(value, kLastGpuMinor, "a minor number"));
  TRY(renumber_gpu_node(kFaultyDevices, model.identity(gpu).minor, static_cast<uint32_t>(minor)));
  model.set_minor(gpu, static_cast<uint32_t>(minor));
  return {};
}

uint64_t end_of_block(const FaultOrder& order) {
  return order.for_ns == kForEver ? kForEver : monotonic_now() + order.for_ns;
}

Result<void> break_gpu(DeviceModel& model, uint32_t gpu, const FaultOrder& order) {
  constexpr uint32_t kOffTheBus = 79;
  SharedGpuFaults& faults = model.faults(gpu);
  if (order.kind == "xid") {
    TRY_ASSIGN(const uint64_t code, parse_fault_number(order.value, kXidMax, "an XID"));
    if (code == 0) return fail(ErrorCode::invalid_argument, "XIDs begin at 1");
    if (order.pid > 0 && kill(order.pid, 0) != 0 && errno == ESRCH)
      return fail(ErrorCode::not_found, "there is no process " + std::to_string(order.pid));
    model.raise_xid(gpu, static_cast<uint32_t>(code), order.pid, order.gpu_instance);
  } else if (order.kind == "lost") {
    model.raise_xid(gpu, kOffTheBus);
  } else if (order.kind == "nvml-block") {
    model.block_nvml(faults.nvml, end_of_block(order));
  } else if (order.kind == "thermal") {
    model.throttle(
        gpu, order.software ? kReasonSoftwareThermal : kReasonHardwareSlowdown | kReasonHardwareThermal);
  } else if (order.kind == "power") {
    model.throttle(gpu, order.brake ? kReasonHardwareSlowdown | kReasonPowerBrake : kReasonPowerCap);
  } else if (order.kind == "ecc-corrected" || order.kind == "ecc-uncorrected") {
    return count_ecc_errors(faults, order);
  } else if (order.kind == "row-remap") {
    return remap_row(model, gpu, order.value);
  } else if (order.kind == "ghost-memory" || order.kind == "ghost-process") {
    return leave_memory(model, gpu, order);
  } else if (order.kind == "slow-copy") {
    TRY_ASSIGN(const uint64_t rate, parse_fault_bytes(order.value));
    if (rate == 0)
      return fail(ErrorCode::invalid_argument,
                  "copies need some speed, such as 50M; clear makes them quick again");
    faults.copy_bytes_per_second.store(rate);
  } else if (order.kind == "minor") {
    return renumber(model, gpu, order.value);
  }
  return {};
}

Result<void> break_server(DeviceModel& model, const FaultOrder& order) {
  SharedServerFaults& faults = model.server_faults();
  if (order.kind == "nvml-block") {
    model.block_nvml(faults.nvml, end_of_block(order));
  } else if (order.kind == "driver-mismatch") {
    faults.driver_mismatch.store(1);
  } else if (order.kind == "unkillable") {
    return make_unkillable(order.pid);
  } else if (order.kind == "no-uvm") {
    return remove_memory_nodes(kFaultyDevices);
  } else if (order.kind == "checkpoint") {
    const auto step = std::find_if(kCheckpointSteps.begin(), kCheckpointSteps.end(),
                                   [&](const auto& s) { return s.first == order.value; });
    if (step == kCheckpointSteps.end()) {
      return fail(ErrorCode::invalid_argument,
                  "checkpoint fails on the way to locked, checkpointed, restored "
                  "or running, not \"" +
                      order.value + "\"");
    }
    faults.checkpoint_failure.store(static_cast<uint32_t>(step->second));
  }
  return {};
}

// Back to the numbers that start gave, which are the indices. One may have the number of another.
Result<void> restore_minors(DeviceModel& model, const std::vector<uint32_t>& gpus) {
  std::vector<uint32_t> left;
  for (const uint32_t gpu : gpus) {
    if (model.identity(gpu).minor != gpu) left.push_back(gpu);
  }
  while (!left.empty()) {
    std::vector<uint32_t> taken;
    for (const uint32_t gpu : left) {
      if (renumber_gpu_node(kFaultyDevices, model.identity(gpu).minor, gpu))
        model.set_minor(gpu, gpu);
      else
        taken.push_back(gpu);
    }
    if (taken.size() == 1 && left.size() == 1)
      return fail(ErrorCode::conflict, "the node /dev/nvidia" + std::to_string(taken.front()) +
                                           " is another GPU's now; clear that one too");
    if (taken.size() == left.size()) {  // each has another's number: one steps aside
      constexpr uint32_t kAside = 254;
      TRY(renumber_gpu_node(kFaultyDevices, model.identity(taken.front()).minor, kAside));
      model.set_minor(taken.front(), kAside);
    }
    left = taken;
  }
  return {};
}

Result<void> clear(DeviceModel& model, std::vector<uint32_t> gpus) {
  const bool all = gpus.empty();
  for (uint32_t gpu = 0; all && gpu < model.gpu_count(); ++gpu) gpus.push_back(gpu);
  for (const uint32_t gpu : gpus) model.clear_faults(gpu);
  TRY(restore_minors(model, gpus));
  if (!all) return {};
  model.clear_server_faults();
  release_unkillable();
  const bool has_memory_nodes = open_node(memory_node()) >= 0;  // this program is about to end
  return has_memory_nodes ? Result<void>() : restore_memory_nodes(kFaultyDevices);
}

}  // namespace

Result<void> run_fault(const std::vector<std::string>& words) {
  TRY_ASSIGN(const FaultOrder order, parse_fault(words));
  auto model = DeviceModel::attach(default_state_directory());
  if (!model) {
    return fail(ErrorCode::not_found, "there is no emulated server here (" + model.error().message() +
                                          "); make one with tranche-emulator start");
  }
  for (const uint32_t gpu : order.gpus) {
    if (gpu < (*model)->gpu_count()) continue;
    return fail(ErrorCode::not_found, "the server has no GPU " + std::to_string(gpu));
  }
  if (order.kind == "list") {
    std::fputs((order.json ? fault_list_json(**model) : fault_list_text(**model)).c_str(), stdout);
    return {};
  }
  if (order.kind == "clear") return clear(**model, order.gpus);
  for (const uint32_t gpu : order.gpus) TRY(break_gpu(**model, gpu, order));
  return order.gpus.empty() ? break_server(**model, order) : Result<void>();
}

}  // namespace tranche::emulator
