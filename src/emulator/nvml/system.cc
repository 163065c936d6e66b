// Initialisation and what NVML says about the whole machine.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string>

#include "emulator/nvml/nvml_call.h"

namespace tranche::emulator::nvml {
namespace {

// The process's first argument, else the kernel's name of it.
Return process_name(uint32_t pid, std::string& name) {
  for (const char* file : {"/cmdline", "/comm"}) {
    const int descriptor = open(("/proc/" + std::to_string(pid) + file).c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) return errno == EACCES ? Return::no_permission : Return::not_found;
    std::array<char, 1024> bytes;
    const ssize_t got = read(descriptor, bytes.data(), bytes.size());
    close(descriptor);
    if (got <= 0) continue;
    const std::string_view text(bytes.data(), static_cast<size_t>(got));
    name = text.substr(0, text.find_first_of(std::string_view("\0\n", 2)));
    if (!name.empty()) return Return::success;
  }
  return Return::not_found;
}

Return cuda_version(int32_t* version) {
  return with_session([&](const Session& session) {
    if (version == nullptr) return Return::invalid_argument;
    *version = session.model().cuda_version();
    return Return::success;
  });
}

}  // namespace

NVML_EXPORT Return nvmlInit() { return begin_session(0); }
NVML_EXPORT Return nvmlInit_v2() { return begin_session(0); }
NVML_EXPORT Return nvmlInitWithFlags(uint32_t flags) { return begin_session(flags); }
NVML_EXPORT Return nvmlShutdown() { return end_session(); }

NVML_EXPORT Return nvmlSystemGetDriverVersion(char* version, uint32_t length) {
  return with_session(
      [&](const Session& session) { return copy_text(session.model().driver_version(), version, length); });
}

// NVML's version is CUDA's major number before the driver's version.
NVML_EXPORT Return nvmlSystemGetNVMLVersion(char* version, uint32_t length) {
  return with_session([&](const Session& session) {
    const std::string text =
        std::to_string(session.model().cuda_version() / 1000) + "." + session.model().driver_version();
    return copy_text(text, version, length);
  });
}

NVML_EXPORT Return nvmlSystemGetCudaDriverVersion(int32_t* version) { return cuda_version(version); }
NVML_EXPORT Return nvmlSystemGetCudaDriverVersion_v2(int32_t* version) { return cuda_version(version); }

// Cropped to the buffer, as NVML documents.
NVML_EXPORT Return nvmlSystemGetProcessName(uint32_t pid, char* name, uint32_t length) {
  return with_session([&](const Session&) {
    if (name == nullptr || length == 0) return Return::invalid_argument;
    std::string text;
    const Return found = process_name(pid, text);
    if (found != Return::success) return found;
    return copy_text(std::string_view(text).substr(0, length - 1), name, length);
  });
}

// There are no host interface cards, S-class units or excluded GPUs.
NVML_EXPORT Return nvmlSystemGetHicVersion(uint32_t* count, void*) {
  return with_session([&](const Session&) {
    if (count == nullptr) return Return::invalid_argument;
    *count = 0;
    return Return::success;
  });
}
NVML_EXPORT Return nvmlUnitGetCount(uint32_t* count) { return nvmlSystemGetHicVersion(count, nullptr); }
NVML_EXPORT Return nvmlUnitGetHandleByIndex(uint32_t, void*) {
  return with_session([](const Session&) { return Return::invalid_argument; });
}
NVML_EXPORT Return nvmlGetExcludedDeviceCount(uint32_t* count) {
  if (count == nullptr) return Return::invalid_argument;  // needs no nvmlInit, as NVML documents
  *count = 0;
  return Return::success;
}
NVML_EXPORT Return nvmlGetExcludedDeviceInfoByIndex(uint32_t, void*) { return Return::invalid_argument; }

}  // namespace tranche::emulator::nvml
