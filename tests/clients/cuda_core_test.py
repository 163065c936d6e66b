"""cuda.core from PyPI, unchanged, on an emulated server: device, streams, events, memory, a launch.

Run as: tranche-emulator run --board BOARD -- python cuda_core_test.py
Exit code 77 (skipped) where the package is not installed.
"""

import ctypes
import sys
import unittest

try:
    from cuda.bindings import driver
    from cuda.core import Device, LaunchConfig, ObjectCode, launch
except ImportError as error:
    print(f"skipped: cuda-core is not installed ({error}); run ./setup")
    sys.exit(77)

PTX = b""".version 7.0
.target sm_52
.address_size 64
.visible .entry tranche_busy(.param .u64 microseconds) { ret; }
"""


class CudaCore(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.device = Device(0)
        cls.device.set_current()

    def test_device(self):
        self.assertIn("H100", self.device.name)
        self.assertEqual(self.device.compute_capability, (9, 0))
        self.assertEqual(self.device.properties.multiprocessor_count, 132)
        self.assertGreaterEqual(len(self.device.uuid), 32)

    def test_memory_there_and_back(self):
        stream = self.device.create_stream()
        size = 1 << 20
        buffer = self.device.allocate(size, stream=stream)
        self.assertEqual(buffer.size, size)
        source = bytes(range(256)) * (size // 256)
        target = (ctypes.c_char * size)()
        (result,) = driver.cuMemcpyHtoDAsync(int(buffer.handle), source, size, stream.handle)
        self.assertEqual(result, driver.CUresult.CUDA_SUCCESS)
        (result,) = driver.cuMemcpyDtoHAsync(ctypes.addressof(target), int(buffer.handle), size, stream.handle)
        self.assertEqual(result, driver.CUresult.CUDA_SUCCESS)
        stream.sync()
        self.assertEqual(target.raw, source)
        buffer.close(stream)
        stream.sync()

    def test_a_launch_takes_the_time_that_it_is_given(self):
        stream = self.device.create_stream()
        kernel = ObjectCode.from_ptx(PTX).get_kernel("tranche_busy")
        start = stream.record(options={"timing_enabled": True})
        launch(stream, LaunchConfig(grid=1, block=32), kernel, ctypes.c_uint64(20000))
        end = stream.record(options={"timing_enabled": True})
        end.sync()
        self.assertGreaterEqual(end - start, 20.0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
