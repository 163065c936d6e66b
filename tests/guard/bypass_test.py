"""Ways around a guard, row by row, each with what is to be expected here: `held`, or `escapes` where only hardware, the
driver or a watchdog could hold it. A row that turns out otherwise than it says fails, in either direction: docs and
tiers are written from this table."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

from guarded import EMULATOR, LAB, Guarded

LIMIT_MIB = 1200
TAKE = """
import ctypes, os, subprocess, sys
LIMIT = %d << 20
def take(cuda, name="cuMemAlloc_v2"):
    if cuda.cuInit(0) != 0: return "no driver"
    context = ctypes.c_void_p()
    if cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0) != 0: return "no context"
    taken = 0
    while taken <= LIMIT:
        address = ctypes.c_uint64()
        result = getattr(cuda, name)(ctypes.byref(address), ctypes.c_size_t(100 << 20))
        if result != 0: return "held" if result == 2 and taken else f"error {result}"
        taken += 100 << 20
    return "escapes"
""" % LIMIT_MIB

# Not here: rows that need what an emulated server or this machine has not.
ELSEWHERE = {
    "static cudart": "the CUDA runtime needs a real driver's private tables",
    "cuGetExportTable": "the emulator has no private tables; on a real driver they pass untouched",
    "raw ioctl on /dev/nvidia*": "emulated nodes answer no ioctl; on a real GPU only the watchdog sees it",
    "Docker-in-Docker, nested pods": "needs a container runtime",
    "images with an old C library": "Guard.LoadsOnOldSystems; in containers the guard is not in place yet",
    "NCCL": "needs several real GPUs",
    "Vulkan, OpenGL, NVENC": "nothing draws on an emulated GPU",
    "MPS": "no MPS server runs on an emulated GPU",
}


class Bypass(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.guarded = Guarded(LIMIT_MIB).__enter__()

    @classmethod
    def tearDownClass(cls):
        cls.guarded.__exit__()
        print(f"\n{len(ELSEWHERE)} rows not tried here: " + "; ".join(f"{row} ({why})" for row, why in ELSEWHERE.items()))

    def row(self, program, expected="held", command=None, **options):
        command = command or [sys.executable, "-c", TAKE + program]
        done = self.guarded.run(command, **options)
        answer = done.stdout.strip().splitlines()[-1] if done.stdout.strip() else done.stderr
        self.assertEqual(answer, expected, done.stderr)

    def test_plain(self):
        self.row('print(take(ctypes.CDLL("libcuda.so.1")))')

    def test_the_link_without_a_number(self):
        self.row('print(take(ctypes.CDLL("libcuda.so")))')

    def test_the_drivers_file_by_its_full_path(self):
        self.row(f'print(take(ctypes.CDLL("{EMULATOR}/libcuda.so.1")))')

    def test_library_path_of_the_environment(self):
        self.row('print(take(ctypes.CDLL("libcuda.so.1")))', env={**os.environ, "LD_LIBRARY_PATH": EMULATOR})

    def test_preloaded_driver(self):
        self.row('print(take(ctypes.CDLL("libcuda.so.1")))', env={**os.environ, "LD_PRELOAD": EMULATOR + "/libcuda.so.1"})

    def test_empty_environment(self):
        self.row('print(subprocess.run(["/usr/bin/env", "-i", sys.executable, "-c", '
                 'sys.argv[1]], capture_output=True, text=True).stdout)',
                 command=[sys.executable, "-c", TAKE + 'print(subprocess.run(["/usr/bin/env", "-i", sys.executable, "-c", '
                          'sys.argv[1]], capture_output=True, text=True).stdout)',
                          TAKE + 'print(take(ctypes.CDLL("libcuda.so.1")))'])

    def test_settings_that_other_guards_obey(self):
        knobs = {"CUDA_DISABLE_CONTROL": "true", "TRANCHE_DISABLE": "1", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=80G",
                 "CUDA_DEVICE_MEMORY_LIMIT": "0", "LIBCUDA_LOG_LEVEL": "0"}
        self.row('print(take(ctypes.CDLL("libcuda.so.1")))', env={**os.environ, **knobs})

    def test_a_namespace_of_the_loader(self):
        self.row("""
