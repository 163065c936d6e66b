// Accounting: what each process had of a GPU over its whole life, kept for a while after its end.
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "emulator/nvml/nvml_call.h"

namespace tranche::emulator::nvml {
namespace {

constexpr uint64_t kNsPerMs = 1'000'000;

bool is_on(const Gpu& gpu) { return gpu.model.settings(gpu.number).accounting.load() != 0; }

uint32_t percent_of(const AccountReading& account) {
  const uint64_t span = account.ended_ns - std::min(account.came_ns, account.ended_ns);
  return span == 0 ? 0 : static_cast<uint32_t>(std::min<uint64_t>(100, account.busy_ns * 100 / span));
}

// A running process has no time yet, as NVML documents.
uint64_t time_ms(const AccountReading& account) {
  return account.is_running ? 0 : (account.ended_ns - account.came_ns) / kNsPerMs;
}

// body(account) for the newest account of that pid.
template <class Body>
Return with_account(Device* device, uint32_t pid, bool has_answer, Body body) {
  return with_gpu(device, [&](const Gpu& gpu) {
    if (!has_answer) return Return::invalid_argument;
    if (!is_on(gpu)) return Return::not_supported;
    for (const AccountReading& account : gpu.model.accounts(gpu.number)) {
      if (account.pid == static_cast<int32_t>(pid)) return body(gpu, account);
    }
    return Return::not_found;
  });
}

}  // namespace

NVML_EXPORT Return nvmlDeviceGetAccountingMode(Device* device, uint32_t* mode) {
  return answer_one(device, mode, [](const Gpu& gpu, uint32_t& answer) {
    answer = is_on(gpu) ? kEnabled : kDisabled;
    return Return::success;
  });
}

NVML_EXPORT Return nvmlDeviceSetAccountingMode(Device* device, uint32_t mode) {
  return with_gpu(device, [&](const Gpu& gpu) {
    if (geteuid() != 0) return Return::no_permission;
    if (mode > kEnabled) return Return::invalid_argument;
    gpu.model.set_accounting(gpu.number, mode == kEnabled);
    return Return::success;
  });
}

NVML_EXPORT Return nvmlDeviceClearAccountingPids(Device* device) {
  return with_gpu(device, [](const Gpu& gpu) {
    if (geteuid() != 0) return Return::no_permission;
    if (!is_on(gpu)) return Return::not_supported;
    gpu.model.clear_accounting(gpu.number);
    return Return::success;
  });
}

NVML_EXPORT Return nvmlDeviceGetAccountingBufferSize(Device* device, uint32_t* size) {
  return answer_one(device, size, [](const Gpu&, uint32_t& answer) {
    answer = kEndedProcessesKept;
    return Return::success;
  });
}

NVML_EXPORT Return nvmlDeviceGetAccountingPids(Device* device, uint32_t* count, uint32_t* pids) {
  return with_gpu(device, [&](const Gpu& gpu) {
    if (!is_on(gpu)) return Return::not_supported;
    const std::vector<AccountReading> accounts = gpu.model.accounts(gpu.number);
    return copy_list(count, pids, static_cast<uint32_t>(accounts.size()),
                     [&](uint32_t i) { return static_cast<uint32_t>(accounts[i].pid); });
  });
}

NVML_EXPORT Return nvmlDeviceGetAccountingStats(Device* device, uint32_t pid, AccountingStats* stats) {
  return with_account(device, pid, stats != nullptr, [&](const Gpu& gpu, const AccountReading& account) {
    *stats = {.gpu_percent = percent_of(account),
              .memory_percent = percent_of(account) * 2 / 5,
              .peak_bytes = account.peak_bytes,
              .time_ms = time_ms(account),
              .start_us = wall_us(gpu.model, account.came_ns),
              .is_running = account.is_running ? 1u : 0u,
              .reserved = {}};
    return Return::success;
  });
}

// Sums of percentages over samples; the emulator's samples are its sample periods.
NVML_EXPORT Return nvmlDeviceGetAccountingStats_v2(Device* device, AccountingStatsV2* stats) {
  const uint32_t pid = stats == nullptr ? 0 : stats->pid;
  return with_account(device, pid, stats != nullptr, [&](const Gpu& gpu, const AccountReading& account) {
    const uint64_t samples = (account.ended_ns - account.came_ns) / kSamplePeriodNs;
    const uint64_t percent = percent_of(account);
    *stats = {.pid = pid,
              .is_running = account.is_running ? 1u : 0u,
              .gpu_percent = static_cast<uint32_t>(percent),
              .memory_percent = static_cast<uint32_t>(percent * 2 / 5),
              .peak_bytes = account.peak_bytes,
              .sample_count = static_cast<uint32_t>(samples),
              .sum_gpu_percent = samples * percent,
              .sum_memory_percent = samples * (percent * 2 / 5),
              .time_ms = time_ms(account),
              .start_us = wall_us(gpu.model, account.came_ns)};
    return Return::success;
  });
}

}  // namespace tranche::emulator::nvml
