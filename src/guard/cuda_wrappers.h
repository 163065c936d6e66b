// The names of the driver's library that the guard has in its place. Everything else passes through, at the
// address that the driver gives it.
#pragma once

#include "guard/abi.h"

// cuda_wrapper_names.inc lists them; driver_names.txt judges every name of the driver.

GUARD_EXPORT CUresult cuGetProcAddress(const char* name, void** function, int version, uint64_t flags);
GUARD_EXPORT CUresult cuGetProcAddress_v2(const char* name, void** function, int version, uint64_t flags,
                                          int* status);

GUARD_EXPORT CUresult cuMemAlloc_v2(CUdeviceptr* address, size_t bytes);
GUARD_EXPORT CUresult cuMemAllocPitch_v2(CUdeviceptr* address, size_t* pitch, size_t width, size_t height,
                                         unsigned element);
GUARD_EXPORT CUresult cuMemAllocManaged(CUdeviceptr* address, size_t bytes, unsigned flags);
GUARD_EXPORT CUresult cuMemFree_v2(CUdeviceptr address);
GUARD_EXPORT CUresult cuMemAllocAsync(CUdeviceptr* address, size_t bytes, CUstream stream);
GUARD_EXPORT CUresult cuMemAllocAsync_ptsz(CUdeviceptr* address, size_t bytes, CUstream stream);
GUARD_EXPORT CUresult cuMemAllocFromPoolAsync(CUdeviceptr* address, size_t bytes, CUmemoryPool pool,
                                              CUstream stream);
GUARD_EXPORT CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr* address, size_t bytes, CUmemoryPool pool,
                                                   CUstream stream);
GUARD_EXPORT CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream);
GUARD_EXPORT CUresult cuMemFreeAsync_ptsz(CUdeviceptr address, CUstream stream);
GUARD_EXPORT CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep);
GUARD_EXPORT CUresult cuMemPoolDestroy(CUmemoryPool pool);

GUARD_EXPORT CUresult cuMemCreate(CUmemHandle* handle, size_t bytes, const CUmemAllocationProp* properties,
                                  unsigned long long flags);
GUARD_EXPORT CUresult cuMemRelease(CUmemHandle handle);
GUARD_EXPORT CUresult cuMemMap(CUdeviceptr address, size_t bytes, size_t offset, CUmemHandle handle,
                               unsigned long long flags);
GUARD_EXPORT CUresult cuMemUnmap(CUdeviceptr address, size_t bytes);
GUARD_EXPORT CUresult cuMemRetainAllocationHandle(CUmemHandle* handle, void* address);

GUARD_EXPORT CUresult cuArrayCreate_v2(CUarray* array, const CUDA_ARRAY_DESCRIPTOR* descriptor);
GUARD_EXPORT CUresult cuArray3DCreate_v2(CUarray* array, const CUDA_ARRAY3D_DESCRIPTOR* descriptor);
GUARD_EXPORT CUresult cuArrayDestroy(CUarray array);
GUARD_EXPORT CUresult cuMipmappedArrayCreate(CUmipmappedArray* array,
                                             const CUDA_ARRAY3D_DESCRIPTOR* descriptor, unsigned levels);
GUARD_EXPORT CUresult cuMipmappedArrayDestroy(CUmipmappedArray array);

GUARD_EXPORT CUresult cuCtxCreate(CUcontext* context, unsigned flags, CUdevice device);
GUARD_EXPORT CUresult cuCtxCreate_v2(CUcontext* context, unsigned flags, CUdevice device);
GUARD_EXPORT CUresult cuCtxCreate_v3(CUcontext* context, void* affinity, int count, unsigned flags,
                                     CUdevice device);
GUARD_EXPORT CUresult cuCtxCreate_v4(CUcontext* context, void* parameters, unsigned flags, CUdevice device);
GUARD_EXPORT CUresult cuCtxDestroy(CUcontext context);
GUARD_EXPORT CUresult cuCtxDestroy_v2(CUcontext context);
GUARD_EXPORT CUresult cuCtxSetLimit(int limit, size_t value);
GUARD_EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device);
GUARD_EXPORT CUresult cuDevicePrimaryCtxRelease(CUdevice device);
GUARD_EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device);
GUARD_EXPORT CUresult cuDevicePrimaryCtxReset(CUdevice device);
GUARD_EXPORT CUresult cuDevicePrimaryCtxReset_v2(CUdevice device);

GUARD_EXPORT CUresult cuModuleLoad(CUmodule* module, const char* file);
GUARD_EXPORT CUresult cuModuleLoadData(CUmodule* module, const void* image);
GUARD_EXPORT CUresult cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned count, void* options,
                                         void* values);
