"""Every name of the guard is held by a check that a guard without it fails: no check is its own oracle, none is idle.

    hooks_test.py            all names with the whole guard, and a sample of guards that lack one (TRANCHE_SEED)
    TRANCHE_LONG=1           a guard for every name
"""

import json
import os
import random
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import driver_names  # noqa: E402
from guarded import BUILD, EMULATOR, Guarded  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
LIMIT_MIB = 1600
LONG = "TRANCHE_LONG" in os.environ
SEED = int(os.environ.get("TRANCHE_SEED", "5"))
SAMPLE = 8

# What emulated drivers have not: first_driver.c has.
FIRST_DRIVER = {"cuMemAlloc", "cuMemAllocPitch", "cuMemFree", "cuMemGetInfo", "cuDeviceTotalMem", "cuArrayCreate",
                "cuArray3DCreate", "cuMemFreeAsync", "cuMemFreeAsync_ptsz", "cuGetProcAddress_ptsz", "cuGetProcAddress_v2_ptsz",
                *(f"nvmlDeviceGet{kind}RunningProcesses{version}" for kind in ("Graphics", "MPSCompute")
                  for version in ("", "_v2", "_v3"))}


class Hooks(unittest.TestCase):
    def check_one(self, guarded, name):
        done = guarded.run([sys.executable, os.path.join(HERE, "hooks.py"), name],
                           env={**os.environ, "LIMIT_MIB": str(LIMIT_MIB)})
        if done.returncode != 0:
            return f"exit {done.returncode}: {done.stderr[-300:]}"
        return json.loads(done.stdout.splitlines()[-1])

    def stranger(self):
        """A process outside, which a job must not see: it holds memory, and its kernels keep the GPU busy."""
        program = """
import ctypes, sys
cuda = ctypes.CDLL(sys.argv[1])
context, module, function, work = (ctypes.c_void_p() for _ in range(4))
cuda.cuInit(0)
cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0)
ptx = b".version 7.0\\n.target sm_52\\n.address_size 64\\n.visible .entry tranche_busy(.param .u64 us) { ret; }\\n"
assert cuda.cuModuleLoadData(ctypes.byref(module), ptx) == 0
assert cuda.cuModuleGetFunction(ctypes.byref(function), module, b"tranche_busy") == 0
work = ctypes.c_uint64(100_000)
parameters = (ctypes.c_void_p * 1)(ctypes.addressof(work))
print("ready", flush=True)
while True:
    assert cuda.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, None, parameters, None) == 0
    assert cuda.cuCtxSynchronize() == 0
"""
        process = subprocess.Popen([sys.executable, "-c", program, EMULATOR + "/libcuda.so.1"], stdout=subprocess.PIPE)
        process.stdout.readline()
        return process

    def judge(self, guarded, names):
        """Whether each name is held, and of those chosen, what a guard without it does."""
        answers = {name: self.check_one(guarded, name) for name in names}
        self.assertEqual({n: a for n, a in answers.items() if a != "held"}, {})
        chosen = names if LONG else random.Random(SEED).sample(names, min(SAMPLE, len(names)))
        missed = {}
        for name in chosen:
            guarded.without = [name]
            guarded.fit()
            missed[name] = self.check_one(guarded, name)
        guarded.without = []
        idle = [name for name, answer in missed.items() if answer == "held" or answer.startswith(("exit", "absent"))]
        self.assertEqual(idle, [], f"a guard without these passes their checks: {missed}")
        return len(answers), len(missed)

    def test_every_name_is_held_and_missed(self):
        names = driver_names.wrapped_names()
        with Guarded(LIMIT_MIB) as guarded:
            stranger = self.stranger()
            try:
                held, missed = self.judge(guarded, sorted(names - FIRST_DRIVER))
            finally:
                stranger.kill()
                stranger.communicate()
        with Guarded(LIMIT_MIB, driver=BUILD + "/lib/first_driver") as guarded:
            os.environ["FIRST_DRIVER_UUID"] = guarded.status()["uuid"].removeprefix("GPU-").replace("-", "")
            held_there, missed_there = self.judge(guarded, sorted(FIRST_DRIVER))
        print(f"\n{held} names held on an emulated driver and {held_there} on the first API's: {held + held_there} of "
              f"{len(names)}; {missed + missed_there} guards without one, each missed by its check; seed {SEED}")
        self.assertEqual(held + held_there, len(names))


if __name__ == "__main__":
    unittest.main(verbosity=2)
