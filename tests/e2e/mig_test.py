"""MIG devices on an emulated server: by both libraries, by clients unchanged, and as Tranche sees them."""

import ctypes
import glob
import json
import os
import subprocess
import sys

import scenario
from scenario import BIN, Failed, wait_until

EMULATOR = BIN + "/tranche-emulator"
LIBRARY = "/run/lab/lib/emulator"

# Prints what a program on the driver API sees: devices, memory, multiprocessors, name, and how much it can allocate.
LOOK = f"""
import ctypes, json, sys
cuda = ctypes.CDLL("{LIBRARY}/libcuda.so.1")
code = cuda.cuInit(0)
if code: print(json.dumps({{"init": code}})); sys.exit(0)
count = ctypes.c_int(); cuda.cuDeviceGetCount(ctypes.byref(count))
total, free = ctypes.c_size_t(), ctypes.c_size_t()
sm, name = ctypes.c_int(), ctypes.create_string_buffer(96)
cuda.cuDeviceTotalMem_v2(ctypes.byref(total), 0)
cuda.cuDeviceGetAttribute(ctypes.byref(sm), 16, 0)
cuda.cuDeviceGetName(name, 96, 0)
context, block = ctypes.c_void_p(), ctypes.c_uint64()
cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0); cuda.cuCtxSetCurrent(context)
held = 0
while cuda.cuMemAlloc_v2(ctypes.byref(block), ctypes.c_size_t(256 << 20)) == 0: held += 256
print(json.dumps({{"init": 0, "count": count.value, "total_mib": total.value >> 20, "sm": sm.value,
                  "name": name.value.decode(), "held_mib": held}}), flush=True)
if len(sys.argv) > 1: sys.stdin.read()
"""


def mig(*words, code=0):
    done = subprocess.run([EMULATOR, "mig", *map(str, words)], capture_output=True, text=True, check=False)
    if done.returncode != code:
        raise Failed(f"mig {words}: exit {done.returncode}, not {code}\n{done.stdout}{done.stderr}")
    return done.stdout.strip() if code == 0 else done.stderr


def look(visible=None, user=None):
    environment = {k: v for k, v in os.environ.items() if k != "CUDA_VISIBLE_DEVICES"}
    if visible is not None:
        environment["CUDA_VISIBLE_DEVICES"] = visible
    done = subprocess.run(["python3", "-c", LOOK], env=environment, capture_output=True, text=True, check=True,
                          user=user)
    return json.loads(done.stdout)


