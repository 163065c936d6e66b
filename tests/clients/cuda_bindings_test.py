"""cuda.bindings.driver from PyPI, unchanged, on an emulated server.

Run as: tranche-emulator run --board BOARD -- python cuda_bindings_test.py
Exit code 77 (skipped) where the package is not installed.
"""

import ctypes
import os
import sys
import unittest

try:
    from cuda.bindings import driver
except ImportError as error:
    print(f"skipped: cuda-bindings is not installed ({error}); run ./setup")
    sys.exit(77)

MIB = 1 << 20
PTX = b""".version 7.0
.target sm_52
.address_size 64
.visible .entry tranche_busy(.param .u64 microseconds) { ret; }
.visible .entry ordinary(.param .u64 buffer) { ret; }
.visible .global .align 4 .u32 table[16];
"""


def check(answer):
    """The value of a call that must succeed."""
    result, *values = answer
    if result != driver.CUresult.CUDA_SUCCESS:
        raise AssertionError(f"{result!r}")
    return values[0] if len(values) == 1 else tuple(values)


class CudaBindings(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        check(driver.cuInit(0))
        cls.device = check(driver.cuDeviceGet(0))
        cls.context = check(driver.cuDevicePrimaryCtxRetain(cls.device))
        check(driver.cuCtxSetCurrent(cls.context))

    @classmethod
    def tearDownClass(cls):
        check(driver.cuDevicePrimaryCtxRelease(cls.device))

    def test_devices(self):
        expected = int(os.environ.get("EXPECTED_GPUS", "1"))
        self.assertEqual(check(driver.cuDeviceGetCount()), expected)
        name = check(driver.cuDeviceGetName(100, self.device)).split(b"\0")[0]
        self.assertIn(b"H100", name)
        attribute = driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
        self.assertEqual(check(driver.cuDeviceGetAttribute(attribute, self.device)), 132)
        self.assertEqual(len(check(driver.cuDeviceGetUuid(self.device)).bytes), 16)
        self.assertGreaterEqual(check(driver.cuDriverGetVersion()), 12000)

    def test_errors(self):
        result, _ = driver.cuDeviceGet(1000)
        self.assertEqual(result, driver.CUresult.CUDA_ERROR_INVALID_DEVICE)
        self.assertEqual(check(driver.cuGetErrorName(result)), b"CUDA_ERROR_INVALID_DEVICE")
        self.assertEqual(driver.cuMemFree(12345)[0], driver.CUresult.CUDA_ERROR_INVALID_VALUE)

    def test_every_attribute_answers(self):
        for attribute in driver.CUdevice_attribute:
            if attribute.value < driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MAX.value:
                check(driver.cuDeviceGetAttribute(attribute, self.device))

    def test_copy_there_and_back(self):
        size = 3 * MIB + 17
        source = os.urandom(size)
        buffer = check(driver.cuMemAlloc(size))
        other = check(driver.cuMemAlloc(size))
        check(driver.cuMemcpyHtoD(buffer, source, size))
        check(driver.cuMemcpyDtoD(other, buffer, size))
        target = bytearray(size)
        address = (ctypes.c_char * size).from_buffer(target)
        check(driver.cuMemcpyDtoH(ctypes.addressof(address), other, size))
        self.assertEqual(bytes(target), source)
        check(driver.cuMemsetD8(other, 0x5A, size))
        check(driver.cuMemcpyDtoH(ctypes.addressof(address), other, size))
        self.assertEqual(bytes(target), b"\x5a" * size)
        check(driver.cuMemFree(buffer))
        check(driver.cuMemFree(other))
        self.assertEqual(driver.cuMemFree(other)[0], driver.CUresult.CUDA_ERROR_INVALID_VALUE)

    def test_stream_and_events(self):
        stream = check(driver.cuStreamCreate(0))
        start, end = check(driver.cuEventCreate(0)), check(driver.cuEventCreate(0))
        module = check(driver.cuModuleLoadData(PTX))
        function = check(driver.cuModuleGetFunction(module, b"tranche_busy"))
        check(driver.cuEventRecord(start, stream))
        parameters = ((30_000,), (ctypes.c_uint64,))
        check(driver.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, parameters, 0))
        check(driver.cuEventRecord(end, stream))
        self.assertEqual(driver.cuStreamQuery(stream)[0], driver.CUresult.CUDA_ERROR_NOT_READY)
        check(driver.cuEventSynchronize(end))
        self.assertEqual(driver.cuStreamQuery(stream)[0], driver.CUresult.CUDA_SUCCESS)
        # Never less than the kernel's own time.
        self.assertGreaterEqual(check(driver.cuEventElapsedTime(start, end)), 29.99)
        for destroy, handle in ((driver.cuEventDestroy, start), (driver.cuEventDestroy, end),
                                (driver.cuStreamDestroy, stream), (driver.cuModuleUnload, module)):
            check(destroy(handle))

    def test_names_in_code(self):
        module = check(driver.cuModuleLoadData(PTX))
        check(driver.cuModuleGetFunction(module, b"ordinary"))
        self.assertEqual(driver.cuModuleGetFunction(module, b"absent")[0],
                         driver.CUresult.CUDA_ERROR_NOT_FOUND)
        address, size = check(driver.cuModuleGetGlobal(module, b"table"))
        self.assertEqual(size, 64)
        check(driver.cuMemsetD32(address, 7, 16))
        check(driver.cuModuleUnload(module))
        self.assertEqual(driver.cuModuleLoadData(b"not code\0")[0],
                         driver.CUresult.CUDA_ERROR_INVALID_IMAGE)

    def test_out_of_memory_at_the_size_of_the_board(self):
        free, total = check(driver.cuMemGetInfo())
        self.assertEqual(total, (81559 - 561) * MIB)
        self.assertEqual(check(driver.cuDeviceTotalMem(self.device)), total)
        result, _ = driver.cuMemAlloc(free + 1)
        self.assertEqual(result, driver.CUresult.CUDA_ERROR_OUT_OF_MEMORY)
        everything = check(driver.cuMemAlloc(free))
        self.assertEqual(check(driver.cuMemGetInfo())[0], 0)
        result, _ = driver.cuMemAlloc(1)
        self.assertEqual(result, driver.CUresult.CUDA_ERROR_OUT_OF_MEMORY)
        check(driver.cuMemFree(everything))
        self.assertEqual(check(driver.cuMemGetInfo())[0], free)


if __name__ == "__main__":
    unittest.main()
