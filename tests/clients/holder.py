#!/usr/bin/env python3
"""Holds device memory through the CUDA driver API until its standard input closes.

usage: holder.py GPU=MIB [GPU=MIB ...] [--busy]

Prints "ready" when it has everything. With --busy its GPUs are at work meanwhile, with a kernel that takes
as many microseconds as its parameter says. Uses ctypes and nothing else, as any program on the driver API
might.
"""

import ctypes
import sys

MIB = 1 << 20
BUSY_MICROSECONDS = 10 * 60 * 1_000_000  # longer than any test; ends with the process
PTX = b""".version 7.0
.target sm_52
.address_size 64
.visible .entry tranche_busy(.param .u64 microseconds) { ret; }
"""


class Cuda:
    def __init__(self):
        self._library = ctypes.CDLL("libcuda.so.1")
        self.call("cuInit", ctypes.c_uint(0))

    def call(self, name, *arguments):
        result = getattr(self._library, name)(*arguments)
        if result != 0:
            sys.exit(f"{name} failed with CUDA error {result}")

    def make_context(self, gpu):
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self.call("cuDeviceGet", ctypes.byref(device), ctypes.c_int(gpu))
        self.call("cuCtxCreate_v2", ctypes.byref(context), ctypes.c_uint(0), device)

    def allocate(self, mib):
        self.call("cuMemAlloc_v2", ctypes.byref(ctypes.c_uint64()), ctypes.c_size_t(mib * MIB))

    def launch_busy_kernel(self):
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        self.call("cuModuleLoadData", ctypes.byref(module), PTX)
        self.call("cuModuleGetFunction", ctypes.byref(function), module, b"tranche_busy")
        microseconds = ctypes.c_uint64(BUSY_MICROSECONDS)
        parameters = (ctypes.c_void_p * 1)(ctypes.cast(ctypes.byref(microseconds), ctypes.c_void_p))
        self.call("cuLaunchKernel", function, *[ctypes.c_uint(1)] * 6, ctypes.c_uint(0), None, parameters, None)


def main():
    cuda = Cuda()
    for gpu, mib in (argument.split("=") for argument in sys.argv[1:] if "=" in argument):
        cuda.make_context(int(gpu))
        cuda.allocate(int(mib))
        if "--busy" in sys.argv:
            cuda.launch_busy_kernel()
    print("ready", flush=True)
    sys.stdin.read()


main()
