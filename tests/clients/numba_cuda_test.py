"""numba-cuda from PyPI, unchanged, on an emulated server: device arrays there and back, a kernel launched.

The kernel is PTX handed to the driver: numba's own compiler needs NVVM, and no kernel computes anything here, so its
result is not claimed.
Run as: tranche-emulator run --board BOARD -- python numba_cuda_test.py
Exit code 77 (skipped) where the package is not installed.
"""

import ctypes
import sys
import unittest

try:
    import numpy
    from cuda.bindings import driver as bindings
    from numba import cuda
    from numba.cuda.cudadrv import driver
except ImportError as error:
    print(f"skipped: numba-cuda is not installed ({error}); run ./setup")
    sys.exit(77)

PTX = """.version 7.0
.target sm_52
.address_size 64
.visible .entry ordinary(.param .u64 buffer, .param .u32 count) { ret; }
"""


class NumbaCuda(unittest.TestCase):
    def test_the_gpu_is_seen(self):
        self.assertEqual(len(cuda.gpus), 1)
        device = cuda.get_current_device()
        self.assertEqual(tuple(device.compute_capability), (9, 0))
        self.assertIn(b"H100", device.name if isinstance(device.name, bytes) else device.name.encode())

    def test_device_arrays_go_there_and_come_back(self):
        for array in (numpy.arange(100_000, dtype=numpy.float32), numpy.random.default_rng(1).random((37, 53)),
                      numpy.asfortranarray(numpy.arange(12).reshape(3, 4))):
            on_device = cuda.to_device(array)
            self.assertEqual(on_device.shape, array.shape)
            numpy.testing.assert_array_equal(on_device.copy_to_host(), array)

    def test_memory_is_charged(self):
        context = cuda.current_context()
        before = context.get_memory_info().free
        array = cuda.device_array(64 << 20, dtype=numpy.uint8)
        self.assertEqual(before - context.get_memory_info().free, 64 << 20)
        self.assertEqual(array.nbytes, 64 << 20)

    def test_streams_and_events(self):
        stream = cuda.stream()
        pinned = cuda.pinned_array(1000, dtype=numpy.int32)
        pinned[:] = 7
        on_device = cuda.to_device(pinned, stream=stream)
        event = cuda.event()
        event.record(stream)
        event.synchronize()
        self.assertEqual(int(on_device.copy_to_host(stream=stream).sum()), 7000)

    def test_a_kernel_is_launched(self):
        context = cuda.current_context()
        function = context.create_module_ptx(PTX).get_function("ordinary")
        handle = getattr(function.handle, "handle", function.handle)
        array = cuda.to_device(numpy.zeros(16, dtype=numpy.float32))
        arguments = ((int(driver.device_pointer(array)), 16), (ctypes.c_uint64, ctypes.c_uint32))
        (result,) = bindings.cuLaunchKernel(handle, 1, 1, 1, 32, 1, 1, 0, 0, arguments, 0)
        self.assertEqual(result, bindings.CUresult.CUDA_SUCCESS)
        context.synchronize()


if __name__ == "__main__":
    unittest.main(verbosity=2)