libc = ctypes.CDLL(None)
libc.dlmopen.restype = libc.dlsym.restype = ctypes.c_void_p
handle = libc.dlmopen(ctypes.c_long(-1), b"libcuda.so.1", 2)
class Namespace:
    def __getattr__(self, name):
        return ctypes.CFUNCTYPE(ctypes.c_int, *TYPES[name])(libc.dlsym(ctypes.c_void_p(handle), name.encode()))
p = ctypes.c_void_p
TYPES = {"cuInit": [ctypes.c_uint], "cuCtxCreate_v2": [p, ctypes.c_uint, ctypes.c_int], "cuMemAlloc_v2": [p, ctypes.c_size_t]}
cuda = Namespace()
cuda_real = take
print(take(cuda))
""")

    def test_dlvsym(self):
        self.row("""
libc = ctypes.CDLL(None)
libc.dlvsym.restype = ctypes.c_void_p
cuda = ctypes.CDLL("libcuda.so.1")
# The driver's names have no versions, so a look-up with one finds nothing to go around with.
found = libc.dlvsym(ctypes.c_void_p(cuda._handle), b"cuMemAlloc_v2", b"libcuda.so.1")
print("held" if not found else "found")
""")

    def test_the_driver_as_the_next_library(self):
        """dlsym(RTLD_NEXT) from the program: what comes after nothing of the guard's is not the driver's."""
        self.row("""
ctypes.CDLL("libcuda.so.1", mode=ctypes.RTLD_GLOBAL)
libc = ctypes.CDLL(None)
libc.dlsym.restype = ctypes.c_void_p
cuda = ctypes.CDLL("libcuda.so.1")
first = libc.dlsym(None, b"cuMemAlloc_v2")
print("held" if first == ctypes.cast(cuda.cuMemAlloc_v2, ctypes.c_void_p).value else "found")
""")

    def test_every_form_that_the_resolver_gives(self):
        self.row("""
cuda = ctypes.CDLL("libcuda.so.1")
assert cuda.cuInit(0) == 0
context = ctypes.c_void_p()
assert cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0) == 0
answers = set()
for name, more in ((b"cuMemAlloc", []), (b"cuMemAllocAsync", [None]), (b"cuMemAllocManaged", [1])):
    for flags in (0, 1, 2):
        for version in (11040, 12000, 12090):
            function, status = ctypes.c_void_p(), ctypes.c_int()
            cuda.cuGetProcAddress_v2(name, ctypes.byref(function), version, ctypes.c_uint64(flags), ctypes.byref(status))
            if not function: continue
            call = ctypes.CFUNCTYPE(ctypes.c_int)(function.value)
            call.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_void_p if m is None else ctypes.c_uint for m in more]
            blocks, result = [], 0
            while result == 0 and len(blocks) < 20:
                address = ctypes.c_uint64()
                result = call(ctypes.addressof(address), 100 << 20, *more)
                if result == 0: blocks.append(address)
            answers.add("held" if result == 2 else f"{name} {flags} {version}: {result}")
            for block in blocks: cuda.cuMemFree_v2(block)
print(" ".join(sorted(answers)))
""")

    def test_many_children(self):
        self.row("""
program = sys.argv[1] if len(sys.argv) > 1 else None
children = [subprocess.Popen([sys.executable, "-c", TEXT], stdout=subprocess.PIPE, text=True) for _ in range(6)]
taken = sum(int(c.communicate()[0]) for c in children)
print("held" if 0 < taken <= LIMIT else f"{taken >> 20} MiB")
""".replace("TEXT", repr("""
import ctypes, time
cuda = ctypes.CDLL("libcuda.so.1")
context = ctypes.c_void_p()
cuda.cuInit(0)
taken = 0
if cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0) == 0:
    address = ctypes.c_uint64()
    while taken <= 2 << 30 and cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(20 << 20)) == 0: taken += 20 << 20
time.sleep(1)
print(taken)
""")))

    def test_a_child_of_fork_has_its_own_account(self):
        self.row("""