GUARD_EXPORT CUresult cuModuleLoadFatBinary(CUmodule* module, const void* image);
GUARD_EXPORT CUresult cuModuleUnload(CUmodule module);
GUARD_EXPORT CUresult cuModuleGetGlobal_v2(CUdeviceptr* address, size_t* bytes, CUmodule module,
                                           const char* name);
GUARD_EXPORT CUresult cuLibraryLoadData(CUlibrary* library, const void* code, void* jit, void* jit_values,
                                        unsigned jit_count, void* options, void* values, unsigned count);
GUARD_EXPORT CUresult cuLibraryLoadFromFile(CUlibrary* library, const char* file, void* jit, void* jit_values,
                                            unsigned jit_count, void* options, void* values, unsigned count);
GUARD_EXPORT CUresult cuLibraryUnload(CUlibrary library);
GUARD_EXPORT CUresult cuLibraryGetGlobal(CUdeviceptr* address, size_t* bytes, CUlibrary library,
                                         const char* name);

GUARD_EXPORT CUresult cuLibraryGetModule(CUmodule* module, CUlibrary library);
GUARD_EXPORT CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name);
GUARD_EXPORT CUresult cuModuleEnumerateFunctions(CUfunction* functions, unsigned room, CUmodule module);
GUARD_EXPORT CUresult cuKernelGetFunction(CUfunction* function, CUkernel kernel);
GUARD_EXPORT CUresult cuLibraryGetKernel(CUkernel* kernel, CUlibrary library, const char* name);
GUARD_EXPORT CUresult cuLibraryEnumerateKernels(CUkernel* kernels, unsigned room, CUlibrary library);

GUARD_EXPORT CUresult cuCtxSynchronize(void);
GUARD_EXPORT CUresult cuCtxSynchronize_v2(CUcontext context);
GUARD_EXPORT CUresult cuStreamSynchronize(CUstream stream);
GUARD_EXPORT CUresult cuStreamSynchronize_ptsz(CUstream stream);
GUARD_EXPORT CUresult cuEventSynchronize(CUevent event);

GUARD_EXPORT CUresult cuMemGetInfo_v2(size_t* free_bytes, size_t* total);
GUARD_EXPORT CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice device);

GUARD_EXPORT CUresult cuGetProcAddress_ptsz(const char* name, void** function, int version, uint64_t flags);
GUARD_EXPORT CUresult cuGetProcAddress_v2_ptsz(const char* name, void** function, int version, uint64_t flags,
                                               int* status);

GUARD_EXPORT CUresult cuMemAlloc(unsigned* address, unsigned bytes);
GUARD_EXPORT CUresult cuMemAllocPitch(unsigned* address, unsigned* pitch, unsigned width, unsigned height,
                                      unsigned element);
GUARD_EXPORT CUresult cuMemFree(unsigned address);
GUARD_EXPORT CUresult cuArrayCreate(CUarray* array, const uint32_t* descriptor);
GUARD_EXPORT CUresult cuArray3DCreate(CUarray* array, const uint32_t* descriptor);
GUARD_EXPORT CUresult cuMemGetInfo(unsigned* free_bytes, unsigned* total);
GUARD_EXPORT CUresult cuDeviceTotalMem(unsigned* bytes, CUdevice device);

GUARD_EXPORT CUresult cuGraphInstantiate(CUgraphExec* handle, CUgraph graph, CUgraphNode* error_node,
                                         char* log, size_t size);
GUARD_EXPORT CUresult cuGraphInstantiate_v2(CUgraphExec* handle, CUgraph graph, CUgraphNode* error_node,
                                            char* log, size_t size);
GUARD_EXPORT CUresult cuGraphInstantiateWithFlags(CUgraphExec* handle, CUgraph graph,
                                                  unsigned long long flags);
GUARD_EXPORT CUresult cuGraphInstantiateWithParams(CUgraphExec* handle, CUgraph graph, void* parameters);
GUARD_EXPORT CUresult cuGraphInstantiateWithParams_ptsz(CUgraphExec* handle, CUgraph graph, void* parameters);
GUARD_EXPORT CUresult cuGraphExecDestroy(CUgraphExec handle);
GUARD_EXPORT CUresult cuDeviceGraphMemTrim(CUdevice device);
GUARD_EXPORT CUresult cuGreenCtxCreate(void** context, void* resources, CUdevice device, unsigned flags);

// Bytes that are charged for graphs and that the driver has not taken yet.
uint64_t graphs_early(int gpu);
void graphs_forget_all(void);
// Which functions were loaded.
void code_forget_all(void);
void virtual_forget_all(void);
