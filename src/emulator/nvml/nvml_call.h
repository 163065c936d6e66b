// The frame of every exported NVML function: nothing runs before nvmlInit, no handle is trusted, nothing is
// thrown across the C interface.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string_view>

#include "emulator/nvml/board_detail.h"
#include "emulator/nvml/nvml_abi.h"
#include "emulator/nvml/nvml_functions.h"
#include "emulator/nvml/session.h"

#define NVML_EXPORT extern "C" __attribute__((visibility("default")))

namespace tranche::emulator::nvml {

// One visible GPU during one call.
struct Gpu {
  const Session& session;
  uint32_t index;   // NVML's: place among the visible GPUs
  uint32_t number;  // the device model's
  DeviceModel& model;
  const GpuIdentity& identity;
  const Board& board;
  const BoardDetail& detail;

  GpuReading read() const { return model.read(number); }
  // A vGPU: the guest has a share of a GPU, and its sensors and settings are the host's.
  bool is_share() const { return model.guest() == Guest::vgpu; }
  uint32_t power_limit_mw() const {
    const uint32_t set = model.settings(number).power_limit_mw.load();
    return set != 0 ? set : board.power_limit_mw;
  }
};

inline Gpu gpu_at(const Session& session, uint32_t index) {
  const uint32_t number = session.visible()[index];
  DeviceModel& model = session.model();
  const Board& board = model.board(number);
  return {session, index, number, model, model.identity(number), board, board_detail(board)};
}

template <class... Pointers>
bool any_null(Pointers*... pointers) {
  return (... || (pointers == nullptr));
}

// Runs body(session) inside a session.
template <class Body>
Return with_session(Body body) {
  try {
    const std::shared_ptr<Session> session = current_session();
    if (session == nullptr) return Return::uninitialized;
    session->model().wait_while_nvml_blocked();
    return body(*session);
  } catch (const std::bad_alloc&) {
    return Return::memory;
  } catch (...) {
    return Return::unknown;
  }
}

// Runs body(gpu) for the GPU that `device` means.
template <class Body>
Return with_gpu(const Device* device, Body body) {
  return with_session([&](const Session& session) {
    const std::optional<uint32_t> index = session.index_of(device);
    if (!index) return Return::invalid_argument;
    const Gpu gpu = gpu_at(session, *index);
    gpu.model.wait_while_nvml_blocked(gpu.number);
    return gpu.model.is_lost(gpu.number) ? Return::gpu_is_lost : body(gpu);
  });
}

// Rows of memory that were remapped are not told while MIG instances exist (nvml.h).
inline bool tells_remapped_rows(const Gpu& gpu) {
  if (!gpu.detail.has_remapped_rows) return false;
  if (!gpu.model.mig_enabled(gpu.number)) return true;
  const SharedMig layout = gpu.model.mig_layout(gpu.number);
  return std::none_of(layout.instances.begin(), layout.instances.end(),
                      [](const SharedGpuInstance& instance) { return instance.exists != 0; });
}

// The commonest shape: a pointer for one answer, which body(gpu, answer) fills or declines.
template <class T, class Body>
Return answer_one(const Device* device, T* answer, Body body) {
  return with_gpu(device, [&](const Gpu& gpu) {
    if (answer == nullptr) return Return::invalid_argument;
    return body(gpu, *answer);
  });
}

// Writes `text` and its terminator to a caller's buffer of `length` bytes.
inline Return copy_text(std::string_view text, char* buffer, uint32_t length) {
  if (buffer == nullptr) return Return::invalid_argument;
  if (text.size() >= length) return Return::insufficient_size;
  std::memcpy(buffer, text.data(), text.size());
  buffer[text.size()] = '\0';
  return Return::success;
}

// NVML's convention for lists: *count holds the room and becomes the number; too little room answers
// insufficient_size with the number needed. body(i) gives element i.
template <class T, class Body>
Return copy_list(uint32_t* count, T* list, uint32_t number, Body body) {
  if (count == nullptr || (list == nullptr && *count != 0)) return Return::invalid_argument;
  const uint32_t room = *count;
  *count = number;
  if (number > room) return Return::insufficient_size;
  for (uint32_t i = 0; i < number; ++i) list[i] = body(i);
  return Return::success;
}

// NVML's time stamps: microseconds since the epoch. The server's own start ties the two clocks, so that
// one sample period has one stamp however often it is asked for.
inline uint64_t wall_us(const DeviceModel& model, uint64_t monotonic_ns) {
  const int64_t since_start = static_cast<int64_t>(monotonic_ns) - static_cast<int64_t>(model.created_ns());
  return static_cast<uint64_t>((model.created_wall_ns() + since_start) / 1000);
}
// The last ns that has the stamp `wall_us`: what ended at or before it has been seen.
inline uint64_t monotonic_ns(const DeviceModel& model, uint64_t wall_us) {
  constexpr uint64_t kLastStamp = static_cast<uint64_t>(INT64_MAX / 1000) - 1;
  if (wall_us > kLastStamp) return UINT64_MAX;  // a time that has not come: nothing is newer
  const int64_t last_ns = static_cast<int64_t>(wall_us) * 1000 + 999;
  const int64_t since_start = last_ns - model.created_wall_ns();
  const int64_t created = static_cast<int64_t>(model.created_ns());
  if (since_start <= -created) return 0;  // before the clock began
  return since_start > INT64_MAX - created ? UINT64_MAX : static_cast<uint64_t>(created + since_start);
}

}  // namespace tranche::emulator::nvml
