// Entry points: what there is in code: lists of functions, parameters, linking of images.

#include <algorithm>
#include <cstring>

#include "emulator/cuda/image.h"
#include "emulator/cuda/modules.h"

namespace tranche::emulator::cuda {
namespace {

// An image that is put together: its text is that of its PTX inputs; any binary makes it a binary.
struct Link {
  CUlinkState handle = nullptr;
  std::mutex mutex;  // of what follows
  std::string text;
  bool complete = false;
};

HandleTable<CUlinkState, Link>& links() {
  static auto* const table = new HandleTable<CUlinkState, Link>;
  return *table;
}

CUresult find_link(CUlinkState handle, std::shared_ptr<Link>& link) {
  CUDA_TRY(driver().ready());
  link = links().find(handle);
  return link == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

CUresult create_link(CUlinkState* handle) {
  std::shared_ptr<Context> context;
  CUDA_TRY(driver().current(context));
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *handle = links().add(std::make_shared<Link>());
  return CUDA_SUCCESS;
}

CUresult add_data(CUlinkState handle, int type, const void* data, size_t bytes) {
  constexpr int kPtx = 1, kTypes = 6;
  std::shared_ptr<Link> link;
  CUDA_TRY(find_link(handle, link));
  if (data == nullptr || bytes == 0 || type < 0 || type >= kTypes) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(link->mutex);
  if (link->complete) return CUDA_ERROR_INVALID_VALUE;
  if (link->text.size() + bytes > kImageBytesMax) return CUDA_ERROR_INVALID_IMAGE;
  std::string piece(static_cast<const char*>(data), bytes);
  if (type != kPtx) {
    link->text.insert(0, piece);  // a binary's magic comes first
    return CUDA_SUCCESS;
  }
  std::shared_ptr<const Image> image;
  CUDA_TRY(read_image(piece.c_str(), image));
  link->text += piece.c_str();
  link->text += '\n';
  return CUDA_SUCCESS;
}

CUresult add_file(CUlinkState handle, int type, const char* path) {
  std::string bytes;
  CUDA_TRY(driver().ready());
  CUDA_TRY(read_image_file(path, bytes));
  return add_data(handle, type, bytes.data(), bytes.size());
}

CUresult parameter(const std::vector<size_t>& sizes, size_t index, size_t* offset, size_t* size) {
  if (offset == nullptr || index >= sizes.size()) return CUDA_ERROR_INVALID_VALUE;
  size_t at = 0;
  for (size_t i = 0; i <= index; ++i) {
    const size_t alignment = std::clamp<size_t>(sizes[i], 1, 8);
    at = (at + alignment - 1) / alignment * alignment;
    if (i < index) at += sizes[i];
  }
  *offset = at;
  if (size != nullptr) *size = sizes[index];
  return CUDA_SUCCESS;
}

CUresult parameters_of(CUfunction handle, std::vector<size_t>& sizes) {
  std::shared_ptr<Function> function;
  CUDA_TRY(driver().ready());
  CUDA_TRY(resolve_function(handle, function));
  sizes = function->parameters;
  return CUDA_SUCCESS;
}

}  // namespace

#define LINK_CREATE(name) \
  CUDA_ENTRY name(unsigned, void*, void**, CUlinkState* handle) { return create_link(handle); }
LINK_CREATE(cuLinkCreate)
LINK_CREATE(cuLinkCreate_v2)
#undef LINK_CREATE

#define LINK_ADD_DATA(name)                                                                             \
  CUDA_ENTRY name(CUlinkState handle, int type, void* data, size_t bytes, const char*, unsigned, void*, \
                  void**) {                                                                             \
    return add_data(handle, type, data, bytes);                                                         \
  }
LINK_ADD_DATA(cuLinkAddData)
LINK_ADD_DATA(cuLinkAddData_v2)
#undef LINK_ADD_DATA

#define LINK_ADD_FILE(name)                                                                  \
  CUDA_ENTRY name(CUlinkState handle, int type, const char* path, unsigned, void*, void**) { \
    return add_file(handle, type, path);                                                     \
  }
LINK_ADD_FILE(cuLinkAddFile)
LINK_ADD_FILE(cuLinkAddFile_v2)
#undef LINK_ADD_FILE

CUDA_ENTRY cuLinkComplete(CUlinkState handle, void** image, size_t* bytes) {
  std::shared_ptr<Link> link;
  CUDA_TRY(find_link(handle, link));
  const std::lock_guard lock(link->mutex);
  if (image == nullptr || link->text.empty()) return CUDA_ERROR_INVALID_VALUE;
  link->complete = true;
  *image = link->text.data();  // the driver's until cuLinkDestroy
  if (bytes != nullptr) *bytes = link->text.size() + 1;
  return CUDA_SUCCESS;
}

CUDA_ENTRY cuLinkDestroy(CUlinkState handle) {
  CUDA_TRY(driver().ready());
  return links().remove(handle) == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

CUDA_ENTRY cuModuleGetFunctionCount(unsigned* count, CUmodule handle) {
  CUDA_TRY(driver().ready());
  const std::shared_ptr<Module> module = driver().modules.find(handle);
  if (module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *count = static_cast<unsigned>(module->image->kernels.size());
  return CUDA_SUCCESS;
}

CUDA_ENTRY cuModuleEnumerateFunctions(CUfunction* functions, unsigned count, CUmodule handle) {
  CUDA_TRY(driver().ready());
  const std::shared_ptr<Module> module = driver().modules.find(handle);
  if (module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (functions == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < count && i < module->image->kernels.size(); ++i) {
    CUDA_TRY(find_function(handle, module->image->kernels[i].c_str(), functions[i]));
  }
  return CUDA_SUCCESS;
}

CUDA_ENTRY cuLibraryGetKernelCount(unsigned* count, CUlibrary handle) {
  CUDA_TRY(driver().ready());
  const std::shared_ptr<Library> library = driver().libraries.find(handle);
  if (library == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *count = static_cast<unsigned>(library->image->kernels.size());
  return CUDA_SUCCESS;
}

CUDA_ENTRY cuLibraryGetKernel(CUkernel* kernel, CUlibrary library, const char* name);

CUDA_ENTRY cuLibraryEnumerateKernels(CUkernel* kernels, unsigned count, CUlibrary handle) {
  CUDA_TRY(driver().ready());
  const std::shared_ptr<Library> library = driver().libraries.find(handle);
  if (library == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (kernels == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < count && i < library->image->kernels.size(); ++i) {
    CUDA_TRY(cuLibraryGetKernel(&kernels[i], handle, library->image->kernels[i].c_str()));
  }
  return CUDA_SUCCESS;
}

// No image here declares managed variables or unified functions.
CUDA_ENTRY cuLibraryGetManaged(CUdeviceptr*, size_t*, CUlibrary handle, const char*) {
  CUDA_TRY(driver().ready());
  return driver().libraries.find(handle) == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_NOT_FOUND;
}
CUDA_ENTRY cuLibraryGetUnifiedFunction(void**, CUlibrary handle, const char*) {
  CUDA_TRY(driver().ready());
  return driver().libraries.find(handle) == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_NOT_FOUND;
}

CUDA_ENTRY cuFuncGetParamInfo(CUfunction function, size_t index, size_t* offset, size_t* size) {
  std::vector<size_t> sizes;
  CUDA_TRY(parameters_of(function, sizes));
  return parameter(sizes, index, offset, size);
}
CUDA_ENTRY cuKernelGetParamInfo(CUkernel kernel, size_t index, size_t* offset, size_t* size) {
  return cuFuncGetParamInfo(reinterpret_cast<CUfunction>(kernel), index, offset, size);
}
CUDA_ENTRY cuFuncGetParamCount(CUfunction function, size_t* count) {
  std::vector<size_t> sizes;
  CUDA_TRY(parameters_of(function, sizes));
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *count = sizes.size();
  return CUDA_SUCCESS;
}
CUDA_ENTRY cuKernelGetParamCount(CUkernel kernel, size_t* count) {
  return cuFuncGetParamCount(reinterpret_cast<CUfunction>(kernel), count);
}

CUDA_ENTRY cuKernelSetCacheConfig(CUkernel kernel, int configuration, CUdevice) {
  std::shared_ptr<Function> function;
  CUDA_TRY(driver().ready());
  CUDA_TRY(resolve_function(reinterpret_cast<CUfunction>(kernel), function));
  return configuration >= 0 && configuration <= 3 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
CUDA_ENTRY cuFuncSetSharedMemConfig(CUfunction handle, int configuration) {
  std::shared_ptr<Function> function;
  CUDA_TRY(driver().ready());
  CUDA_TRY(resolve_function(handle, function));
  return configuration >= 0 && configuration <= 2 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUDA_ENTRY cuOccupancyMaxPotentialClusterSize(int* size, CUfunction handle,
                                              const CUlaunchConfig* configuration) {
  std::shared_ptr<Function> function;
  std::shared_ptr<Context> context;
  CUDA_TRY(driver().current(context));
  CUDA_TRY(resolve_function(handle, function));
  if (size == nullptr || configuration == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (driver().model().board(context->gpu).compute_major < 9) return CUDA_ERROR_NOT_SUPPORTED;
  *size = 8;  // what every board with clusters can do
  return CUDA_SUCCESS;
}
CUDA_ENTRY cuOccupancyMaxActiveClusters(int* clusters, CUfunction handle,
                                        const CUlaunchConfig* configuration) {
  int size = 0;
  CUDA_TRY(cuOccupancyMaxPotentialClusterSize(&size, handle, configuration));
  std::shared_ptr<Context> context;
  CUDA_TRY(driver().current(context));
  if (clusters == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *clusters = static_cast<int>(driver().model().board(context->gpu).multiprocessors) / size;
  return CUDA_SUCCESS;
}

}  // namespace tranche::emulator::cuda
