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

# Names that no check can tell apart here, and why. What is here is counted and printed.
UNTOLD = {
    "cuCtxSetLimit": "the emulator takes no memory for stacks and heaps",
    "cuModuleLoad": "the emulator takes no memory for code", "cuModuleLoadData": "the emulator takes no memory for code",
    "cuModuleLoadDataEx": "the emulator takes no memory for code",
    "cuModuleLoadFatBinary": "the emulator takes no memory for code",
    "cuLibraryLoadData": "the emulator takes no memory for code",
    "cuLibraryLoadFromFile": "the emulator takes no memory for code",
    "cuModuleUnload": "follows from the loads", "cuLibraryUnload": "follows from the loads",
    "cuModuleGetGlobal_v2": "settled by the next context or module",
    "cuLibraryGetGlobal": "settled by the next context or module",
    "cuMemFreeAsync": "where pools tell what they reserve, that is charged, and read anew at every question",
    "cuMemFreeAsync_ptsz": "the same",
    "cuMemPoolTrimTo": "what it frees is also settled by the next question",
    "cuMemPoolDestroy": "what it frees is also settled by the next question",
    "cuDeviceGraphMemTrim": "what it frees is also settled by the next graph",
    "cuGreenCtxCreate": "the emulator has no green contexts",
    "cuMemAlloc": "32-bit addresses", "cuMemAllocPitch": "32-bit addresses", "cuMemFree": "32-bit addresses",
    "cuMemGetInfo": "32-bit sizes", "cuDeviceTotalMem": "32-bit sizes", "cuArrayCreate": "32-bit sizes",
    "cuArray3DCreate": "32-bit sizes",
    "nvmlDeviceGetGraphicsRunningProcesses": "nothing draws on an emulated GPU",
    "nvmlDeviceGetGraphicsRunningProcesses_v2": "nothing draws on an emulated GPU",
    "nvmlDeviceGetGraphicsRunningProcesses_v3": "nothing draws on an emulated GPU",
    "nvmlDeviceGetMPSComputeRunningProcesses": "no MPS server runs on an emulated GPU",
    "nvmlDeviceGetMPSComputeRunningProcesses_v2": "no MPS server runs on an emulated GPU",
    "nvmlDeviceGetMPSComputeRunningProcesses_v3": "no MPS server runs on an emulated GPU",
    "nvmlDeviceGetProcessUtilization": "needs kernels of two jobs", "nvmlDeviceGetProcessesUtilizationInfo": "the same",
}


class Hooks(unittest.TestCase):
    def check_one(self, guarded, name):
        done = guarded.run([sys.executable, os.path.join(HERE, "hooks.py"), name],
                           env={**os.environ, "LIMIT_MIB": str(LIMIT_MIB)})
        if done.returncode != 0:
            return f"exit {done.returncode}: {done.stderr[-300:]}"
        return json.loads(done.stdout.splitlines()[-1])

    def stranger(self):
        """A process outside, which a job must not see."""
        program = ("import ctypes,sys; c=ctypes.CDLL(sys.argv[1]); c.cuInit(0); x=ctypes.c_void_p();"
                   "c.cuCtxCreate_v2(ctypes.byref(x),0,0); print('ready',flush=True); sys.stdin.read()")
        process = subprocess.Popen([sys.executable, "-c", program, EMULATOR + "/libcuda.so.1"], stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE)
        process.stdout.readline()
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)

    def test_every_name_is_held_and_missed(self):
        names = sorted(driver_names.wrapped_names())
        sys.path.insert(0, HERE)
        with Guarded(LIMIT_MIB) as guarded:
            self.stranger()
            answers = {name: self.check_one(guarded, name) for name in names if name not in UNTOLD}
            absent = [name for name, answer in answers.items() if answer.startswith("absent")]
            not_held = {n: a for n, a in answers.items() if a != "held" and n not in absent}
            self.assertEqual(not_held, {})
            held = [name for name in answers if name not in absent]
            chosen = held if LONG else random.Random(SEED).sample(held, min(SAMPLE, len(held)))
            missed = {}
            for name in chosen:
                guarded.without = [name]
                guarded.fit()
                missed[name] = self.check_one(guarded, name)
            print(f"\n{len(held)} of {len(names)} names held; {len(absent)} absent in this driver: {' '.join(absent)}; "
                  f"{len(UNTOLD)} that nothing tells apart here; {len(chosen)} guards without one, seed {SEED}")
            idle = [name for name, answer in missed.items() if answer == "held" or "exit" in answer]
            self.assertEqual(idle, [], f"a guard without these passes their checks: {missed}")


if __name__ == "__main__":
    unittest.main(verbosity=2)
