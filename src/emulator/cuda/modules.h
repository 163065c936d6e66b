// Loading of code and the look-up of kernels and variables in it.
#pragma once

#include "emulator/cuda/driver.h"

namespace tranche::emulator::cuda {

CUresult load_module(const std::shared_ptr<Context>& context, std::shared_ptr<const Image> image,
                     CUmodule& handle);
CUresult unload_module(CUmodule handle);
// CUDA_ERROR_NOT_FOUND for a name that the module does not have.
CUresult find_function(CUmodule handle, const char* name, CUfunction& function);
CUresult find_global(CUmodule handle, const char* name, CUdeviceptr* address, size_t* bytes);
// The function of a kernel in the current context; its library's module is loaded there on first use.
CUresult function_of_kernel(CUkernel handle, CUfunction& function);
// Loads the code of a function's module, which takes device memory: at its first launch, as the driver does
// lazily.
CUresult load_function(Function& function);
// The function behind a handle that is a CUfunction or, as launches allow, a CUkernel.
CUresult resolve_function(CUfunction handle, std::shared_ptr<Function>& function);

}  // namespace tranche::emulator::cuda
