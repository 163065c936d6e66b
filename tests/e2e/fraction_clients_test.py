"""cuda-core and numba-cuda from PyPI, unchanged, in jobs with a part of a GPU: their own tests pass as on a whole one, they
see the part as their GPU, and get CUDA's out-of-memory error beyond it. (cuda-bindings, gpustat, nvitop: shares_test.py.)"""

import json
import os

import scenario
from server import LAB, ROOT, bind

VENV = os.path.join(ROOT, ".venv")
MIB = 1 << 20


class FractionClients(scenario.Scenario):
    def run_python(self, *arguments):
        if not os.path.exists(VENV + "/bin/python3"):
            self.skipTest("there is no .venv; ./setup makes it")
        # A clone below /root is closed to users: they get environment and tests through bind mounts.
        for source, target in ((VENV, LAB + "/venv"), (os.path.join(ROOT, "tests", "clients"), LAB + "/clients")):
            if not os.path.ismount(target):
                bind(source, target)
        job = self.submit("alice", ["--gpu-mem", "3G"], [LAB + "/venv/bin/python3", "-B", *arguments], wait=True)
        self.assertEqual(job["state"], "completed", self.log(job))
        return self.log(job)

    def seen(self, program):
        return json.loads(self.run_python("-c", program).splitlines()[-1])

    def assert_part(self, seen):
        self.assertEqual(seen["total"], 3072 * MIB)
        self.assertIn("OUT_OF_MEMORY", seen["error"])
        self.assertEqual(seen["blocks"] * 200 * MIB // seen["total"], 0)
        self.assertGreater(seen["blocks"], 8)
        self.assertLess(seen["free"], 200 * MIB)
        self.assertTrue(seen["again"], "what is given back may be taken again")

    def test_cuda_core(self):
        self.assertIn("\nOK", self.run_python(LAB + "/clients/cuda_core_test.py"))
        self.assert_part(self.seen("""
import json
from cuda.bindings import driver
from cuda.core import Device
device = Device(0)
device.set_current()
stream = device.create_stream()
blocks, error = [], ""
while not error:
    try:
        blocks.append(device.allocate(200 << 20, stream=stream))
        stream.sync()
    except Exception as fault:
        error = str(fault)
_, free, total = driver.cuMemGetInfo()
count = len(blocks)
blocks.pop().close(stream)
blocks.pop().close(stream)
stream.sync()
again = device.allocate(200 << 20, stream=stream).size == 200 << 20
print(json.dumps({"total": total, "free": free, "blocks": count, "error": error, "again": again}))
"""))

    def test_numba_cuda(self):
        self.assertIn("\nOK", self.run_python(LAB + "/clients/numba_cuda_test.py"))
        self.assert_part(self.seen("""
import json, numpy
from numba import cuda
context = cuda.current_context()
blocks, error = [], ""
while not error:
    try:
        blocks.append(cuda.device_array(200 << 20, dtype=numpy.uint8))
    except Exception as fault:
        error = str(fault)
free, total = context.get_memory_info()
count = len(blocks)
blocks.pop()
blocks.pop()
context.deallocations.clear()
again = cuda.device_array(200 << 20, dtype=numpy.uint8).nbytes == 200 << 20
print(json.dumps({"total": total, "free": free, "blocks": count, "error": error, "again": again}))
"""))


if __name__ == "__main__":
    scenario.main(board="h100-80:1")