class Mig(scenario.Scenario):
    def setUp(self):
        mig("on", "--gpu", 0)

    def tearDown(self):
        mig("destroy", "all", "--gpu", 0)
        mig("off", "--gpu", 0)
        wait_until(lambda: not self.gpu(0)["drained"], 20, "GPU 0 given back")

    def gpu(self, index):
        return self.server.json("alice", "gpus")["gpus"][index]

    def test_a_program_sees_its_device_and_its_memory(self):
        small, large = mig("create", "1g.5gb", "--gpu", 0), mig("create", "3g.20gb@0", "--gpu", 0)
        seen = look(small)
        self.assertEqual((seen["count"], seen["total_mib"], seen["sm"]), (1, 4864, 14))
        self.assertIn("MIG 1g.5gb", seen["name"])
        self.assertLessEqual(seen["held_mib"], 4864, "the instance's memory and no more")
        self.assertGreater(seen["held_mib"], 4000)
        self.assertEqual(look(large)["sm"], 42)
        self.assertEqual(look(small[:20])["total_mib"], 4864, "a UUID may be shortened")
        uuid = self.gpu(0)["uuid"]
        ids = next(d for d in json.loads(mig("list", "--json")) if d["uuid"] == large)
        older = f"MIG-{uuid}/{ids['gpu_instance']}/{ids['compute_instance']}"
        self.assertEqual(look(older)["total_mib"], 19968, "and so may the older form be used")
        self.assertEqual(look("MIG-00000000-1111-2222-3333-444444444444")["init"], 100, "no such device")

    def test_unset_a_process_sees_one_device(self):
        mig("create", "2g.10gb@2", "--gpu", 0)
        mig("create", "1g.5gb@0", "--gpu", 0)
        seen = look()
        self.assertEqual((seen["count"], seen["total_mib"]), (1, 4864), "the first by position")
        self.assertNotIn("MIG", look("1")["name"], "another GPU by its number")

    def test_what_is_in_use_is_not_destroyed(self):
        device = mig("create", "1g.5gb", "--gpu", 0)
        holder = subprocess.Popen(["python3", "-c", LOOK, "stay"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                  env={**os.environ, "CUDA_VISIBLE_DEVICES": device})
        holder.stdout.readline()
        self.assertIn("in use", mig("destroy", device, "--gpu", 0, code=1))
        self.assertIn("in use", mig("reset", "--gpu", 0, code=1))
        holder.communicate()
        mig("destroy", device, "--gpu", 0)
        self.assertEqual(json.loads(mig("list", "--json")), [])

    def test_an_access_node_that_cannot_be_opened_hides_the_device(self):
        device = mig("create", "1g.5gb", "--gpu", 0)
        nodes = [f"/dev/nvidia-caps/{name}" for name in os.listdir("/dev/nvidia-caps")]
        self.assertGreaterEqual(len(nodes), 4, "configuration, monitoring, and two for the device")
        for node in nodes:
            os.chmod(node, 0o600)
        self.assertEqual(look(device, user=2001)["init"], 100)
        for node in nodes:
            os.chmod(node, 0o666)
        self.assertEqual(look(device, user=2001)["init"], 0)

    def test_nvidia_ml_py_sees_what_programs_hold(self):
        root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
        sys.path[1:1] = glob.glob(root + "/.venv/lib/python*/site-packages")
        try:
            import pynvml
        except ImportError:
            self.skipTest("nvidia-ml-py is not installed: run ./setup")
        device = mig("create", "2g.10gb", "--gpu", 0)
        other = mig("create", "1g.5gb", "--gpu", 0)
        holder = subprocess.Popen(["python3", "-c", LOOK, "stay"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                  env={**os.environ, "CUDA_VISIBLE_DEVICES": device})
        holder.stdout.readline()
        real = ctypes.CDLL
        pynvml.CDLL = lambda name: real(f"{LIBRARY}/{name}" if "nvidia-ml" in name else name)
        pynvml.nvmlInit()
        self.addCleanup(pynvml.nvmlShutdown)
        parent = pynvml.nvmlDeviceGetHandleByIndex(0)
        self.assertEqual(pynvml.nvmlDeviceGetMigMode(parent), [1, 1])
        handles = {}
        for number in range(pynvml.nvmlDeviceGetMaxMigDeviceCount(parent)):
            try:
                handle = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(parent, number)
            except pynvml.NVMLError_NotFound:
                continue
            handles[pynvml.nvmlDeviceGetUUID(handle)] = handle
        self.assertEqual(set(handles), {device, other})
        memory = pynvml.nvmlDeviceGetMemoryInfo(handles[device])
        self.assertEqual(memory.total >> 20, 9856)
        self.assertGreater(memory.used, memory.total * 9 // 10)
        self.assertEqual(pynvml.nvmlDeviceGetMemoryInfo(handles[other]).used, 0)
        self.assertEqual(pynvml.nvmlDeviceGetBAR1MemoryInfo(handles[other]).bar1Total >> 20, 8191, "an eighth")
        self.assertEqual([p.pid for p in pynvml.nvmlDeviceGetComputeRunningProcesses(handles[device])], [holder.pid])
        self.assertEqual(pynvml.nvmlDeviceGetComputeRunningProcesses(handles[other]), [])
        listed = pynvml.nvmlDeviceGetComputeRunningProcesses(parent)[0]
        self.assertEqual(listed.gpuInstanceId, pynvml.nvmlDeviceGetGpuInstanceId(handles[device]))
        self.assertEqual(pynvml.nvmlDeviceGetAttributes(handles[device]).multiprocessorCount, 28)
        with self.assertRaises(pynvml.NVMLError_NotSupported):
            pynvml.nvmlDeviceGetUtilizationRates(parent)  # not under MIG
        # The enumeration ends with INVALID_ARGUMENT and skips NOT_SUPPORTED; its numbers are not the profiles' ids.
        profiles = {}
        for query in range(64):
            try:
                info = pynvml.nvmlDeviceGetGpuInstanceProfileInfo(parent, query)
            except pynvml.NVMLError_NotSupported:
                continue
            except pynvml.NVMLError_InvalidArgument:
                break
            profiles[info.id] = (query, info.sliceCount, info.memorySizeMB)
        self.assertEqual(profiles[19], (0, 1, 4864))
        self.assertEqual(profiles[0], (4, 7, 40192))
        with self.assertRaises(pynvml.NVMLError_InsufficientResources):
            for _ in range(8):
                pynvml.nvmlDeviceCreateGpuInstance(parent, 19)
        for instance in (pynvml.nvmlDeviceGetGpuInstanceById(parent, i) for i in range(7, 15)
                         if self.exists(pynvml, parent, i)):
            try:
                pynvml.nvmlGpuInstanceDestroy(instance)
            except pynvml.NVMLError_InUse:
                pass  # `other`, which has a compute instance
        holder.communicate()

    @staticmethod
    def exists(pynvml, parent, instance):
        try:
            pynvml.nvmlDeviceGetGpuInstanceById(parent, instance)
            return True
        except pynvml.NVMLError_NotFound:
            return False

    def test_tranche_sees_the_devices_and_keeps_jobs_away(self):
        first = mig("create", "3g.20gb", "--gpu", 0)
        wait_until(lambda: [d["uuid"] for d in self.gpu(0).get("mig_devices", [])] == [first], 20, "the device is shown")
        gpu = self.gpu(0)
        self.assertTrue(gpu["drained"])
        self.assertIn("MIG mode is on", gpu["reason"])
        self.assertEqual((gpu["mig_devices"][0]["memory_mib"], gpu["mig_devices"][0]["multiprocessors"]), (19968, 42))
        self.assertIn(first, self.server.tranche("alice", "gpus")[0])
        self.refused("root", ["gpus", "undrain", "0"], 1, "MIG mode", "nvidia-smi -i 0 -mig 0")
        self.assertIn("MIG mode is on", self.server.tranche("alice", "doctor", code=None)[0])
        both = self.submit("alice", ["-G", "2"], [BIN + "/examples/train", "--steps", "1"])
        self.assertIn("GPU", self.server.tranche("alice", "why", str(both))[0])
        self.assertEqual(self.server.job(both)["state"], "pending", "not even for a job that wants all")
        done = self.submit("alice", ["-G", "1"], [BIN + "/examples/train", "--steps", "1"], wait=True)
        self.assertEqual((done["state"], done["gpus"]), ("completed", [1]), "jobs get the other GPU")
        self.server.kill_daemon()
        self.server.up()
        self.assertTrue(self.gpu(0)["drained"], "also after a restart")

    def test_what_cannot_be_done_is_said(self):
        self.assertIn("no such instance", mig("destroy", 5, "--gpu", 0, code=1))
        self.assertIn("no GPU 9", mig("on", "--gpu", 9, code=2))
        self.assertIn('"foo" is not known', mig("foo", code=2))
        self.assertIn("mig --help", mig("create", "1g.5gb@99", "--gpu", 0, code=2))
        device = mig("create", "1g.5gb", "--gpu", 0)
        holder = subprocess.Popen(["python3", "-c", LOOK, "stay"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                  env={**os.environ, "CUDA_VISIBLE_DEVICES": device})
        holder.stdout.readline()
        self.assertIn(f"process {holder.pid} uses GPU 0", mig("reboot", code=1))
        holder.communicate()

    def test_no_instance_survives_a_reboot(self):
        mig("create", "7g.40gb", "--gpu", 0)
        mig("reboot")
        self.assertEqual(json.loads(mig("list", "--json")), [])
        self.assertIn("MIG mode on", mig("list"), "Ampere keeps the mode")
        self.assertFalse([n for n in os.listdir("/dev/nvidia-caps") if n not in ("nvidia-cap1", "nvidia-cap2")])


if __name__ == "__main__":
    scenario.main(board="a100-40:2", drop_in='[gpus]\nsample_interval = "100ms"\n')
