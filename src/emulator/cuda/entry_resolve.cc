// Entry points: look-up of entry points by name, CUDA version and default stream.

#include <dlfcn.h>

#include <string_view>

#include "emulator/cuda/driver.h"

namespace tranche::emulator::cuda {
namespace {

enum class Form { any, legacy, per_thread };

struct Symbol {
  std::string_view name;
  const char* exported;
  int version;
  Form form;
};

constexpr Symbol kSymbols[] = {
#define X(name, exported, version, form) {#name, #exported, version, Form::form},
#include "emulator/cuda/driver_symbols.inc"
#undef X
};

// This library itself, so that its own functions are found whatever else the process has loaded.
void* own_library() {
  static void* const library = [] {
    Dl_info info;
    const auto anchor = reinterpret_cast<const void*>(&kSymbols);
    return dladdr(anchor, &info) == 0 ? nullptr : dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD);
  }();
  return library;
}

enum class Found { yes, no_such_name, version_too_low };  // numbered as CUDA's query result

// What the driver is.
struct Release {
  int cuda_version;
  const DriverLevel* level;
};

// The newest version of `name` that both the caller's CUDA version and the driver have.
Found find_symbol(std::string_view name, int caller_version, bool per_thread, const Release& release,
                  const Symbol*& best) {
  Found found = Found::no_such_name;
  for (const Symbol& symbol : kSymbols) {
    if (symbol.name != name || symbol.version > release.cuda_version) continue;
    if (!release.level->has(symbol.exported)) continue;
    if (symbol.form == Form::per_thread && !per_thread) continue;
    if (found == Found::no_such_name) found = Found::version_too_low;
    if (symbol.version > caller_version) continue;
    found = Found::yes;
    const bool better_form =
        best != nullptr && per_thread && symbol.form == Form::per_thread && best->form == Form::legacy;
    const bool worse_form =
        best != nullptr && per_thread && symbol.form == Form::legacy && best->form == Form::per_thread;
    const bool newer = best == nullptr || symbol.version > best->version;
    if (better_form || (newer && !worse_form)) best = &symbol;
  }
  return found;
}

const Release& release() {
  // Programs look functions up before cuInit.
  static const Release known = [] {
    const auto model = DeviceModel::attach(default_state_directory());
    const std::string version = model ? (*model)->driver_version() : ServerDescription().driver_version;
    const int cuda_version = model ? (*model)->cuda_version() : cuda_version_of_driver(version);
    return Release{cuda_version, &driver_level(version)};
  }();
  return known;
}

CUresult resolve(const char* name, void** function, int version, uint64_t flags, Found& found) {
  if (name == nullptr || function == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (flags > (kProcAddressLegacy | kProcAddressPerThread) ||
      flags == (kProcAddressLegacy | kProcAddressPerThread)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *function = nullptr;
  const Symbol* best = nullptr;
  found = find_symbol(name, version, flags == kProcAddressPerThread, release(), best);
  if (found == Found::yes) *function = dlsym(own_library(), best->exported);
  return CUDA_SUCCESS;
}

}  // namespace

// Since CUDA 12: succeeds with a null pointer for what is not there, and says why in `status`.
CUDA_ENTRY cuGetProcAddress_v2(const char* name, void** function, int version, uint64_t flags, int* status) {
  Found found = Found::no_such_name;
  CUDA_TRY(resolve(name, function, version, flags, found));
  if (status != nullptr) *status = static_cast<int>(found);
  return CUDA_SUCCESS;
}

// Of CUDA 11.3: an error for what is not there.
CUDA_ENTRY cuGetProcAddress(const char* name, void** function, int version, uint64_t flags) {
  Found found = Found::no_such_name;
  CUDA_TRY(resolve(name, function, version, flags, found));
  return found == Found::yes ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

}  // namespace tranche::emulator::cuda
