#include "emulator/program/report.h"

#include <array>
#include <cstdarg>
#include <cstdio>

namespace tranche::emulator {
namespace {

constexpr uint64_t kMebibyte = uint64_t{1} << 20;

// Appends printf-formatted text.
__attribute__((format(printf, 2, 3))) void append(std::string& text, const char* format, ...) {
  std::array<char, 512> line;
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(line.data(), line.size(), format, arguments);
  va_end(arguments);
  text += line.data();
}

// A JSON string: quotes, backslashes and control characters escaped.
std::string quoted(std::string_view text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\')
      result.append({'\\', c});
    else if (static_cast<unsigned char>(c) < 0x20)
      append(result, "\\u%04x", static_cast<unsigned>(c));
    else
      result.push_back(c);
  }
  return result + "\"";
}

void append_process_json(std::string& text, const ProcessReading& process) {
  append(text,
         "{\"pid\": %d, \"memory_bytes\": %llu, \"context_bytes\": %llu, \"peak_bytes\": %llu, \"contexts\": "
         "%llu,"
         " \"busy_ns\": %llu, \"launches\": %llu, \"utilisation_percent\": %u}",
         process.pid, static_cast<unsigned long long>(process.used_bytes),
         static_cast<unsigned long long>(process.context_bytes),
         static_cast<unsigned long long>(process.peak_bytes),
         static_cast<unsigned long long>(process.contexts), static_cast<unsigned long long>(process.busy_ns),
         static_cast<unsigned long long>(process.launches), process.utilisation_percent);
}

void append_gpu_json(std::string& text, DeviceModel& model, uint32_t gpu) {
  const GpuReading reading = model.read(gpu);
  append(text,
         "    {\"index\": %u, \"uuid\": \"%s\", \"board\": \"%s\", \"name\": \"%s\", \"minor\": %u,"
         " \"memory_bytes\": %llu, \"usable_bytes\": %llu, \"used_bytes\": %llu, \"utilisation_percent\": %u,"
         " \"busy_ns\": %llu, \"power_milliwatts\": %u, \"temperature\": %u, \"sharing\": \"%s\",\n     "
         "\"processes\": [",
         gpu, model.identity(gpu).uuid_text.data(), model.board(gpu).key.data(), model.board(gpu).name.data(),
         model.identity(gpu).minor, static_cast<unsigned long long>(reading.total_bytes),
         static_cast<unsigned long long>(model.usable_bytes(gpu)),
         static_cast<unsigned long long>(reading.used_bytes), reading.utilisation_percent,
         static_cast<unsigned long long>(reading.busy_ns), reading.power_milliwatts, reading.temperature,
         model.is_mps(gpu) ? "mps" : "slices");
  const char* separator = "";
  for (const ProcessReading& process : model.processes(gpu)) {
    text += separator;
    append_process_json(text, process);
    separator = ", ";
  }
  text += "]}";
}

}  // namespace

std::string status_text(DeviceModel& model) {
  std::string text;
  append(text, "Emulated server \"%s\", driver %s, CUDA %d.%d\n\n", model.server_name().c_str(),
         model.driver_version().c_str(), model.cuda_version() / 1000, model.cuda_version() % 1000 / 10);
  append(text, "%-4s %-26s %17s %5s %6s %5s\n", "GPU", "NAME", "MEMORY MiB", "UTIL", "POWER", "TEMP");
  std::string processes;
  for (uint32_t gpu = 0; gpu < model.gpu_count(); ++gpu) {
    const GpuReading reading = model.read(gpu);
    append(text, "%-4u %-26s %8llu /%7llu %4u%% %5uW %4uC\n", gpu, model.board(gpu).name.data(),
           static_cast<unsigned long long>(reading.used_bytes / kMebibyte),
           static_cast<unsigned long long>(model.usable_bytes(gpu) / kMebibyte), reading.utilisation_percent,
           reading.power_milliwatts / 1000, reading.temperature);
    for (const ProcessReading& process : model.processes(gpu)) {
      append(processes, "%-4u %8d %12llu %4u%%\n", gpu, process.pid,
             static_cast<unsigned long long>(process.used_bytes / kMebibyte), process.utilisation_percent);
    }
  }
  if (!processes.empty()) text += "\nGPU       PID   MEMORY MiB  UTIL\n" + processes;
  return text;
}

std::string status_json(DeviceModel& model) {
  std::string text = "{\n";
  text += "  \"server\": " + quoted(model.server_name()) + ",\n";
  text += "  \"driver_version\": " + quoted(model.driver_version()) + ",\n";
  append(text, "  \"cuda_version\": %d,\n  \"gpus\": [\n", model.cuda_version());
  for (uint32_t gpu = 0; gpu < model.gpu_count(); ++gpu) {
    append_gpu_json(text, model, gpu);
    text += gpu + 1 < model.gpu_count() ? ",\n" : "\n";
  }
  return text + "  ]\n}\n";
}

std::string boards_text() {
  std::string text;
  append(text, "%-9s %-26s %10s %4s %5s\n", "BOARD", "NAME", "MEMORY MiB", "SMs", "CC");
  for (const Board& board : boards()) {
    append(text, "%-9s %-26s %10u %4u %3u.%u\n", board.key.data(), board.name.data(), board.memory_mib,
           board.multiprocessors, board.compute_major, board.compute_minor);
  }
  return text;
}

std::string boards_json() {
  std::string text = "[\n";
  for (const Board& board : boards()) {
    append(
        text,
        "  {\"board\": \"%s\", \"name\": \"%s\", \"memory_mib\": %u, \"usable_mib\": %u, \"context_mib\": %u,"
        " \"multiprocessors\": %u}%s\n",
        board.key.data(), board.name.data(), board.memory_mib, board.memory_mib - board.reserve_mib,
        board.context_mib, board.multiprocessors, &board == &boards().back() ? "" : ",");
  }
  return text + "]\n";
}

}  // namespace tranche::emulator
