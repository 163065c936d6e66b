"""The limit under storm: many processes at the last MiB, killed, stopped, and without an arbiter. The oracle is the
emulator's own account, read all the while under its lock; it knows nothing of limits."""

import ctypes
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
import unittest

from guarded import BIN, EMULATOR, MIB, Guarded, wait_for

LONG = "TRANCHE_LONG" in os.environ
SEED = int(os.environ.get("TRANCHE_SEED", "3"))
STORM = os.environ["TRANCHE_STORM"]

CUDA = """
import ctypes, json, os, sys, time
cuda = ctypes.CDLL("libcuda.so.1")
MIB = 1 << 20
assert cuda.cuInit(0) == 0
context = ctypes.c_void_p()
created = cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0)
def allocate(size):
    address = ctypes.c_uint64()
    return cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(size)), address
def info():
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    assert cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)) == 0
    return free.value, total.value
"""


class Process(ctypes.Structure):
    _fields_ = [("pid", ctypes.c_uint32), ("used", ctypes.c_uint64), ("gi", ctypes.c_uint32), ("ci", ctypes.c_uint32)]


class Oracle(threading.Thread):
    """Reads, as fast as it can, how much all processes together hold of GPU 0."""

    def __init__(self):
        super().__init__(daemon=True)
        self.nvml = ctypes.CDLL(EMULATOR + "/libnvidia-ml.so.1")
        assert self.nvml.nvmlInit_v2() == 0
        self.device = ctypes.c_void_p()
        assert self.nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(self.device)) == 0
        self.peak = self.readings = 0
        self.ended = False

    def held(self):
        count, room = ctypes.c_uint32(256), (Process * 256)()
        assert self.nvml.nvmlDeviceGetComputeRunningProcesses_v3(self.device, ctypes.byref(count), room) == 0
        return sum(room[i].used for i in range(count.value))

    def run(self):
        while not self.ended:
            self.peak = max(self.peak, self.held())
            self.readings += 1

    def end(self):
        self.ended = True
        self.join()


class Storm(unittest.TestCase):
    def storm(self, guarded, processes, seconds, least_kib, most_kib, kills=0):
        done = guarded.run([STORM, *map(str, (processes, seconds, SEED, least_kib, most_kib, kills))],
                           timeout=seconds * 5 + 120)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return json.loads(done.stdout)

    def whole_limit_is_free(self, guarded):
        """A fresh process sees all of the limit but its own context, and can take it to the last page."""
        seen = guarded.run_python(CUDA + """
free, total = info()
taken = 0
while allocate(2 * MIB)[0] == 0: taken += 2 * MIB
print(json.dumps({"created": created, "free": free, "total": total, "taken": taken}))
""")
        self.assertEqual(seen["created"], 0, seen)
        self.assertEqual(seen["total"], guarded.limit)
        self.assertEqual(seen["taken"], seen["free"] // (2 * MIB) * 2 * MIB)
        return seen["total"] - seen["free"]

    def test_sixteen_processes_never_hold_a_byte_more_than_the_limit(self):
        seconds = 60 if LONG else 4
        with Guarded(9200) as guarded:
            # The first process learns what a context costs here; the storm begins knowing it.
            oracle = Oracle()
            oracle.start()
            counts = self.storm(guarded, 16, seconds, 64, 6 * 1024)
            oracle.end()
            print(f"\n{counts}, peak {oracle.peak} of {guarded.limit}, {oracle.readings} readings, seed {SEED}")
            self.assertLessEqual(oracle.peak, guarded.limit)
            self.assertGreater(oracle.peak, guarded.limit - 64 * MIB, "the storm reached the limit")
            self.assertGreater(counts["refused"], 100)
            self.assertGreater(counts["allocated"], 100)
            self.whole_limit_is_free(guarded)

    def test_the_proof_sees_a_guard_that_does_not_hold(self):
        with Guarded(1536) as guarded:
            proof = [BIN + "/tranche-gpu-proof", "fences", "1536"]
            self.assertTrue(guarded.run(proof).stdout.strip().endswith(" held"))
            for hook in ("cuMemAlloc_v2", "cuMemGetInfo_v2", "cuDeviceTotalMem_v2", "nvmlDeviceGetMemoryInfo"):
                guarded.without = [hook]
                guarded.fit()
                out = guarded.run(proof).stdout.strip()
                self.assertTrue(out and not out.endswith(" held"), f"without {hook}: {out}")

    def test_killed_processes_leave_nothing(self):
        kills = 10_000 if LONG else 60
        with Guarded(5000) as guarded:
            counts = self.storm(guarded, 8, 600 if LONG else 5, 64, 6 * 1024, kills)
            print(f"\n{counts}, seed {SEED}")
            context = self.whole_limit_is_free(guarded)
            self.assertLess(context, 1024 * MIB)

    def test_a_stopped_process_blocks_nobody(self):
        with Guarded(4000) as guarded:
            child = guarded.start([STORM, "4", "3", str(SEED), "64", "4096"], stdout=subprocess.PIPE, text=True)
            wait_for(lambda: len(guarded.held()) == 4, 20, "all four hold memory")
            chooser = random.Random(SEED)
            stopped = []
            for pid in chooser.sample(sorted(guarded.held()), 2):
                time.sleep(chooser.random() * 0.01)
                os.kill(pid, signal.SIGSTOP)
                stopped.append(pid)
            held = guarded.held()
            seen = guarded.run_python(CUDA + "print(json.dumps({'created': created, 'info': info()}))")
            self.assertEqual(seen["created"], 0, "another task of the same limit is not blocked")
            others = [pid for pid in held if pid not in stopped]
            before = guarded.held()
            wait_for(lambda: any(guarded.held().get(pid) != before.get(pid) for pid in others), 10, "the others go on")
            for pid in stopped:
                os.kill(pid, signal.SIGCONT)
            out, _ = child.communicate(timeout=60)
            self.assertEqual(child.returncode, 0, out)

    def test_without_the_arbiter_what_was_granted_may_be_used(self):
        with Guarded(4000) as guarded:
            child = guarded.start([STORM, "4", "3", str(SEED), "64", "4096"], stdout=subprocess.PIPE, text=True)
            wait_for(lambda: len(guarded.held()) == 4, 20, "all four hold memory")
            oracle = Oracle()
            oracle.start()
            guarded.end_arbiter()
            time.sleep(1)
            guarded.start_arbiter()
            out, _ = child.communicate(timeout=60)
            oracle.end()
            self.assertEqual(child.returncode, 0, out)
            self.assertLessEqual(oracle.peak, guarded.limit)
            self.whole_limit_is_free(guarded)


if __name__ == "__main__":
    sys.argv[1:] = [word for word in sys.argv[1:]]
    unittest.main(verbosity=2)
