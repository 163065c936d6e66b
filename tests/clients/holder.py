#!/usr/bin/env python3
"""Holds device memory through the CUDA driver API until its standard input closes.

usage: holder.py GPU=MIB [GPU=MIB ...] [--busy]

Prints "ready" when it has everything. With --busy it keeps its GPUs at work with one endless series of
copies on the device. Uses ctypes and nothing else, as any program on the driver API might.
"""

import ctypes
import select
import sys

MIB = 1 << 20


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
        return context

    def allocate(self, mib):
        pointer = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(mib * MIB))
        return pointer


def main():
    busy = "--busy" in sys.argv
    wanted = [argument.split("=") for argument in sys.argv[1:] if "=" in argument]
    cuda = Cuda()
    held = []
    for gpu, mib in wanted:
        context = cuda.make_context(int(gpu))
        held.append((context, cuda.allocate(int(mib)), int(mib)))
    print("ready", flush=True)
    while busy and not select.select([sys.stdin], [], [], 0)[0]:
        for context, pointer, mib in held:
            cuda.call("cuCtxSetCurrent", context)
            cuda.call("cuMemsetD8_v2", pointer, ctypes.c_ubyte(1), ctypes.c_size_t(mib * MIB))
            cuda.call("cuCtxSynchronize")
    sys.stdin.read()


main()
