"""A process that is stopped inside a call of the guard blocks nobody: for each of the guard's names, one process is stopped
where the guard has taken what it needs and is about to call the driver, and others of its task, and of another task, do all
that programs do. Then it is killed there, and the ledger is exact.

    stops_test.py            a sample of the names (TRANCHE_SEED); TRANCHE_LONG=1: all"""

import json
import os
import random
import signal
import subprocess
import sys
import time
import unittest

import driver_names
import ledger
from guarded import BUILD, MIB, Guarded, wait_for
from hooks_test import FIRST_DRIVER

HERE = os.path.dirname(os.path.abspath(__file__))
LIMIT_MIB = 2400
LONG = "TRANCHE_LONG" in os.environ
SEED = int(os.environ.get("TRANCHE_SEED", "4"))
SAMPLE = 6

# Runs the check of one name with the driver's own function of that name stopping its process at its first instruction.
STOPPED = """
import ctypes, sys
sys.argv = ["hooks.py", sys.argv[1]]
sys.path.insert(0, %r)
import hooks
name = sys.argv[1]
libc = ctypes.CDLL(None)
libc.dlsym.restype = ctypes.c_void_p
driver = ctypes.CDLL("libtranche-driver-" + ("nvml" if name.startswith("nvml") else "cuda") + ".so.1")
address = ctypes.cast(getattr(driver, name), ctypes.c_void_p).value
# getpid; kill(it, SIGSTOP); for ever. At the function only a jump: the next one may begin 16 bytes on.
code = bytes.fromhex("b827000000 0f05 89c7 be13000000 b83e000000 0f05 ebfe".replace(" ", ""))
libc.mmap.restype = ctypes.c_void_p
place = libc.mmap(None, ctypes.c_size_t(4096), 7, 0x22, -1, ctypes.c_long(0))
ctypes.memmove(place, code, len(code))
assert libc.mprotect(ctypes.c_void_p(address & ~4095), ctypes.c_size_t(8192), 7) == 0
ctypes.memmove(address, bytes.fromhex("48b8") + place.to_bytes(8, "little") + bytes.fromhex("ffe0"), 12)
if name.startswith("cuLibraryLoad"):  # whose check is that the driver is not asked
    hooks.start()
    hooks.load(name)
hooks.CHECKS[name](name)
""" % HERE

# What other processes do meanwhile: a context, memory to the last page, views, and back.
OTHER = """
import ctypes, json
cuda, nvml = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL("libnvidia-ml.so.1")
context, device, address = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_uint64()
free, total, memory = ctypes.c_size_t(), ctypes.c_size_t(), (ctypes.c_uint64 * 3)()
assert cuda.cuInit(0) == 0 and cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0) == 0
taken = []
while cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(8 << 20)) == 0: taken.append(address.value)
assert cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)) == 0
assert nvml.nvmlInit_v2() == 0 and nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device)) == 0
assert nvml.nvmlDeviceGetMemoryInfo(device, memory) == 0
for block in taken: assert cuda.cuMemFree_v2(ctypes.c_uint64(block)) == 0
print(json.dumps({"taken": len(taken) * 8, "free": free.value >> 20, "total": total.value >> 20, "nvml": memory[1] >> 20}))
"""

# A shell's place for the task: starts processes in it, one a line, and says their process ids or what they print.
TASK = """
import subprocess, sys
for line in sys.stdin:
    word = line.strip()
    if word == "other":
        done = subprocess.run([sys.executable, "-c", sys.argv[2]], capture_output=True, text=True, timeout=30)
        print(done.stdout.strip() or repr(done.stderr), flush=True)
    else:
        print(subprocess.Popen([sys.executable, "-c", sys.argv[1], word], stdout=subprocess.DEVNULL).pid, flush=True)
"""


def state_of(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
        return file.read().rsplit(")", 1)[1].split()[0]


class Stops(unittest.TestCase):
    def task(self, guarded):
        return guarded.start([sys.executable, "-c", TASK, STOPPED, OTHER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                             env={**os.environ, "LIMIT_MIB": str(LIMIT_MIB)})

    def tell(self, task, word):
        task.stdin.write(word + "\n")
        task.stdin.flush()
        return task.stdout.readline().strip()

    def others(self, task, what):
        answer = self.tell(task, "other")
        self.assertTrue(answer.startswith("{"), f"{what}: {answer}")
        seen = json.loads(answer)
        self.assertEqual((seen["total"], seen["nvml"]), (LIMIT_MIB, seen["free"]), what)
        self.assertGreater(seen["taken"], 64, what)
        return seen

    def stop_in(self, guarded, tasks, name):
        pid = int(self.tell(tasks[0], name))
        wait_for(lambda: state_of(pid) in "TZ", 30, f"a process that is stopped in {name}")
        self.assertEqual(state_of(pid), "T", f"the check of {name} ended before the driver was called")
        for task in tasks:
            self.others(task, f"while a process is stopped in {name}")
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda: all(entry.charged == 0 for entry in ledger.usage()) and not guarded.held(), 1,
                 f"the exact ledger after a process was killed in {name}")

    def judge(self, names, driver=None):
        options = {} if driver is None else {"driver": driver}
        chosen = names if LONG else random.Random(SEED).sample(names, min(SAMPLE, len(names)))
        with Guarded(LIMIT_MIB, **options) as guarded:
            tasks = [self.task(guarded), self.task(guarded)]
            for name in chosen:
                self.stop_in(guarded, tasks, name)
            for task in tasks:
                task.communicate()
        return len(chosen)

    def test_a_process_stopped_in_any_call_blocks_nobody(self):
        names = sorted(driver_names.wrapped_names() - FIRST_DRIVER)
        began = time.monotonic()
        count = self.judge(names)
        print(f"\nstopped in, and killed in, {count} of {len(names)} names; {time.monotonic() - began:.0f} s, seed {SEED}")


if __name__ == "__main__":
    unittest.main(verbosity=2)
