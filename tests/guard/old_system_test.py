"""The guard in an old distribution's own tree: its loader, its C library and its programs, with the guard in front of a
driver that is as old (first_driver.c).

    old_system_test.py          skipped, with its reason, where no tree can be made

The tree is Ubuntu 16.04 (C library 2.23) as debootstrap makes it from the mirror that debootstrap knows, in a folder that
goes with the test; TRANCHE_OLD_TREE=DIR takes one that is there. The arbiter runs outside, as in every job. What the guard
needs of a C library is older still (2.17: Guard.LoadsOnOldSystems); of such there is no tree to be had any more."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

from guarded import BUILD, MIB, RUN, Guarded

RELEASE, LIMIT_MIB = "xenial", 1600
SCRIPTS = "/usr/share/debootstrap/scripts/"

# For Python 3.5. The second thread has its own copies of the guard's thread-local words.
PROGRAM = """
import ctypes, json, os, threading
MIB = 1 << 20
cuda, nvml = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL("libnvidia-ml.so.1")
u64, size_t, pointer, ref = ctypes.c_uint64, ctypes.c_size_t, ctypes.c_void_p, ctypes.byref
class Memory(ctypes.Structure):
    _fields_ = [("total", u64), ("free", u64), ("used", u64)]
def memory():
    answer = Memory()
    assert nvml.nvmlDeviceGetMemoryInfo(device, ref(answer)) == 0
    return answer
def fill():
    blocks, result = [], 0
    while result == 0 and len(blocks) < 4096:
        address = u64()
        result = cuda.cuMemAlloc_v2(ref(address), size_t(64 * MIB))
        if result == 0:
            blocks.append(address)
    return blocks, result
def give(blocks):
    return max(cuda.cuMemFree_v2(block) for block in blocks)
device, context, total = pointer(), pointer(), size_t()
assert nvml.nvmlInit_v2() == 0 and nvml.nvmlDeviceGetHandleByIndex_v2(0, ref(device)) == 0
assert cuda.cuInit(0) == 0 and cuda.cuCtxCreate_v2(ref(context), 0, 0) == 0
assert cuda.cuDeviceTotalMem_v2(ref(total), 0) == 0
first = memory()
blocks, result = fill()
full = memory()
freed = give(blocks)
there = []
thread = threading.Thread(target=lambda: there.append(fill()))
thread.start()
thread.join()
again, result_again = there[0]
give(again)
child = os.fork()
if child == 0:
    os._exit(0)
os.waitpid(child, 0)
last = memory()
maps = open("/proc/self/maps").read()
print(json.dumps({
    "c_library": os.confstr("CS_GNU_LIBC_VERSION"), "total": total.value, "nvml_total": first.total,
    "taken": len(blocks) * 64 * MIB, "refused": result, "freed": freed, "taken_again": len(again) * 64 * MIB,
    "refused_again": result_again, "used_full": full.used, "used_first": first.used, "used_last": last.used,
    "guard": "/guard/libcuda.so.1" in maps}))
"""

# In the view that tranche-guard-run makes: what the job has there comes into the old tree, which then is all there is.
ENTER = """
set -eu
tree=$1
for folder in /run/tranche-task /dev/shm /proc; do mkdir -p "$tree$folder"; mount --rbind $folder "$tree$folder"; done
exec chroot "$tree" /usr/bin/env LD_LIBRARY_PATH=/guard /usr/bin/python3 /guard/program.py
"""


def skip(why):
    print(f"skipped: {why}")
    sys.exit(77)


def make_tree(folder):
    """The tree's path; ends the test where there is none to be had."""
    given = os.environ.get("TRANCHE_OLD_TREE")
    if given:
        return given
    if shutil.which("debootstrap") is None:
        skip("no debootstrap here; ./setup --long installs it")
    with open(SCRIPTS + RELEASE, encoding="utf-8") as file:
        mirrors = dict.fromkeys(re.findall(r"default_mirror (http\S+/ubuntu)\s", file.read()))
    why = "debootstrap knows no mirror of it"
    for place, mirror in enumerate(mirrors):
        tree = f"{folder}/tree-{place}"
        done = subprocess.run(["debootstrap", "--no-check-gpg", "--variant=minbase", "--include=python3", RELEASE, tree, mirror],
                              capture_output=True, text=True, timeout=1500, check=False)
        if done.returncode == 0:
            return tree
        why = (done.stdout + done.stderr).strip().splitlines()[-1]
    skip(f"no tree of {RELEASE} can be made here: {why}")
    return None


class OldSystem(unittest.TestCase):
    tree = None

    def lay_guard(self, tree):
        """As the launcher lays it: the driver's own libraries under the private names that the guard asks for."""
        place = tree + "/guard"
        os.makedirs(place, exist_ok=True)
        for library, private in (("cuda", "cuda"), ("nvidia-ml", "nvml")):
            shutil.copy(f"{RUN}/guard/lib{library}.so.1", place)
            shutil.copy(f"{BUILD}/lib/first_driver/lib{library}.so.1", f"{place}/libtranche-driver-{private}.so.1")
        with open(place + "/program.py", "w", encoding="utf-8") as file:
            file.write(PROGRAM)

    def test_limits_and_views_hold_under_its_c_library(self):
        with Guarded(LIMIT_MIB, driver=BUILD + "/lib/first_driver") as guarded:
            os.environ["FIRST_DRIVER_UUID"] = guarded.status()["uuid"].removeprefix("GPU-").replace("-", "")
            self.lay_guard(self.tree)
            done = guarded.run(["/bin/sh", "-c", ENTER, "enter", self.tree])
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        seen = json.loads(done.stdout.splitlines()[-1])
        print("\n" + json.dumps(seen))
        limit = LIMIT_MIB * MIB
        self.assertEqual(seen["c_library"], "glibc 2.23")
        self.assertTrue(seen["guard"], "the guard's library is not the one that the program has")
        self.assertEqual((seen["total"], seen["nvml_total"]), (limit, limit))
        self.assertEqual((seen["refused"], seen["refused_again"], seen["freed"]), (2, 2, 0))
        self.assertEqual(seen["taken"], seen["taken_again"], "all of it came back, and another thread may have it")
        self.assertLessEqual(seen["used_full"], limit)
        self.assertGreater(seen["taken"], limit - 256 * MIB)
        self.assertEqual(seen["used_last"], seen["used_first"])


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="tranche-old-") as own_folder:
        OldSystem.tree = make_tree(own_folder)
        unittest.main(verbosity=2)
