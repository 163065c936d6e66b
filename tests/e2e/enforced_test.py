"""Driver 615: the driver itself holds each task's cgroup to its part, whatever its programs do, and the tier says so."""

import contextlib
import glob
import json
import os
import re
import signal

import scenario
import driver_limits  # noqa: I001  scenario names the folder
from server import BIN, wait_until
from shares_test import CUDA, MIB

# Goes around the guard: the driver's own library under the name that the guard uses.
AROUND = CUDA.replace('"libcuda.so.1"', '"/run/tranche-task/driver-cuda.so"')
FENCES = "/run/tranche/guard/fences"


@contextlib.contextmanager
def edited(path, change):
    with open(path, encoding="ascii") as file:
        before = file.read()
    with open(path, "w", encoding="ascii") as file:
        file.write(change(before))
    try:
        yield
    finally:
        with open(path, "w", encoding="ascii") as file:
            file.write(before)


class Enforced(scenario.Scenario):
    def hold(self, user, flags, program=CUDA, size=200):
        word = os.path.join(scenario.SHARED, f"held-{user}-{size}")
        job = self.submit(user, flags, ["python3", "-c", program + f"""
gpu = Gpu()
assert gpu.allocate({size} * MIB)[0] == 0
open(sys.argv[1], "w").close()
while True: time.sleep(1)
""", word])
        wait_until(lambda: os.path.exists(word), 20, f"a job of {user} holds memory")
        return job

    def test_the_tier_is_enforced_and_named_everywhere(self):
        job = self.hold("alice", ["--gpu-mem", "2G"])
        wait_until(lambda: self.server.job(job)["tier"] == "enforced", 10, "the task's own fence is known")
        self.assertEqual(self.server.job(job)["shares"][0]["tier"], "enforced")
        text, _ = self.server.tranche("alice", "gpus")
        self.assertIn("enforced", text)
        text, _ = self.server.tranche("alice", "doctor", code=None)
        self.assertIn("fractions are enforced", text)

    def test_who_goes_around_the_guard_is_refused_by_the_driver(self):
        for size in (2, 64):
            seen = self.python_json("alice", ["--gpu-mem", "1G"], AROUND + f"""
gpu = Gpu()
result, blocks = gpu.fill({size} * MIB)
print(json.dumps({{"result": result, "taken": len(blocks) * {size}}}))
""")
            self.assertEqual(seen["result"], 2)
            self.assertLessEqual(seen["taken"], 1024)
            self.assertGreater(seen["taken"], 256)

    def test_a_changed_part_is_the_drivers_limit_too(self):
        word = os.path.join(scenario.SHARED, "more")
        job = self.submit("alice", ["--gpu-mem", "1G"], ["python3", "-c", AROUND + """
gpu = Gpu()
assert gpu.allocate(1000 * MIB)[0] == 2
open(sys.argv[1] + ".refused", "w").close()
while gpu.allocate(1000 * MIB)[0] != 0: time.sleep(0.02)
open(sys.argv[1], "w").close()
while True: time.sleep(1)
""", word])
        wait_until(lambda: os.path.exists(word + ".refused"), 20, "the driver refuses what is beyond the part")
        self.server.tranche("alice", "update", str(job), "--gpu-mem", "3G")
        wait_until(lambda: os.path.exists(word), 20, "the driver gives what the part has now")

    def test_a_static_program_on_the_device_itself_is_refused_by_the_driver(self):
        """Nothing of the guard's is ever loaded into it (tests/guard/raw_device.cc)."""
        program = BIN + "/guard_raw_device"
        if not os.path.exists(program):
            self.skipTest("guard_raw_device is not built")
        for mib, said in ((500, "escapes"), (900, "held")):  # beside a context of 256 MiB
            job = self.submit("alice", ["--gpu-mem", "1G"], [program, str(mib)], wait=True)
            self.assertEqual((job["state"], self.log(job).strip()), ("completed", said), f"{mib} MiB of 1 GiB")

    def test_two_users_share_a_gpu_and_neither_gets_the_others_memory(self):
        first = self.hold("alice", ["--gpu-mem", "50G"], size=201)
        second = self.hold("bob", ["--gpu-mem", "20G"], AROUND, size=202)
        self.assertEqual(self.server.job(first)["gpus"], self.server.job(second)["gpus"])

    def test_managed_memory_which_the_driver_does_not_count_is_held_by_the_guard(self):
        seen = self.python_json("alice", ["--gpu-mem", "1G"], CUDA + """
gpu = Gpu()
address = ctypes.c_uint64()
print(json.dumps([cuda.cuMemAllocManaged(ctypes.byref(address), ctypes.c_size_t(size * MIB), 1) for size in (200, 900)]))
""")
        self.assertEqual(seen, [0, 2])

    def test_limits_go_before_their_cgroups(self):
        for _ in range(3):
            self.python_json("alice", ["--gpu-mem", "1G"], CUDA + "gpu = Gpu(); print('{}')")
        orphan = self.hold("alice", ["--gpu-mem", "1G"], size=204)
        with open(f"/proc/{self.server.job(orphan)['tasks'][0]['pid']}/stat", encoding="ascii") as stat:
            os.kill(int(stat.read().rsplit(")", 1)[1].split()[1]), signal.SIGKILL)  # its shepherd
        self.end(orphan)
        leaves = f"{driver_limits.unified_mount()}/{self.server.cgroup_root}/u*/j{orphan}"
        wait_until(lambda: not glob.glob(leaves), 10, "the launcher has removed what the shepherd left")
        wait_until(lambda: not self.live_shares(), 10, "no job with a part lives")
        self.assertEqual(driver_limits.free_places(self.server, 0), driver_limits.PLACES)

    def live_shares(self):
        return [job["job"] for job in self.server.json("root", "ls")["jobs"]]

    def test_a_changed_driver_is_not_believed_until_it_is_tried_out(self):
        first = self.hold("alice", ["--gpu-mem", "50G"], size=203)
        with edited(FENCES, lambda text: re.sub(r"^driver .*", "driver 550.0", text)):
            out, _ = self.server.tranche("alice", "doctor", code=None)
            self.assertIn("was tried out on driver 550.0", out)
            self.assertIn("unenforced", out)
            rule = "parts of different users do not meet on a GPU here"

            def waits_and_says_so():
                second = self.server.submit("bob", ["-c", "0.1", "--gpu-mem", "20G"], ["true"])
                why, _ = self.server.tranche("bob", "why", str(second))
                self.server.tranche("root", "cancel", str(second), code=None)
                return rule in why

            wait_until(waits_and_says_so, 15, "bob's job waits because parts are not enforced any more")
            self.end(first)
            self.server.up()
            with open(FENCES, encoding="ascii") as file:
                self.assertTrue(file.readline().startswith("driver 615"))
        out, _ = self.server.tranche("alice", "doctor", code=None)
        self.assertIn("fractions are enforced", out)


if __name__ == "__main__":
    scenario.main(board="h100-80:1", emulator=("--driver", "615"))
