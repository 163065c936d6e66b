"""Parts of GPUs hold: a job with a fraction sees its limit as its GPU, everywhere, and gets no byte more."""

import glob
import json
import os
import sys
import time

import scenario
from server import BIN, LAB, Server, bind, wait_until

PYTHON = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", ".venv", "bin", "python3")

# A small CUDA driver-API program: `Gpu` allocates and asks; the script after it prints JSON as its last line.
CUDA = """
import ctypes, json, os, sys, time
cuda = ctypes.CDLL("libcuda.so.1")
MIB = 1 << 20
def check(result, what):
    if result != 0: raise SystemExit(f"{what}: CUDA error {result}")
class Gpu:
    def __init__(self, ordinal=0):
        check(cuda.cuInit(0), "cuInit")
        self.device = ctypes.c_int()
        check(cuda.cuDeviceGet(ctypes.byref(self.device), ordinal), "cuDeviceGet")
        self.context = ctypes.c_void_p()
        self.created = cuda.cuCtxCreate_v2(ctypes.byref(self.context), 0, self.device)
    def info(self):
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        check(cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)), "cuMemGetInfo")
        return free.value, total.value
    def total(self):
        total = ctypes.c_size_t()
        check(cuda.cuDeviceTotalMem_v2(ctypes.byref(total), self.device), "cuDeviceTotalMem")
        return total.value
    def allocate(self, size):
        address = ctypes.c_uint64()
        return cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(size)), address
    def free(self, address):
        check(cuda.cuMemFree_v2(address), "cuMemFree")
    def fill(self, size):
        blocks = []
        while True:
            result, address = self.allocate(size)
            if result != 0: return result, blocks
            blocks.append(address)
"""
NVML = """
ml = ctypes.CDLL("libnvidia-ml.so.1")
class Memory(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("total", "free", "used")]
class Memory2(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint32)] + [(name, ctypes.c_uint64) for name in ("total", "reserved", "free", "used")]
class Process(ctypes.Structure):
    _fields_ = [("pid", ctypes.c_uint32), ("used", ctypes.c_uint64), ("gi", ctypes.c_uint32), ("ci", ctypes.c_uint32)]
class Nvml:
    def __init__(self):
        check(ml.nvmlInit_v2(), "nvmlInit")
        self.device = ctypes.c_void_p()
        check(ml.nvmlDeviceGetHandleByUUID(os.environ["CUDA_VISIBLE_DEVICES"].encode(), ctypes.byref(self.device)), "device")
    def memory(self):
        memory = Memory()
        check(ml.nvmlDeviceGetMemoryInfo(self.device, ctypes.byref(memory)), "memory")
        return [memory.total, memory.free, memory.used]
    def memory2(self):
        memory = Memory2(version=ctypes.sizeof(Memory2) | 2 << 24)
        check(ml.nvmlDeviceGetMemoryInfo_v2(self.device, ctypes.byref(memory)), "memory v2")
        return [memory.total, memory.free, memory.used]
    def pids(self):
        count, room = ctypes.c_uint32(64), (Process * 64)()
        check(ml.nvmlDeviceGetComputeRunningProcesses_v3(self.device, ctypes.byref(count), room), "processes")
        return [room[i].pid for i in range(count.value)]
"""
MIB = 1 << 20


