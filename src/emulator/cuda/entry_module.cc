// Entry points: modules, libraries, functions and occupancy.

#include <algorithm>

#include "emulator/cuda/device_attributes.h"
#include "emulator/cuda/image.h"
#include "emulator/cuda/modules.h"

namespace tranche::emulator::cuda {
namespace {

constexpr int kFunctionAttributeMax = 17;
constexpr int kRegistersPerThread = 32;  // what every kernel is said to use

CUresult load_code(CUmodule* module, const void* code) {
  std::shared_ptr<Context> context;
  CUDA_TRY(driver().current(context));
  if (module == nullptr || code == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<const Image> image;
  CUDA_TRY(read_image(code, image));
  return load_module(context, std::move(image), *module);
}

CUresult load_library(CUlibrary* handle, const void* code) {
  CUDA_TRY(driver().ready());
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  auto library = std::make_shared<Library>();
  CUDA_TRY(read_image(code, library->image));
  *handle = driver().libraries.add(std::move(library));
  return CUDA_SUCCESS;
}

CUresult function_attribute(int* value, int attribute, const Function& function) {
  if (value == nullptr || attribute < 0 || attribute > kFunctionAttributeMax) return CUDA_ERROR_INVALID_VALUE;
  const std::shared_ptr<Module> module = driver().modules.find(function.module);
  if (module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const Board& board = driver().model().board(module->context->gpu);
  switch (attribute) {
    case 0:
      *value = kMaxThreadsPerBlock;
      break;
    case 4:
      *value = kRegistersPerThread;
      break;
    case 5:
    case 6:
      *value = static_cast<int>(board.compute_major * 10 + board.compute_minor);
      break;
    case 8:
      *value = std::max(function.dynamic_shared_bytes.load(), kSharedBytesPerBlock);
      break;
    case 9:
      *value = function.carveout.load();
      break;
    default:
      *value = 0;
      break;  // no static, constant or local memory, no clusters
  }
  return CUDA_SUCCESS;
}

CUresult set_function_attribute(int attribute, int value, Function& function) {
  const std::shared_ptr<Module> module = driver().modules.find(function.module);
  if (module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const Board& board = driver().model().board(module->context->gpu);
  if (attribute == 8) {
    if (value < 0 || value > shared_bytes_opt_in(board)) return CUDA_ERROR_INVALID_VALUE;
    function.dynamic_shared_bytes.store(value);
    return CUDA_SUCCESS;
  }
  if (attribute == 9) {
    if (value < -1 || value > 100) return CUDA_ERROR_INVALID_VALUE;
    function.carveout.store(value);
    return CUDA_SUCCESS;
  }
  return attribute > 9 && attribute <= kFunctionAttributeMax ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult active_blocks(int* blocks, CUfunction handle, int block_size, size_t shared_bytes) {
  std::shared_ptr<Context> context;
  CUDA_TRY(driver().current(context));
  std::shared_ptr<Function> function;
  CUDA_TRY(resolve_function(handle, function));
  if (blocks == nullptr || block_size <= 0) return CUDA_ERROR_INVALID_VALUE;
  const Board& board = driver().model().board(context->gpu);
  const int by_threads = static_cast<int>(board.threads_per_multiprocessor) / block_size;
  const int by_registers = kRegisters / kRegistersPerThread / block_size;
  const size_t shared = size_t{board.shared_kib_per_multiprocessor} * 1024;
  const int by_shared = shared_bytes == 0 ? by_threads : static_cast<int>(shared / shared_bytes);
  *blocks = block_size > kMaxThreadsPerBlock ? 0 : std::min({by_threads, by_registers, by_shared, 32});
  return CUDA_SUCCESS;
}

CUresult best_block_size(int* grid_size, int* block_size, CUfunction function,
                         CUoccupancyB2DSize shared_of_block, size_t shared_bytes, int limit) {
  std::shared_ptr<Context> context;
  CUDA_TRY(driver().current(context));
  if (grid_size == nullptr || block_size == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const int largest = limit > 0 ? std::min(limit, kMaxThreadsPerBlock) : kMaxThreadsPerBlock;
  int best_threads = 0, best_blocks = 0;
  for (int size = largest - largest % 32; size >= 32; size -= 32) {
    int blocks = 0;
    const size_t shared = shared_of_block != nullptr ? shared_of_block(size) : shared_bytes;
    CUDA_TRY(active_blocks(&blocks, function, size, shared));
    if (blocks * size <= best_threads) continue;
    best_threads = blocks * size;
    best_blocks = blocks;
    *block_size = size;
  }
  *grid_size = best_blocks * static_cast<int>(driver().model().board(context->gpu).multiprocessors);
  return CUDA_SUCCESS;
}

}  // namespace

CUDA_ENTRY cuModuleLoadData(CUmodule* module, const void* code) { return load_code(module, code); }
CUDA_ENTRY cuModuleLoadDataEx(CUmodule* module, const void* code, unsigned, void*, void**) {
  return load_code(module, code);
}
CUDA_ENTRY cuModuleLoadFatBinary(CUmodule* module, const void* code) { return load_code(module, code); }

CUDA_ENTRY cuModuleLoad(CUmodule* module, const char* path) {
  std::shared_ptr<Context> context;
  CUDA_TRY(driver().current(context));
  std::string bytes;
  CUDA_TRY(read_image_file(path, bytes));
  return load_code(module, bytes.c_str());
}

CUDA_ENTRY cuModuleUnload(CUmodule module) {
  CUDA_TRY(driver().ready());
  return unload_module(module);
}

CUDA_ENTRY cuModuleGetLoadingMode(int* mode) {
  CUDA_TRY(driver().ready());
  if (mode == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *mode = is_eager() ? 1 : 2;
  return CUDA_SUCCESS;
}

CUDA_ENTRY cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  CUDA_TRY(driver().ready());
  if (function == nullptr || name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUDA_TRY(find_function(module, name, *function));
  return load_function(*function);
}

CUDA_ENTRY cuModuleGetGlobal_v2(CUdeviceptr* address, size_t* bytes, CUmodule module, const char* name) {
  CUDA_TRY(driver().ready());
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return find_global(module, name, address, bytes);
}

CUDA_ENTRY cuLibraryLoadData(CUlibrary* library, const void* code, void*, void**, unsigned, void*, void**,
                             unsigned) {
  return load_library(library, code);
}

CUDA_ENTRY cuLibraryLoadFromFile(CUlibrary* library, const char* path, void*, void**, unsigned, void*, void**,
                                 unsigned) {
  CUDA_TRY(driver().ready());
  std::string bytes;
  CUDA_TRY(read_image_file(path, bytes));
  return load_library(library, bytes.c_str());
}

CUDA_ENTRY cuLibraryUnload(CUlibrary handle) {
  CUDA_TRY(driver().ready());
  const std::shared_ptr<Library> library = driver().libraries.remove(handle);
  if (library == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  driver().kernels.remove_if([&](const Kernel& kernel) { return kernel.library == handle; });
  const std::lock_guard lock(library->mutex);
  for (const auto& [context, module] : library->modules) unload_module(module);
  return CUDA_SUCCESS;
}

CUDA_ENTRY cuLibraryGetKernel(CUkernel* handle, CUlibrary library_handle, const char* name) {
  CUDA_TRY(driver().ready());
  if (handle == nullptr || name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::shared_ptr<Library> library = driver().libraries.find(library_handle);
  if (library == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const auto& names = library->image->kernels;
  if (!library->image->any_name && std::find(names.begin(), names.end(), name) == names.end()) {
    return CUDA_ERROR_NOT_FOUND;
  }
  const std::lock_guard lock(library->mutex);
  std::shared_ptr<Kernel>& kernel = library->kernels[name];
  if (kernel == nullptr) {
    kernel = std::make_shared<Kernel>();
    kernel->name = name;
    kernel->library = library_handle;
    driver().kernels.add(kernel);
  }
  *handle = kernel->handle;
  return CUDA_SUCCESS;
}

CUDA_ENTRY cuLibraryGetModule(CUmodule* module, CUlibrary handle) {
  std::shared_ptr<Context> context;
  CUDA_TRY(driver().current(context));
  const std::shared_ptr<Library> library = driver().libraries.find(handle);
  if (library == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (module == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(library->mutex);
  CUmodule& loaded = library->modules[context->handle];
  if (loaded == nullptr) CUDA_TRY(load_module(context, library->image, loaded));
  *module = loaded;
  return CUDA_SUCCESS;
}

CUDA_ENTRY cuLibraryGetGlobal(CUdeviceptr* address, size_t* bytes, CUlibrary library, const char* name) {
  CUmodule module = nullptr;
  CUDA_TRY(cuLibraryGetModule(&module, library));
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return find_global(module, name, address, bytes);
}

CUDA_ENTRY cuKernelGetFunction(CUfunction* function, CUkernel kernel) {
  CUDA_TRY(driver().ready());
  if (function == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUDA_TRY(function_of_kernel(kernel, *function));
  return load_function(*function);
}

CUDA_ENTRY cuKernelGetName(const char** name, CUkernel handle) {
  CUDA_TRY(driver().ready());
  const std::shared_ptr<Kernel> kernel = driver().kernels.find(handle);
  if (kernel == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *name = kernel->name.c_str();
  return CUDA_SUCCESS;
}

CUDA_ENTRY cuKernelGetLibrary(CUlibrary* library, CUkernel handle) {
  CUDA_TRY(driver().ready());
  const std::shared_ptr<Kernel> kernel = driver().kernels.find(handle);
  if (kernel == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (library == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *library = kernel->library;
  return CUDA_SUCCESS;
}

CUDA_ENTRY cuKernelGetAttribute(int* value, int attribute, CUkernel kernel, CUdevice) {
  std::shared_ptr<Function> function;
  CUDA_TRY(driver().ready());
  CUDA_TRY(resolve_function(reinterpret_cast<CUfunction>(kernel), function));
  return function_attribute(value, attribute, *function);
}

CUDA_ENTRY cuKernelSetAttribute(int attribute, int value, CUkernel kernel, CUdevice) {
  std::shared_ptr<Function> function;
  CUDA_TRY(driver().ready());
  CUDA_TRY(resolve_function(reinterpret_cast<CUfunction>(kernel), function));
  return set_function_attribute(attribute, value, *function);
}

CUDA_ENTRY cuFuncGetAttribute(int* value, int attribute, CUfunction handle) {
  std::shared_ptr<Function> function;
  CUDA_TRY(driver().ready());
  CUDA_TRY(resolve_function(handle, function));
  return function_attribute(value, attribute, *function);
}

CUDA_ENTRY cuFuncSetAttribute(CUfunction handle, int attribute, int value) {
  std::shared_ptr<Function> function;
  CUDA_TRY(driver().ready());
  CUDA_TRY(resolve_function(handle, function));
  return set_function_attribute(attribute, value, *function);
}

CUDA_ENTRY cuFuncSetCacheConfig(CUfunction handle, int configuration) {
  std::shared_ptr<Function> function;
  CUDA_TRY(driver().ready());
  CUDA_TRY(resolve_function(handle, function));
  return configuration >= 0 && configuration <= 3 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUDA_ENTRY cuFuncGetModule(CUmodule* module, CUfunction handle) {
  std::shared_ptr<Function> function;
  CUDA_TRY(driver().ready());
  CUDA_TRY(resolve_function(handle, function));
  if (module == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *module = function->module;
  return CUDA_SUCCESS;
}

CUDA_ENTRY cuFuncGetName(const char** name, CUfunction handle) {
  CUDA_TRY(driver().ready());
  const std::shared_ptr<Function> function = driver().functions.find(handle);
  if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *name = function->name.c_str();
  return CUDA_SUCCESS;
}

CUDA_ENTRY cuFuncIsLoaded(int* state, CUfunction handle) {
  std::shared_ptr<Function> function;
  CUDA_TRY(driver().ready());
  CUDA_TRY(resolve_function(handle, function));
  if (state == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *state = function->loaded.load() ? 1 : 0;
  return CUDA_SUCCESS;
}

CUDA_ENTRY cuFuncLoad(CUfunction handle) {
  std::shared_ptr<Function> function;
  CUDA_TRY(driver().ready());
  CUDA_TRY(resolve_function(handle, function));
  return load_function(*function);
}

CUDA_ENTRY cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction function, int block_size,
                                                       size_t shared_bytes) {
  return active_blocks(blocks, function, block_size, shared_bytes);
}
CUDA_ENTRY cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, CUfunction function,
                                                                int block_size, size_t shared_bytes,
                                                                unsigned) {
  return active_blocks(blocks, function, block_size, shared_bytes);
}
CUDA_ENTRY cuOccupancyMaxPotentialBlockSize(int* grid_size, int* block_size, CUfunction function,
                                            CUoccupancyB2DSize shared_of_block, size_t shared_bytes,
                                            int limit) {
  return best_block_size(grid_size, block_size, function, shared_of_block, shared_bytes, limit);
}
CUDA_ENTRY cuOccupancyMaxPotentialBlockSizeWithFlags(int* grid_size, int* block_size, CUfunction function,
                                                     CUoccupancyB2DSize shared_of_block, size_t shared_bytes,
                                                     int limit, unsigned) {
  return best_block_size(grid_size, block_size, function, shared_of_block, shared_bytes, limit);
}

CUDA_ENTRY cuOccupancyAvailableDynamicSMemPerBlock(size_t* bytes, CUfunction, int blocks, int block_size) {
  std::shared_ptr<Context> context;
  CUDA_TRY(driver().current(context));
  if (bytes == nullptr || blocks <= 0 || block_size <= 0) return CUDA_ERROR_INVALID_VALUE;
  const Board& board = driver().model().board(context->gpu);
  const size_t share = size_t{board.shared_kib_per_multiprocessor} * 1024 / static_cast<size_t>(blocks);
  *bytes = std::min(share, static_cast<size_t>(shared_bytes_opt_in(board)));
  return CUDA_SUCCESS;
}

}  // namespace tranche::emulator::cuda
