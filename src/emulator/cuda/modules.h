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
// Whether code is loaded with its module: asked for by the environment, or a driver before lazy loading.
bool is_eager();
// Loads the code of a function's module, which takes device memory. Lazily, as the vendor's programming guide
// has it: when a function is asked for by its name; one that was enumerated, or is known as a kernel, at its
// first launch.
CUresult load_function(Function& function);
CUresult load_function(CUfunction handle);
// The function behind a handle that is a CUfunction or, as launches allow, a CUkernel.
CUresult resolve_function(CUfunction handle, std::shared_ptr<Function>& function);

}  // namespace tranche::emulator::cuda
