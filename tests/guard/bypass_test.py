"""Ways around a guard, row by row (MATRIX), each with what is to be expected: `held`, or `escapes` where only hardware,
the driver or a watchdog holds. A way that turns out otherwise than it says fails, in either direction. docs/sharing.md has
the same rows, and this file looks whether it has; what escapes is reported by the watchdog: escapes_test.py."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

from guarded import BIN, EMULATOR, LAB, Guarded

HERE = os.path.dirname(os.path.abspath(__file__))

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

# Every row of the matrix: the tests that try it here and what they expect, or why none can.
HELD, ESCAPES, REPORTED = "held", "escapes", "reported"
MATRIX = {
    "statically linked CUDA runtime": "needs a real driver's private tables; it opens libcuda.so.1, which is tried",
    "driver by its path, an own copy, another namespace of the loader": [
        ("the_drivers_file_by_its_full_path", HELD), ("the_link_without_a_number", HELD), ("a_namespace_of_the_loader", HELD),
        ("dlvsym", HELD), ("the_driver_as_the_next_library", HELD), ("own_copy_of_the_driver", ESCAPES),
        ("the_driver_under_its_private_name", ESCAPES)],
    "cuGetProcAddress with every flag and version": [("every_form_that_the_resolver_gives", HELD)],
    "cuGetExportTable": "the emulator has no private tables; on a real driver they pass untouched, and the watchdog sees more",
    "the device without libcuda": [("the_device_without_libcuda", ESCAPES)],
    "environment emptied or rewritten": [
        ("empty_environment", HELD), ("library_path_of_the_environment", HELD), ("preloaded_driver", HELD),
        ("settings_that_other_guards_obey", HELD)],
    "setuid, and static programs": [("secure_execution", HELD), ("the_device_without_libcuda", ESCAPES)],
    "old C library; mounts undone by root of a container": [("own_mounts", HELD), ("a_fake_arbiter", HELD)],
    "containers in containers": "needs a container runtime",
    "graphs, pools, arrays, further contexts": [
        ("graphs", HELD), ("pools", HELD), ("arrays", HELD), ("further_contexts", HELD)],
    "virtual memory management": [("virtual_memory", HELD)],
    "memory of another process": [("memory_of_another_process", HELD)],
    "managed memory": [("managed_memory", HELD)],
    "contexts, code, stacks": [("stacks", HELD), ("code", HELD)],
    "NCCL": "needs several real GPUs",
    "pinned memory of the host": [("pinned_memory_of_the_host", HELD)],
    "many child processes": [("many_children", HELD), ("a_child_of_fork_has_its_own_account", HELD)],
    "Vulkan, OpenGL, NVENC": "nothing draws on an emulated GPU",
    "own copy of the management library": [("own_copy_of_the_management_library", ESCAPES)],
    "descriptors closed behind the guard": [("closing_every_file", HELD)],
}


class Bypass(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.guarded = Guarded(LIMIT_MIB).__enter__()

    @classmethod
    def tearDownClass(cls):
        cls.guarded.__exit__()
        elsewhere = {row: why for row, why in MATRIX.items() if isinstance(why, str)}
        ways = [way for row in MATRIX.values() if not isinstance(row, str) for way in row]
        print(f"\n{len(MATRIX) - len(elsewhere)} rows with {len(ways)} ways: {sum(e == HELD for _, e in ways)} held, "
              f"{sum(e == ESCAPES for _, e in ways)} escape; {len(elsewhere)} rows not tried here: "
              + "; ".join(f"{row} ({why})" for row, why in elsewhere.items()))

    def test_every_row_is_tried_or_says_why_not_and_is_in_the_documentation(self):
        with open(os.path.join(HERE, "..", "..", "docs", "sharing.md"), encoding="utf-8") as file:
            page = file.read()
        for row, ways in MATRIX.items():
            line = next((line for line in page.splitlines() if line.startswith(f"| {row} |")), None)
            self.assertIsNotNone(line, f"docs/sharing.md has no row: {row}")
            if isinstance(ways, str):
                self.assertIn("not tried", line)
                continue
            for way, expected in ways:
                self.assertTrue(hasattr(self, "test_" + way), way)
                self.assertIn(REPORTED if expected == ESCAPES and "management" not in row else expected, line, way)

    def expect(self, way):
        return next(expected for ways in MATRIX.values() if not isinstance(ways, str) for name, expected in ways if name == way)

    def row(self, program, expected=None, command=None, **options):
        expected = expected or self.expect(self._testMethodName.removeprefix("test_"))
        command = command or [sys.executable, "-c", TAKE + program]
        done = self.guarded.run(command, **options)
        answer = done.stdout.strip().splitlines()[-1] if done.stdout.strip() else done.stderr
        self.assertEqual(answer, expected, done.stderr)

    def test_plain(self):
        self.row('print(take(ctypes.CDLL("libcuda.so.1")))', expected=HELD)

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
""")

    def test_the_driver_under_its_private_name(self):
        """Who knows the name, or reads /proc/self/maps, finds it: as above."""
        self.row('print(take(ctypes.CDLL("libtranche-driver-cuda.so.1")))')

    def test_a_fake_arbiter(self):
        """The socket's folder belongs to root: a job cannot put its own arbiter there."""
        command = self.guarded.command([sys.executable, "-c",
                                        "import os\ntry: os.unlink('/run/tranche-task/arbiter'); print('gone')\n"
                                        "except OSError as e: print('held')"])
        command[1:1] = ["--user", "alice"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(done.stdout.strip(), "held", done.stderr)

    def test_the_device_without_libcuda(self):
        """A static program that asks the device itself, as others do by ioctl: nothing of the guard's is ever loaded."""
        self.row("", command=[BIN + "/guard_raw_device", "1500"], stdin=subprocess.DEVNULL)

    def checks(self, *names):
        """The checks of some of the guard's names (hooks.py), which all must be held: each takes until it is refused."""
        for name in names:
            done = self.guarded.run([sys.executable, os.path.join(HERE, "hooks.py"), name],
                                    env={**os.environ, "LIMIT_MIB": str(LIMIT_MIB)})
            self.assertEqual((name, done.stdout.strip()), (name, '"held"'), done.stderr)

    def test_graphs(self):
        self.checks("cuGraphInstantiateWithFlags", "cuGraphInstantiateWithParams", "cuGraphExecDestroy")

    def test_pools(self):
        self.checks("cuMemAllocAsync", "cuMemAllocFromPoolAsync", "cuMemPoolTrimTo", "cuMemPoolDestroy")

    def test_arrays(self):
        self.checks("cuArrayCreate_v2", "cuArray3DCreate_v2", "cuMipmappedArrayCreate")

    def test_further_contexts(self):
        self.checks("cuCtxCreate_v4", "cuDevicePrimaryCtxRetain", "cuGreenCtxCreate", "cuCtxDestroy_v2")

    def test_virtual_memory(self):
        self.checks("cuMemCreate", "cuMemMap", "cuMemRetainAllocationHandle")

    def test_managed_memory(self):
        self.checks("cuMemAllocManaged")

    def test_stacks(self):
        self.checks("cuCtxSetLimit")

    def test_code(self):
        self.checks("cuModuleLoadData", "cuLibraryLoadData", "cuModuleGetGlobal_v2")

    def test_memory_of_another_process(self):
        """Two processes of the task have the same 300 MiB: they are charged once, to who made them."""
        self.row("""
cuda = ctypes.CDLL("libcuda.so.1")
def info():
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    assert cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)) == 0
    return free.value
class Handle(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_char * 64)]
context, address = ctypes.c_void_p(), ctypes.c_uint64()
handle = Handle()
assert cuda.cuInit(0) == 0 and cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0) == 0
if len(sys.argv) > 1:
    handle = Handle.from_buffer_copy(bytes.fromhex(sys.argv[1]))
    before = info()
    assert cuda.cuIpcOpenMemHandle_v2(ctypes.byref(address), handle, 1) == 0
    opened = info()
    assert cuda.cuIpcCloseMemHandle(address) == 0
    print("held" if before == opened == info() else f"{before} {opened} {info()}")
else:
    cuda.cuCtxDestroy_v2(context)  # room for the other's
    assert cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0) == 0
    assert cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(100 << 20)) == 0
    assert cuda.cuIpcGetMemHandle(ctypes.byref(handle), address) == 0
    print(subprocess.run([sys.executable, "-c", PROGRAM, bytes(handle).hex()], capture_output=True, text=True).stdout)
""".replace("PROGRAM", "open('/proc/self/cmdline').read().split(chr(0))[2]"))

    def test_pinned_memory_of_the_host(self):
        """Counts for the job's memory, which its cgroup holds, and not for its part of the GPU."""
        self.row("""
cuda = ctypes.CDLL("libcuda.so.1")
context, free, total, place = ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_size_t(), ctypes.c_void_p()
assert cuda.cuInit(0) == 0 and cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0) == 0
def info():
    assert cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)) == 0
    return free.value
before = info()
assert cuda.cuMemAllocHost_v2(ctypes.byref(place), ctypes.c_size_t(64 << 20)) == 0
print("held" if info() == before else f"{before} {info()}")
""")

    def test_own_copy_of_the_management_library(self):
        """Sees the whole GPU, and takes none of it."""
        self.row("""
import shutil
shutil.copy("/run/tranche-task/driver-nvml.so", "/dev/shm/nvml.so")
nvml = ctypes.CDLL("/dev/shm/nvml.so")
device, memory = ctypes.c_void_p(), (ctypes.c_uint64 * 3)()
assert nvml.nvmlInit_v2() == 0 and nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device)) == 0
assert nvml.nvmlDeviceGetMemoryInfo(device, memory) == 0
print("held" if memory[0] == LIMIT else "escapes")
""")

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