cuda = ctypes.CDLL("libcuda.so.1")
reader, writer = os.pipe()
if os.fork() == 0:
    os.write(writer, take(cuda).encode())
    os._exit(0)
print(os.read(reader, 64).decode())
""")

    def test_secure_execution(self):
        """A setuid program: the loader ignores its environment, and finds the guard all the same."""
        compiler = shutil.which("cc")
        if compiler is None:
            self.skipTest("no C compiler")
        folder = tempfile.mkdtemp(dir=LAB)
        self.addCleanup(shutil.rmtree, folder)
        source = """
#include <dlfcn.h>
#include <stdio.h>
int main(void) {
  void* cuda = dlopen("libcuda.so.1", RTLD_NOW);
  int (*init)(unsigned) = dlsym(cuda, "cuInit");
  int (*create)(void**, unsigned, int) = dlsym(cuda, "cuCtxCreate_v2");
  int (*allocate)(unsigned long*, unsigned long) = dlsym(cuda, "cuMemAlloc_v2");
  void* context; unsigned long address; int count = 0, result = 0;
  if (init(0) || create(&context, 0, 0)) return puts("no context"), 0;
  while (count < 20 && (result = allocate(&address, 100ul << 20)) == 0) ++count;
  puts(result == 2 ? "held" : "escapes");
}
"""
        program = folder + "/program"
        subprocess.run([compiler, "-x", "c", "-", "-o", program, "-ldl"], input=source, text=True, check=True)
        os.chmod(folder, 0o755)
        os.chown(program, 0, 0)
        os.chmod(program, 0o4755)
        os.chmod(LAB + "/lib", 0o755)
        command = [*self.guarded.command([program])]
        command[1:1] = ["--user", "alice"]
        done = subprocess.run(command, env={**os.environ, "LD_LIBRARY_PATH": EMULATOR}, capture_output=True, text=True,
                              timeout=60, check=False)
        self.assertEqual(done.stdout.strip(), "held", done.stderr)

    def test_own_mounts(self):
        """Undoing the view needs a right that jobs do not have."""
        command = self.guarded.command(["umount", "/run/tranche-task/driver-cuda.so"])
        command[1:1] = ["--user", "alice"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        self.assertNotEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_own_copy_of_the_driver(self):
        """Only hardware, the driver or the watchdog holds this: `guarded` says so."""
        self.row("""
import shutil
shutil.copy("/run/tranche-task/driver-cuda.so", "/dev/shm/mine.so")
print(take(ctypes.CDLL("/dev/shm/mine.so")))
""", expected="escapes")

    def test_the_driver_under_its_private_name(self):
        """Who knows the name, or reads /proc/self/maps, finds it: as above."""
        self.row('print(take(ctypes.CDLL("libtranche-driver-cuda.so.1")))', expected="escapes")

    def test_a_fake_arbiter(self):
        """The socket's folder belongs to root: a job cannot put its own arbiter there."""
        command = self.guarded.command([sys.executable, "-c",
                                        "import os\ntry: os.unlink('/run/tranche-task/arbiter'); print('gone')\n"
                                        "except OSError as e: print('held')"])
        command[1:1] = ["--user", "alice"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(done.stdout.strip(), "held", done.stderr)

    def test_closing_every_file(self):
        """A program that closes all its descriptors loses the socket; the guard finds it again, and the limit holds."""
        self.row("""
cuda = ctypes.CDLL("libcuda.so.1")
cuda.cuInit(0)
context, total, free = ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_size_t()
cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0)
sockets = [int(f) for f in os.listdir("/proc/self/fd") if f.isdigit() and int(f) > 2 and
           os.path.exists(f"/proc/self/fd/{f}") and os.readlink(f"/proc/self/fd/{f}").startswith("socket:")]
for fd in sockets: os.close(fd)
decoy = os.open("/dev/null", os.O_WRONLY)
taken = 0
while taken <= LIMIT:
    address = ctypes.c_uint64()
    if cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(100 << 20)) != 0: break
    taken += 100 << 20
cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total))
print("held" if sockets and 300 << 20 < taken < LIMIT and total.value == LIMIT else f"{sockets} {taken} {total.value}")
""")


if __name__ == "__main__":
    unittest.main(verbosity=2)
