#include "emulator/program/fault_list.h"

#include <unistd.h>

#include <optional>
#include <vector>

#include "emulator/device_nodes.h"
#include "emulator/program/unkillable.h"

namespace tranche::emulator {
namespace {

// One thing that is wrong: with a GPU, or with the server.
struct Row {
  std::optional<uint32_t> gpu;
  std::string kind, detail;
};

std::string block_text(const SharedBlock& block) {
  const uint64_t until = block.until_ns.load();
  if (until == kForEver) return "for ever";
  return "for " + std::to_string((until - monotonic_now()) / 1'000'000'000) + " s more";
}

bool blocks(const SharedBlock& block) {
  const uint64_t until = block.until_ns.load();
  return until != 0 && (until == kForEver || until > monotonic_now());
}

void list_gpu(DeviceModel& model, uint32_t gpu, std::vector<Row>& rows) {
  const SharedGpuFaults& faults = model.faults(gpu);
  const auto add = [&](const char* kind, std::string detail) {
    rows.push_back({gpu, kind, std::move(detail)});
  };
  const auto number = [](uint64_t value) { return std::to_string(value); };
  if (faults.lost.load() != 0) add("lost", "fallen off the bus");
  if (faults.lost.load() == 0 && faults.recovery.load() != 0) add("reset", "no context until it is reset");
  if (blocks(faults.nvml)) add("nvml-block", block_text(faults.nvml));
  const uint64_t reasons = faults.throttle_reasons.load();
  if (reasons != 0) {
    add((reasons & (kReasonPowerCap | kReasonPowerBrake)) != 0 ? "power" : "thermal",
        "clocks event reasons " + number(reasons));
  }
  for (const size_t type : {size_t{0}, size_t{1}}) {
    const uint64_t errors = faults.ecc[type][1].load();
    if (errors != 0) add(type == 0 ? "ecc-corrected" : "ecc-uncorrected", number(errors));
  }
  if (faults.rows_pending.load() != 0) add("row-remap", "pending");
  if (faults.rows_failure.load() != 0) add("row-remap", "failure");
  if (faults.ghost_bytes.load() != 0) {
    const int32_t pid = faults.ghost_pid.load();
    add(pid != 0 ? "ghost-process" : "ghost-memory",
        number(faults.ghost_bytes.load()) + " bytes" +
            (pid != 0 ? " of process " + std::to_string(pid) : ""));
  }
  if (faults.leaving.load() != 0) {
    add(static_cast<Leaving>(faults.leaving.load()) == Leaving::memory ? "ghost-memory" : "ghost-process",
        "of the next process that ends");
  }
  if (faults.copy_bytes_per_second.load() != 0) {
    add("slow-copy", number(faults.copy_bytes_per_second.load()) + " bytes a second");
  }
  if (model.identity(gpu).minor != gpu) add("minor", number(model.identity(gpu).minor));
}

std::vector<Row> list(DeviceModel& model) {
  std::vector<Row> rows;
  const SharedServerFaults& faults = model.server_faults();
  if (faults.driver_mismatch.load() != 0)
    rows.push_back({{}, "driver-mismatch", "new processes find no driver"});
  if (blocks(faults.nvml)) rows.push_back({{}, "nvml-block", block_text(faults.nvml)});
  if (faults.checkpoint_failure.load() != 0) {
    constexpr const char* kSteps[] = {"", "locked", "checkpointed", "restored", "running"};
    rows.push_back({{}, "checkpoint", kSteps[faults.checkpoint_failure.load() % 5]});
  }
  if (access(("/dev/" + memory_node().name).c_str(), F_OK) != 0) {
    rows.push_back({{}, "no-uvm", "/dev/nvidia-uvm is gone"});
  }
  for (const int32_t pid : unkillable_processes()) {
    rows.push_back({{}, "unkillable", "process " + std::to_string(pid)});
  }
  for (uint32_t gpu = 0; gpu < model.gpu_count(); ++gpu) list_gpu(model, gpu, rows);
  return rows;
}

}  // namespace

std::string fault_list_text(DeviceModel& model) {
  std::string text;
  for (const Row& row : list(model)) {
    text += (row.gpu ? "GPU " + std::to_string(*row.gpu) : std::string("server")) + "  " + row.kind + "  " +
            row.detail + "\n";
  }
  const uint32_t xids = model.xid_count();
  for (uint32_t number = xids > kXidsKept ? xids - kXidsKept : 0; number < xids; ++number) {
    XidRecord xid;
    if (!model.xid(number, xid)) continue;
    text += "GPU " + std::to_string(xid.gpu) + "  xid  " + std::to_string(xid.code) +
            (xid.pid != 0 ? " of process " + std::to_string(xid.pid) : "") + ", " +
            std::to_string((monotonic_now() - xid.time_ns) / 1'000'000'000) + " s ago\n";
  }
  return text.empty() ? "nothing is wrong\n" : text;
}

std::string fault_list_json(DeviceModel& model) {
  std::string text = "{\"faults\": [";
  const char* separator = "";
  for (const Row& row : list(model)) {
    text += separator;
    text += "{";
    if (row.gpu) text += "\"gpu\": " + std::to_string(*row.gpu) + ", ";
    text += "\"kind\": \"" + row.kind + "\", \"detail\": \"" + row.detail + "\"}";
    separator = ", ";
  }
  return text + "], \"xids\": " + std::to_string(model.xid_count()) + "}\n";
}

}  // namespace tranche::emulator
