#include "emulator/cuda/modules.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <string_view>

namespace tranche::emulator::cuda {
namespace {

// Names that say what a kernel costs: see entry_launch.cc.
constexpr std::string_view kBusyKernel = "tranche_busy";
constexpr std::string_view kBusyPart = "tranche_busy_";
constexpr std::string_view kFaultKernel = "tranche_fault";

void read_name(Function& function) {
  const std::string_view name = function.name;
  function.busy = name == kBusyKernel;
  function.fault = name == kFaultKernel;
  if (!name.starts_with(kBusyPart)) return;
  uint32_t percent = 0;
  const std::string_view digits = name.substr(kBusyPart.size());
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), percent);
  if (error != std::errc() || end != digits.data() + digits.size() || percent == 0 || percent > 100) return;
  function.busy = true;
  function.demand = percent * 10;
}

CUresult load_code(Module& module) {
  const std::lock_guard lock(module.mutex);
  if (module.code != 0) return CUDA_SUCCESS;
  const Context& context = *module.context;
  // Instructions lie in pages of their own.
  const size_t bytes = round_up_to_page(std::max<size_t>(module.image->bytes, 1));
  return driver().device(context.device)->memory->allocate(bytes, context.handle, module.code);
}

bool has_kernel(const Image& image, std::string_view name) {
  return image.any_name ? !name.empty()
                        : std::find(image.kernels.begin(), image.kernels.end(), name) != image.kernels.end();
}

}  // namespace

bool is_eager() {
  static const bool eager = [] {
    const char* const mode = std::getenv("CUDA_MODULE_LOADING");
    return (mode != nullptr && std::string_view(mode) == "EAGER") ||
           driver().model().level().number("cuda.lazy_loading") == 0;
  }();
  return eager;
}

CUresult load_module(const std::shared_ptr<Context>& context, std::shared_ptr<const Image> image,
                     CUmodule& handle) {
  auto module = std::make_shared<Module>();
  module->context = context;
  module->image = std::move(image);
  if (is_eager()) CUDA_TRY(load_code(*module));
  handle = driver().modules.add(std::move(module));
  return CUDA_SUCCESS;
}

CUresult unload_module(CUmodule handle) {
  const std::shared_ptr<Module> module = driver().modules.remove(handle);
  if (module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  driver().functions.remove_if([&](const Function& function) { return function.module == handle; });
  const std::lock_guard lock(module->mutex);
  DeviceMemory& memory = *driver().device(module->context->device)->memory;
  for (const auto& [name, address] : module->globals) memory.release(address);
  if (module->code != 0) memory.release(module->code);
  return CUDA_SUCCESS;
}

CUresult load_function(Function& function) {
  if (function.loaded.load(std::memory_order_acquire)) return CUDA_SUCCESS;
  const std::shared_ptr<Module> module = driver().modules.find(function.module);
  if (module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  CUDA_TRY(load_code(*module));
  function.loaded.store(true, std::memory_order_release);
  return CUDA_SUCCESS;
}

CUresult find_function(CUmodule handle, const char* name, CUfunction& function) {
  const std::shared_ptr<Module> module = driver().modules.find(handle);
  if (module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (!has_kernel(*module->image, name)) return CUDA_ERROR_NOT_FOUND;
  const std::lock_guard lock(module->mutex);
  std::shared_ptr<Function>& known = module->functions[name];
  if (known == nullptr) {
    known = std::make_shared<Function>();
    known->name = name;
    known->module = handle;
    read_name(*known);
    const auto parameters = module->image->parameters.find(std::string_view(name));
    if (parameters != module->image->parameters.end()) known->parameters = parameters->second;
    if (module->image->any_name && (known->busy || known->fault)) known->parameters = {sizeof(uint64_t)};
    known->loaded.store(is_eager());
    driver().functions.add(known);
  }
  function = known->handle;
  return CUDA_SUCCESS;
}

CUresult load_function(CUfunction handle) {
  const std::shared_ptr<Function> function = driver().functions.find(handle);
  return function == nullptr ? CUDA_ERROR_INVALID_HANDLE : load_function(*function);
}

CUresult find_global(CUmodule handle, const char* name, CUdeviceptr* address, size_t* bytes) {
  const std::shared_ptr<Module> module = driver().modules.find(handle);
  if (module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const auto size = module->image->globals.find(std::string_view(name));
  if (size == module->image->globals.end()) return CUDA_ERROR_NOT_FOUND;
  const std::lock_guard lock(module->mutex);
  CUdeviceptr& known = module->globals[name];
  if (known == 0) {
    const Context& context = *module->context;
    CUDA_TRY(driver().device(context.device)->memory->allocate(size->second, context.handle, known));
  }
  if (address != nullptr) *address = known;
  if (bytes != nullptr) *bytes = size->second;
  return CUDA_SUCCESS;
}

CUresult function_of_kernel(CUkernel handle, CUfunction& function) {
  std::shared_ptr<Context> context;
  CUDA_TRY(driver().current(context));
  const std::shared_ptr<Kernel> kernel = driver().kernels.find(handle);
  if (kernel == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const std::shared_ptr<Library> library = driver().libraries.find(kernel->library);
  if (library == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  CUmodule module = nullptr;
  {
    const std::lock_guard lock(library->mutex);
    CUmodule& loaded = library->modules[context->handle];
    if (loaded == nullptr) CUDA_TRY(load_module(context, library->image, loaded));
    module = loaded;
  }
  return find_function(module, kernel->name.c_str(), function);
}

CUresult resolve_function(CUfunction handle, std::shared_ptr<Function>& function) {
  function = driver().functions.find(handle);
  if (function != nullptr) return CUDA_SUCCESS;
  CUfunction of_kernel = nullptr;
  CUDA_TRY(function_of_kernel(reinterpret_cast<CUkernel>(handle), of_kernel));
  function = driver().functions.find(of_kernel);
  return function == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

}  // namespace tranche::emulator::cuda
