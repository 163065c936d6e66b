// What observers see: readings of a GPU and of the processes on it.
//
// Formulas, all chosen: power = idle + 0.85 x (limit - idle) x utilisation over the last second; energy is
// its integral; temperature goes linearly from idle to busy with the utilisation of the last ten seconds;
// memory utilisation is 40 % of utilisation; clocks are at their maximum while any context exists.

#include <algorithm>

#include "emulator/clocks.h"
#include "emulator/gpu_lock.h"

namespace tranche::emulator {
namespace {

constexpr uint64_t kPeriodsForPower = 6;
constexpr uint64_t kPeriodsForTemperature = 60;
constexpr uint64_t kBusyPowerPercent = 85;

uint32_t percent_of(uint64_t busy_ns, uint64_t span_ns) {
  return static_cast<uint32_t>(std::min<uint64_t>(100, (busy_ns * 100 + span_ns / 2) / span_ns));
}

// The newest sample period that is over at `now`.
uint64_t complete_period(uint64_t now) { return now / kSamplePeriodNs - 1; }

// `busy_in(period)`: busy time of the GPU in a sample period.
template <class BusyIn>
uint32_t average_percent(BusyIn busy_in, uint64_t newest, uint64_t periods) {
  uint64_t busy = 0;
  for (uint64_t i = 0; i < periods; ++i) busy += busy_in(newest - i);
  return percent_of(busy, periods * kSamplePeriodNs);
}

uint32_t power_at(const Board& board, uint64_t span_mw, uint32_t percent) {
  return board.power_idle_mw + static_cast<uint32_t>(span_mw * percent / 100);
}

// What a throttled board shows: the clock that is left, a core at its slowdown temperature, power at its
// limit.
void show_throttling(const Board& board, uint64_t reasons, GpuReading& reading) {
  reading.throttle_reasons = reasons;
  if (reasons == 0) return;
  reading.clock_mhz = throttled_clock(board, reasons, reading.clock_mhz);
  if ((reasons & (kReasonHardwareThermal | kReasonSoftwareThermal)) != 0) {
    reading.temperature = board.temperature_slowdown;
  }
  if ((reasons & kReasonPowerCap) != 0) reading.power_milliwatts = board.power_limit_mw;
}

template <class BusyIn>
void read_sensors(const Board& board, const SharedGpu& gpu, BusyIn busy_in, uint64_t created_ns,
                  GpuReading& reading) {
  const bool in_use = reading.used_bytes > 0;
  const uint64_t now = gpu.timeline.now, period = complete_period(now);
  reading.utilisation_percent = percent_of(busy_in(period), kSamplePeriodNs);
  reading.memory_utilisation_percent = reading.utilisation_percent * 2 / 5;

  const uint32_t set_limit = gpu.settings.power_limit_mw.load();
  const uint64_t most_mw = (board.power_limit_mw - board.power_idle_mw) * kBusyPowerPercent / 100;
  const uint64_t span_mw =
      set_limit == 0 ? most_mw
                     : std::min<uint64_t>(most_mw, set_limit - std::min(board.power_idle_mw, set_limit));
  reading.power_milliwatts = power_at(board, span_mw, average_percent(busy_in, period, kPeriodsForPower));
  reading.power_instant_milliwatts = power_at(board, span_mw, reading.utilisation_percent);
  const uint64_t up_us = (now - std::min(created_ns, now)) / 1000;
  reading.energy_millijoules =
      board.power_idle_mw * up_us / 1'000'000 + span_mw * (reading.busy_ns / 1000) / 1'000'000;

  const uint32_t warmth = average_percent(busy_in, period, kPeriodsForTemperature);
  reading.temperature =
      board.temperature_idle + (board.temperature_busy - board.temperature_idle) * warmth / 100;
  reading.fan_percent = board.fan ? 30 + warmth * 2 / 5 : 0;
  reading.performance_state = in_use ? 0 : 8;
  reading.clock_mhz = clock_within(gpu.settings, in_use ? board.clock_max_mhz : board.clock_idle_mhz);
  reading.memory_clock_mhz = in_use ? board.memory_clock_mhz : board.memory_clock_idle_mhz;
}

}  // namespace

GpuReading DeviceModel::read(uint32_t gpu) {
  reap();
  GpuLock lock(*this, gpu);
  lock.advance_to_now();
  GpuReading reading{};
  reading.total_bytes = identity(gpu).memory_bytes;
  reading.reserve_bytes = identity(gpu).reserve_bytes;
  reading.used_bytes = lock.gpu().used_bytes;
  reading.busy_ns = busy_ns(gpu);
  reading.time_ns = lock.timeline().now;
  read_sensors(
      board(gpu), lock.gpu(), [&](uint64_t period) { return busy_in(gpu, period); }, state_->created_ns,
      reading);
  show_throttling(board(gpu), lock.gpu().faults.throttle_reasons.load(), reading);
  return reading;
}

ProcessReading DeviceModel::reading(uint32_t slot, uint32_t gpu, uint64_t period) const {
  const SharedProcess& process = state_->processes[slot];
  const SharedUse& use = state_->uses[slot][gpu];
  ProcessReading reading{};
  reading.pid = process.pid;
  reading.start_ticks = process.start_ticks;
  reading.contexts = use.contexts;
  reading.context_bytes = use.context_bytes;
  reading.used_bytes = use.context_bytes + use.memory_bytes;
  reading.gpu_instance = use.gpu_instance_plus_one.load() - 1;  // none: all ones
  reading.compute_instance = use.compute_instance_plus_one.load() - 1;
  reading.peak_bytes = use.memory_peak_bytes;
  reading.busy_ns = use.timeline.busy_tags / kTagsPerNanosecond;
  reading.launches = use.launches;
  reading.utilisation_percent = percent_of(use.timeline.history.busy_in(period), kSamplePeriodNs);
  reading.sample_time_ns = (period + 1) * kSamplePeriodNs;
  return reading;
}

std::vector<ProcessReading> DeviceModel::processes(uint32_t gpu) {
  reap();
  std::vector<ProcessReading> readings;
  GpuLock lock(*this, gpu);
  lock.advance_to_now();
  each_process([&](uint32_t slot) {
    if (state_->uses[slot][gpu].contexts == 0) return;
    readings.push_back(reading(slot, gpu, complete_period(lock.timeline().now)));
    is_alive(slot, readings.back().pid);
  });
  const SharedGpuFaults& faults = lock.gpu().faults;
  if (faults.ghost_pid.load() > 0) {
    ProcessReading ghost{};
    ghost.pid = faults.ghost_pid.load();
    ghost.used_bytes = faults.ghost_bytes.load();
    readings.push_back(ghost);
  }
  return readings;
}

std::vector<UtilisationSample> DeviceModel::samples(uint32_t gpu, uint64_t since_ns) {
  GpuLock lock(*this, gpu);
  lock.advance_to_now();
  const Timeline& timeline = lock.timeline();
  const uint64_t newest = complete_period(timeline.now);
  const uint64_t kept = timeline.history.periods.size() - 1;  // one of them is still being filled
  uint64_t period = std::max(newest - std::min(newest, kept - 1), since_ns / kSamplePeriodNs);
  std::vector<UtilisationSample> samples;
  for (; period <= newest; ++period) {
    if ((period + 1) * kSamplePeriodNs <= since_ns) continue;
    samples.push_back(
        {(period + 1) * kSamplePeriodNs, percent_of(timeline.history.busy_in(period), kSamplePeriodNs)});
  }
  return samples;
}

std::vector<ProcessReading> DeviceModel::busy_processes(uint32_t gpu, uint64_t since_ns) {
  reap();
  std::vector<ProcessReading> readings;
  GpuLock lock(*this, gpu);
  lock.advance_to_now();
  const uint64_t newest = complete_period(lock.timeline().now);
  each_process([&](uint32_t slot) {
    const auto& history = state_->uses[slot][gpu].timeline.history;
    const uint64_t kept = history.periods.size() - 1;
    for (uint64_t age = 0; age < kept && age <= newest; ++age) {
      const uint64_t period = newest - age;
      if ((period + 1) * kSamplePeriodNs <= since_ns) break;
      if (history.busy_in(period) == 0) continue;
      readings.push_back(reading(slot, gpu, period));
      is_alive(slot, readings.back().pid);
      break;
    }
  });
  return readings;
}

}  // namespace tranche::emulator