class Shares(scenario.Scenario):
    def gpu_memory(self, index=0):
        """The emulator's own account of a GPU, which knows nothing of jobs: {pid: bytes}."""
        status = json.loads(Server.root(BIN + "/tranche-emulator", "status", "--json"))
        return {p["pid"]: p["memory_bytes"] for p in status["gpus"][index].get("processes", [])}

    def run_cuda(self, flags, program, user="alice"):
        return self.python_json(user, flags, CUDA + NVML + program)

    def test_total_is_the_limit_and_free_what_is_left_of_it(self):
        seen = self.run_cuda(["--gpu-mem", "2G"], """
gpu = Gpu()
before = gpu.info()
_, block = gpu.allocate(300 * MIB)
print(json.dumps({"created": gpu.created, "total": gpu.total(), "before": before, "after": gpu.info()}))
""")
        self.assertEqual(seen["created"], 0)
        self.assertEqual(seen["total"], 2048 * MIB)
        self.assertEqual(seen["before"][1], 2048 * MIB)
        self.assertEqual(seen["before"][0] - seen["after"][0], 300 * MIB)
        self.assertLess(seen["before"][0], 2048 * MIB, "a context is charged to the job that makes it")

    def test_beyond_the_limit_is_out_of_memory_and_the_driver_agrees_to_the_byte(self):
        seen = self.run_cuda(["--gpu-mem", "1G"], """
gpu = Gpu()
result, blocks = gpu.fill(16 * MIB)
free_then, _ = gpu.info()
small, _ = gpu.fill(2 * MIB)
nvml = Nvml()
print(json.dumps({"result": result, "small": small, "free_then": free_then, "free": gpu.info()[0],
                  "nvml": nvml.memory(), "nvml2": nvml.memory2(), "pids": nvml.pids(), "pid": os.getpid()}))
""")
        self.assertEqual((seen["result"], seen["small"]), (2, 2))
        self.assertLess(seen["free_then"], 16 * MIB)
        self.assertLess(seen["free"], 2 * MIB)
        self.assertEqual(seen["nvml"], [1024 * MIB, seen["free"], 1024 * MIB - seen["free"]])
        self.assertEqual(seen["nvml2"], seen["nvml"])
        self.assertEqual(seen["pids"], [seen["pid"]])

    def test_a_part_that_no_context_fits_into_is_refused_when_it_is_asked_for(self):
        for flags, said in ((["--gpu-mem", "10"], "did you mean --gpu-mem 10G?"), (["--gpu-mem", "200M"], "ask for more"),
                            (["-G", "0.001"], "ask for more")):
            for more in ([], ["--dry-run"]):
                _, complaint = self.server.tranche("alice", "submit", *more, *flags, "--", "true", code=2)
                self.assertIn("less than a context of about 520M takes", complaint)
                self.assertIn(said, complaint)

    def test_a_running_job_gets_more_or_less_and_sees_it_without_restart(self):
        word = os.path.join(scenario.SHARED, "resized")
        job = self.submit("alice", ["--gpu-mem", "2G"], ["python3", "-c", CUDA + """
gpu = Gpu()
assert gpu.allocate(1000 * MIB)[0] == 0
tried = []
while True:
    result, block = gpu.allocate(2500 * MIB)
    if result == 0: gpu.free(block)
    with open(sys.argv[1] + ".new", "w") as file:
        json.dump({"total": gpu.info()[1] // MIB, "whole": gpu.total() // MIB, "fits": result == 0}, file)
    os.rename(sys.argv[1] + ".new", sys.argv[1])
    time.sleep(0.02)
""", word])

        def sees(total, fits):
            def look():
                with open(word, encoding="utf-8") as file:
                    return json.load(file) == {"total": total, "whole": total, "fits": fits}
            wait_until(lambda: os.path.exists(word) and look(), 20, f"the program sees {total} MiB")
        sees(2048, False)
        said, _ = self.server.tranche("alice", "update", str(job), "--gpu-mem", "5G")
        self.assertIn("5G of each GPU", said)
        sees(5120, True)
        self.assertEqual(self.server.job(job)["gpu"]["memory_mib"], 5120)
        self.server.tranche("alice", "update", str(job), "--gpu-mem", "2G..4G")
        sees(4096, True)
        _, complaint = self.server.tranche("alice", "update", str(job), "--gpu-mem", "1G", code=None)
        self.assertIn("of a GPU now: it has to give memory back first", complaint)
        _, complaint = self.server.tranche("alice", "update", str(job), "--gpu-mem", "500G", code=None)
        self.assertIn("ask for less", complaint)
        # What it tries for a moment counts while it has it.
        wait_until(lambda: "" == self.server.tranche("alice", "update", str(job), "--gpu-mem", "3G", code=None)[1], 20,
                   "its part is made smaller in a moment in which it holds little")
        sees(3072, False)
        for ended in ("arbiter", "tranched"):
            with open(f"/run/tranche-up/{ended}.pid", encoding="ascii") as file:
                os.kill(int(file.read()), 9)
            self.server.up()
            sees(3072, False)

    def test_freed_memory_may_be_taken_again(self):
        seen = self.run_cuda(["--gpu-mem", "1G"], """
gpu = Gpu()
counts = []
for _ in range(3):
    result, blocks = gpu.fill(50 * MIB)
    counts.append(len(blocks))
    for block in blocks: gpu.free(block)
print(json.dumps({"counts": counts, "free": gpu.info()[0]}))
""")
        self.assertEqual(len(set(seen["counts"])), 1, seen)

    def test_two_jobs_share_a_gpu_and_see_only_themselves(self):
        hold = CUDA + NVML + """
gpu = Gpu()
result, block = gpu.allocate(500 * MIB)
nvml = Nvml()
seen = {"result": result, "pids": nvml.pids(), "pid": os.getpid(), "memory": nvml.memory()}
while not os.path.exists(sys.argv[1]): time.sleep(0.05)
seen["later"] = nvml.pids()
print(json.dumps(seen))
"""
        word = os.path.join(scenario.SHARED, "go")
        jobs = [self.submit(user, ["--gpu-mem", "2G"], ["python3", "-c", hold, word]) for user in ("alice", "alice")]
        for job in jobs:
            self.server.wait_state(job, "running")
        wait_until(lambda: len(self.gpu_memory()) == 2, 20, "both jobs hold memory of GPU 0")
        held = self.gpu_memory()
        self.assertTrue(all(500 * MIB < size <= 2048 * MIB for size in held.values()), held)
        open(word, "w", encoding="ascii").close()
        for job in self.server.wait(*jobs):
            seen = json.loads(self.log(job).splitlines()[-1])
            self.assertEqual(seen["pids"], [seen["pid"]], seen)
            self.assertEqual(seen["later"], [seen["pid"]], seen)
            self.assertEqual(seen["memory"][0], 2048 * MIB)
            self.assertIn(seen["pid"], held)
        os.unlink(word)

    def test_a_whole_gpu_is_untouched(self):
        seen = self.run_cuda(["-G", "1"], """
gpu = Gpu()
print(json.dumps({"info": gpu.info(), "total": gpu.total(), "guard": os.path.exists("/run/tranche-task/arbiter")}))
""")
        self.assertFalse(seen["guard"])
        self.assertGreater(seen["total"], 70 << 30)

    def pypi(self, program, flags=("--gpu-mem", "3G")):
        """Runs a program of the clients' Python inside a job with a part of a GPU; its output."""
        if not os.path.exists(PYTHON):
            self.skipTest("there is no .venv; ./setup makes it")
        # A clone below /root is closed to users: they get the environment through a bind mount.
        venv = LAB + "/venv"
        if not os.path.ismount(venv):
            bind(os.path.dirname(os.path.dirname(PYTHON)), venv)
        site = next(folder for folder in glob.glob(venv + "/lib/python3*/site-packages"))
        job = self.submit("alice", [*flags], ["env", "PYTHONPATH=" + site, "PYTHONDONTWRITEBYTECODE=1",
                                                          "python3", "-c", program], wait=True)
        self.assertEqual(job["state"], "completed", self.log(job))
        return self.log(job)

    def test_cuda_bindings_from_pypi_sees_and_is_refused(self):
        seen = json.loads(self.pypi("""
import json
from cuda.bindings import driver
def check(answer):
    assert answer[0] == 0, answer
    return answer[1] if len(answer) == 2 else answer[1:]
check(driver.cuInit(0) + (None,))
device = check(driver.cuDeviceGet(0))
context = check(driver.cuDevicePrimaryCtxRetain(device))
check(driver.cuCtxSetCurrent(context) + (None,))
total = check(driver.cuDeviceTotalMem(device))
blocks = []
while True:
    result, block = driver.cuMemAlloc(200 << 20)
    if result != 0: break
    blocks.append(block)
free, shown = check(driver.cuMemGetInfo())
print(json.dumps({"total": total, "result": int(result), "blocks": len(blocks), "free": free, "shown": shown}))
""").splitlines()[-1])
        self.assertEqual((seen["total"], seen["shown"], seen["result"]), (3072 * MIB, 3072 * MIB, 2))
        self.assertLess(seen["blocks"] * 200, 3072)
        self.assertLess(seen["free"], 200 * MIB)

    def test_gpustat_and_nvitop_from_pypi_show_the_part(self):
        text = self.pypi("""
import ctypes, gpustat, json, os, sys
cuda = ctypes.CDLL("libcuda.so.1")
context, address = ctypes.c_void_p(), ctypes.c_uint64()
assert cuda.cuInit(0) == 0 and cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0) == 0
assert cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(1 << 30)) == 0
gpus = gpustat.new_query()
from nvitop import Device
device = Device.all()[0]
print(json.dumps({"gpustat": [len(gpus.gpus), gpus[0].memory_total, gpus[0].memory_used, [p["pid"] for p in gpus[0].processes]],
                  "nvitop": [device.memory_total(), device.memory_used(), list(device.processes())], "pid": os.getpid()}))
""")
        seen = json.loads(text.splitlines()[-1])
        count, total, used, pids = seen["gpustat"]
        self.assertEqual((count, total, pids), (1, 3072, [seen["pid"]]))
        self.assertTrue(1024 < used < 3072, used)
        total, used, pids = seen["nvitop"]
        self.assertEqual((total, pids), (3072 * MIB, [seen["pid"]]))
        self.assertTrue(1024 * MIB < used < 3072 * MIB, used)

    def test_a_guard_that_does_not_hold_is_named(self):
        proof = "/run/tranche/guard/fences"
        with open(proof, encoding="ascii") as file:
            before = file.read()
        try:
            with open(proof, "w", encoding="ascii") as file:
                file.write(before.replace(" held", " memory beyond the limit was given", 1))
            out, _ = self.server.tranche("alice", "doctor", code=None)
            self.assertIn("memory beyond the limit was given", out)
            job = self.submit("alice", ["-G", "0.25"], ["sleep", "30"])
            self.assertEqual(self.server.job(job)["tier"], "unenforced")
        finally:
            with open(proof, "w", encoding="ascii") as file:
                file.write(before)

    def test_the_tier_is_named(self):
        job = self.submit("alice", ["-G", "0.25"], ["sleep", "30"])
        self.server.wait_state(job, "running")
        self.assertEqual(self.server.job(job)["tier"], "guarded")
        text, _ = self.server.tranche("alice", "gpus")
        self.assertIn("guarded", text)
        text, _ = self.server.tranche("alice", "doctor", code=None)
        self.assertIn("fractions are guarded", text)

    def test_a_part_holds_over_restarts_for_programs_that_load_the_driver_later(self):
        """The guard's folder is laid under a task's libraries: it outlives stop, start, and another guard in its place."""
        wait = "import os, sys, time\nwhile not os.path.exists(sys.argv[1]): time.sleep(0.02)\n"
        program = wait + CUDA + """
gpu = Gpu()
print(json.dumps({"total": gpu.total(), "info": gpu.info()[1], "beyond": gpu.allocate(3 << 30)[0]}))
"""
        word = os.path.join(scenario.SHARED, "restarted")
        jobs = [self.submit("alice", ["--gpu-mem", "2G"], ["python3", "-c", program, word])]
        self.server.wait_state(jobs[0], "running")
        for changed in (False, True):
            self.server.stop()
            if changed:
                open("/run/tranche/guard/of-another-build", "w", encoding="ascii").close()
            self.server.up()
        jobs.append(self.submit("alice", ["--gpu-mem", "2G"], ["python3", "-c", program, word]))
        self.server.wait_state(jobs[1], "running")
        self.assertEqual(len(glob.glob("/run/tranche/guard.[0-9]*")), 1, "the other one is kept for who runs")
        open(word, "w", encoding="ascii").close()
        for job in self.server.wait(*jobs):
            self.assertEqual(json.loads(self.log(job).splitlines()[-1]),
                             {"total": 2048 * MIB, "info": 2048 * MIB, "beyond": 2})
        self.server.stop()
        self.server.up()
        self.assertEqual(glob.glob("/run/tranche/guard.[0-9]*"), [], "nobody runs")

    def test_a_child_of_fork_hears_what_the_driver_says(self):
        """As without a part: CUDA does not serve a child of a process that had begun with it."""
        program = CUDA + """
cuda.cuInit(0)
if os.fork() == 0:
    context, address = ctypes.c_void_p(), ctypes.c_uint64()
    print(json.dumps([cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0),
                      cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(1 << 20)),
                      cuda.cuMemGetInfo_v2(ctypes.byref(address), ctypes.byref(address))]), flush=True)
    os._exit(0)
os.wait()
"""
        said = [json.loads(self.log(self.server.wait(self.submit("alice", part, ["python3", "-c", program]))[0]))
                for part in (["-G", "1"], ["--gpu-mem", "2G"])]
        self.assertEqual(said[0], [3, 3, 3])
        self.assertEqual(said[1], said[0])

    def test_the_arbiter_may_die_and_come_back(self):
        program = CUDA + """
gpu = Gpu()
_, first = gpu.allocate(4 * MIB)
open(sys.argv[1], "w").close()
while not os.path.exists(sys.argv[2]): time.sleep(0.02)
inside = gpu.allocate(2 * MIB)[0]
refused = gpu.allocate(900 * MIB)[0]
total = gpu.info()[1]
open(sys.argv[3], "w").close()
deadline = time.monotonic() + 20
while gpu.allocate(900 * MIB)[0] != 0 and time.monotonic() < deadline: time.sleep(0.05)
free, _ = gpu.info()
print(json.dumps({"inside": inside, "refused": refused, "total": total, "free": free,
                  "beyond": gpu.allocate(900 * MIB)[0]}))
"""
        words = [os.path.join(scenario.SHARED, f"arbiter-{n}") for n in range(3)]
        job = self.submit("alice", ["--gpu-mem", "2G"], ["python3", "-c", program, *words])
        wait_until(lambda: os.path.exists(words[0]), 20, "the job's first allocation")
        with open("/run/tranche-up/arbiter.pid", encoding="ascii") as file:
            os.kill(int(file.read()), 9)
        time.sleep(0.2)
        open(words[1], "w", encoding="ascii").close()
        wait_until(lambda: os.path.exists(words[2]), 20, "the job goes on without the arbiter")
        report, _ = self.server.tranche("root", "doctor", code=None)
        self.assertIn("the arbiter is not running", report)
        look = CUDA + NVML + """
nvml = Nvml()
print(json.dumps({"nvml": nvml.memory(), "cuda": Gpu().total()}))
"""
        said, _ = self.server.tranche("alice", "exec", str(job), "--", "python3", "-c", look)
        newcomer = json.loads(said.splitlines()[-1])
        late = self.submit("alice", ["--gpu-mem", "2G"], ["python3", "-c", CUDA + "gpu = Gpu()"])
        self.server.wait_state(late, "starting")
        wait_until(lambda: "waits for the arbiter" in self.server.tranche("alice", "why", str(late))[0], 20,
                   "its reason")
        self.server.up()
        seen = json.loads(self.log(self.server.wait(job)[0]).splitlines()[-1])
        ended = self.server.wait(late)[0]
        self.assertEqual(ended["state"], "completed", f"a part that nobody accounts for is not begun: {ended}")
        self.assertEqual(seen["inside"], 0, "what was granted may be used without the arbiter")
        self.assertEqual(seen["refused"], 2, "and nothing more")
        self.assertEqual(seen["total"], 2048 * MIB)
        self.assertEqual(newcomer["nvml"][0], 2048 * MIB, "a process that starts meanwhile sees the part too")
        self.assertEqual(newcomer["nvml"][1], 0, "and that nothing can be taken")
        self.assertEqual(newcomer["cuda"], 2048 * MIB)
        self.assertEqual(seen["beyond"], 2)
        self.assertLess(seen["free"], (2048 - 900) * MIB)
        for word in words:
            os.unlink(word)


if __name__ == "__main__":
    scenario.main(board="h100-80:2")
