// Which counted GPU a CUDA device is. Threading: any thread.
#pragma once

#include "guard/abi.h"

// Of the calling thread's current context.
int gpu_of_current_context(void);
// Of a device's number; LEASE_GPU_UNCOUNTED for one that does not exist (the driver says so then).
int gpu_of_device(CUdevice device);
// Why nothing may be taken of a GPU: out of memory, or what the driver says to a process that it does not
// serve (before cuInit, in a child of fork) and of which no GPU is known therefore.
CUresult refusal_of(int gpu);
// How many devices this process sees; the reverse of gpu_of_device, or -1.
CUdevice device_of_gpu(int gpu);
