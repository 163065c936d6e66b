#include "emulator/cuda/modules.h"

#include <algorithm>
#include <string_view>

namespace tranche::emulator::cuda {
namespace {

// Kernels of this name take their first parameter, 64 bits, as microseconds of GPU time.
constexpr std::string_view kBusyKernel = "tranche_busy";

bool has_kernel(const Image& image, std::string_view name) {
  return image.any_name ? !name.empty()
                        : std::find(image.kernels.begin(), image.kernels.end(), name) != image.kernels.end();
}

}  // namespace

CUresult load_module(const std::shared_ptr<Context>& context, std::shared_ptr<const Image> image,
                     CUmodule& handle) {
  auto module = std::make_shared<Module>();
  module->context = context;
  module->image = std::move(image);
  handle = driver().modules.add(std::move(module));
  return CUDA_SUCCESS;
}

CUresult unload_module(CUmodule handle) {
  const std::shared_ptr<Module> module = driver().modules.remove(handle);
  if (module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  driver().functions.remove_if([&](const Function& function) { return function.module == handle; });
  const std::lock_guard lock(module->mutex);
  for (const auto& [name, address] : module->globals) {
    driver().device(module->context->device)->memory->release(address);
  }
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
    known->busy = known->name == kBusyKernel;
    driver().functions.add(known);
  }
  function = known->handle;
  return CUDA_SUCCESS;
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
