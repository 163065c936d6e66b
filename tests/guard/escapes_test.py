"""What goes around the guard is reported: jobs that hold more than their part by ways that bypass_test.py finds open are
named by the watchdog, in its log and by `doctor`, within ten seconds, and a job that keeps to its part is not."""

import json
import os
import re
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))

import scenario  # noqa: E402
from server import BIN, Server, wait_until  # noqa: E402

WITHIN_S = 10
LOG = "/run/tranche-up/tranched.log"
TAKE = """
import ctypes, shutil, sys, time
NAME
context, address = ctypes.c_void_p(), ctypes.c_uint64()
assert cuda.cuInit(0) == 0 and cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0) == 0
assert cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(SIZE << 20)) == 0
print("escapes", flush=True)
time.sleep(600)
"""


def program(library, size=1500):
    return ["python3", "-c", TAKE.replace("NAME", library).replace("SIZE", str(size))]


# The ways that escape, as jobs.
WAYS = {
    "own copy of the driver": program(
        'shutil.copy("/run/tranche-task/driver-cuda.so", "/dev/shm/mine.so"); cuda = ctypes.CDLL("/dev/shm/mine.so")'),
    "the driver under its private name": program('cuda = ctypes.CDLL("libtranche-driver-cuda.so.1")'),
    "the device without libcuda": ["sh", "-c", f"sleep 600 | {BIN}/guard_raw_device 1500"],
}


class Escapes(scenario.Scenario):
    def held(self):
        status = json.loads(Server.root(BIN + "/tranche-emulator", "status", "--json"))
        return [process["memory_bytes"] for gpu in status["gpus"] for process in gpu.get("processes", [])]

    def reported(self, since):
        """{job: seconds until its line} of the daemon's log."""
        with open(LOG, encoding="utf-8", errors="replace") as file:
            lines = [line for line in file if re.search("share_(exceeded|unguarded)", line)]
        return {int(found.group(1)): time.monotonic() - since for line in lines
                for found in [re.search(r"job\D{1,3}(\d+)", line)] if found}

    def test_every_way_that_escapes_is_reported(self):
        honest = self.submit("alice", ["--gpu-mem", "1G"], program('cuda = ctypes.CDLL("libcuda.so.1")', size=300))
        self.server.wait_state(honest, "running")
        for way, command in WAYS.items():
            before = len(self.held())
            job = self.submit("alice", ["--gpu-mem", "1G"], command)
            self.server.wait_state(job, "running")
            wait_until(lambda: len(self.held()) > before and max(self.held()) > 1500 << 20, 20, f"{way}: memory beyond the part")
            began = time.monotonic()
            wait_until(lambda: job in self.reported(began), WITHIN_S, f"a report of {way}")
            seconds = time.monotonic() - began
            text, _ = self.server.tranche("alice", "doctor", code=None)
            self.assertIn(f"job {job} of alice holds", text)
            self.assertNotIn(f"job {honest} of alice holds", text)
            print(f"\n{way}: reported after {seconds:.1f} s", flush=True)
            self.end(job)
        self.assertNotIn(honest, self.reported(0))


if __name__ == "__main__":
    scenario.main(board="h100-80:1")
