#!/usr/bin/env python3
"""Holds device memory through the CUDA driver API until its standard input closes.

usage: holder.py GPU=MIB [GPU=MIB ...] [--busy] [--copy] [--info]

Prints "ready" when it has everything. With --busy its GPUs are at work meanwhile, with a kernel that takes
as many microseconds as its parameter says; with --copy the last one is sent its memory's worth of bytes again and
again; with --info it prints the free and the total MiB that CUDA tells, in place of "ready". A line on standard
input makes it allocate one MiB more and print CUDA's result. Uses ctypes and nothing else, as any program on the
driver API might.
"""

import ctypes
import mmap
import select
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
        address = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(mib * MIB))
        return address

    def try_to_allocate(self):
        return self._library.cuMemAlloc_v2(ctypes.byref(ctypes.c_uint64()), ctypes.c_size_t(MIB))

    def memory_mib(self):
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self.call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value // MIB, total.value // MIB

    def copy_until_input(self, address, mib):
        source = (ctypes.c_char * (mib * MIB)).from_buffer(mmap.mmap(-1, mib * MIB))
        while not select.select([sys.stdin], [], [], 0)[0]:
            self.call("cuMemcpyHtoD_v2", address, ctypes.byref(source), ctypes.c_size_t(mib * MIB))

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
        address = cuda.allocate(int(mib))
        if "--busy" in sys.argv:
            cuda.launch_busy_kernel()
    print(*cuda.memory_mib() if "--info" in sys.argv else ["ready"], flush=True)
    if "--copy" in sys.argv:
        cuda.copy_until_input(address, int(mib))
    for _ in sys.stdin:
        print(cuda.try_to_allocate(), flush=True)


main()
