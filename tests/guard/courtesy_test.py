"""Courtesy: the guard without root. A user's own programs keep to a limit, see it as their GPU, and the tier is named; what
escapes is what it says that it cannot hold; nothing is left."""

import json
import os
import signal
import subprocess
import sys
import time
import unittest

import storm_test
from guarded import BIN, BUILD, EMULATOR, LAB, MIB, Guarded, wait_for
from server import ROOT, Server, bind

LIMIT_MIB = 1600
TAKE = storm_test.CUDA + """
nvml = ctypes.CDLL("libnvidia-ml.so.1")
device, memory = ctypes.c_void_p(), (ctypes.c_uint64 * 3)()
assert nvml.nvmlInit_v2() == 0 and nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device)) == 0
taken = []
result = created
while result == 0 and len(taken) < 400:
    result, address = allocate(20 * MIB)
    if result == 0: taken.append(address)
assert nvml.nvmlDeviceGetMemoryInfo(device, memory) == 0
print(json.dumps({"created": created, "result": result, "taken": len(taken) * 20, "info": info() if created == 0 else None,
                  "nvml": list(memory)}))
"""
# Opens the driver by its path, which no variable of the environment can prevent.
AROUND = TAKE.replace('"libcuda.so.1"', f'"{EMULATOR}/libcuda.so.1"')


class Courtesy(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.guarded = Guarded(LIMIT_MIB, arbiter=False).__enter__()
        for source, target in ((os.path.join(BUILD, "lib", "guard"), LAB + "/lib/guard"), (os.path.join(ROOT, "packaging"), LAB + "/packaging")):
            if not os.path.ismount(target):
                bind(source, target)
        os.chmod(LAB + "/lib", 0o755)

    @classmethod
    def tearDownClass(cls):
        cls.guarded.__exit__()

    def start(self, *words, limit=LIMIT_MIB, **options):
        limits = ["--limit", f"{self.guarded.status()['uuid']}={limit}"] if limit else []
        return Server.as_user("alice", [LAB + "/packaging/tranche-courtesy", "--bin", BIN, "--guard-dir", LAB + "/lib/guard",
                                        "--driver-library-dir", EMULATOR, *limits, *words],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)

    def run_program(self, *words, **options):
        child = self.start(*words, **options)
        out, err = child.communicate(timeout=60)
        return child.returncode, out, err

    def seen(self, program):
        code, out, err = self.run_program("--", sys.executable, "-c", program)
        self.assertEqual(code, 0, err)
        return json.loads(out.splitlines()[-1]), err

    def assert_nothing_left(self):
        left = [name for name in os.listdir("/tmp") if name.startswith("tranche-courtesy.")
                and os.stat("/tmp/" + name).st_uid == 2001]
        self.assertEqual(left, [])

        def programs():
            found = subprocess.run(["ps", "-u", "alice", "-o", "args="], capture_output=True, text=True, check=False).stdout
            return [line for line in found.splitlines() if line]
        wait_for(lambda: not programs(), 10, f"the end of every process: {programs()}")
        self.assertEqual(self.guarded.held(), {})

    def test_a_program_keeps_to_its_limit_and_sees_it(self):
        seen, err = self.seen(TAKE)
        self.assertEqual((seen["created"], seen["result"]), (0, 2))
        free, total = seen["info"]
        self.assertEqual(total, LIMIT_MIB * MIB)
        self.assertLess(free, 20 * MIB)
        self.assertEqual(seen["nvml"], [total, free, total - free])
        self.assertGreater(seen["taken"], 400)
        self.assertLess(seen["taken"], LIMIT_MIB)
        self.assertIn("courtesy: limits hold for programs that leave LD_PRELOAD", err)
        self.assert_nothing_left()

    def test_what_is_killed_is_cleared_away_by_the_next(self):
        child = self.start("--", "sleep", "100")
        wait_for(lambda: self.arbiters() == 1, 20, "its arbiter")
        child.kill()
        child.communicate(timeout=20)
        wait_for(lambda: self.arbiters() == 0, 20, "its arbiter's end")
        self.assertEqual(self.run_program("--", "true")[0], 0)

    def arbiters(self):
        found = subprocess.run(["ps", "-u", "alice", "-o", "comm="], capture_output=True, text=True, check=False).stdout
        return found.split().count("tranche-arbiter")

    def test_its_children_share_the_limit(self):
        program = ("import subprocess, sys\nchildren = [subprocess.Popen([sys.executable, '-c', sys.argv[1]], stdout=subprocess.PIPE,"
                   " text=True) for _ in range(4)]\nprint([c.communicate()[0] for c in children])")
        hold = TAKE + "\nsys.stdout.flush(); time.sleep(1)"
        child = self.start("--quiet", "--", sys.executable, "-c", program, hold)
        peak = 0
        while child.poll() is None:
            peak = max(peak, sum(self.guarded.held().values()))
            time.sleep(0.02)
        out, err = child.communicate()
        self.assertEqual((child.returncode, err), (0, ""), out)
        self.assertTrue(LIMIT_MIB * MIB - 64 * MIB < peak <= LIMIT_MIB * MIB, peak)
        self.assert_nothing_left()

    def test_what_it_says_that_it_cannot_hold_it_does_not(self):
        seen, _ = self.seen(AROUND)
        self.assertEqual(seen["result"], 0)
        self.assertGreater(seen["taken"], LIMIT_MIB)

    def test_the_tier_is_tried_and_named(self):
        code, out, err = self.run_program("--check", limit=None)
        self.assertEqual((code, out), (0, f"{self.guarded.status()['uuid']} courtesy\n"), err)
        self.assertIn("not for setuid or static", err)
        self.assert_nothing_left()

    def test_a_guard_that_does_not_hold_is_named(self):
        folder = LAB + "/broken-guard"
        os.makedirs(folder, exist_ok=True)
        for library in ("cuda", "nvidia-ml"):
            hidden = ["--without", "cuMemAlloc_v2"] if library == "cuda" else []
            subprocess.run([BIN + "/tranche-guard-fit", f"{LAB}/lib/guard/lib{library}.so.1", f"{EMULATOR}/lib{library}.so.1",
                            f"{folder}/lib{library}.so.1", *hidden], check=True)
        code, out, _ = self.run_program("--guard-dir", folder, "--check", limit=None)
        self.assertEqual((code, out), (1, f"{self.guarded.status()['uuid']} unenforced: memory beyond the limit was given\n"))

    def test_exit_codes_and_signals_pass(self):
        self.assertEqual(self.run_program("--", "sh", "-c", "exit 7")[0], 7)
        self.assertEqual(self.run_program("--", "sh", "-c", "kill -9 $$")[0], 137)
        self.assertEqual(self.run_program("--", "/nowhere/program")[0], 127)
        self.assertEqual(self.run_program("--driver-library-dir", "/nowhere", "--", "true")[0], 125)
        self.assertEqual(self.run_program(limit=None)[0], 125)
        for wrong, said in (("4X", "is no size"), ("=", "is no size"), ("99999999", "is no size")):
            code, out, err = self.run_program("--", "true", limit=wrong)
            self.assertEqual((code, out), (125, ""))
            self.assertIn(said, err)
        code, _, err = self.run_program("--limit", "GPU-00000000-0000-0000-0000-000000000000=4G", "--", "true", limit=None)
        self.assertEqual(code, 125)
        self.assertIn("there is no GPU GPU-00000000", err)
        self.assertEqual(self.run_program("--", "true", limit="2G")[0], 0)
        child = self.start("--", "sleep", "100")
        wait_for(lambda: "sleep" in subprocess.run(["ps", "-u", "alice", "-o", "comm="], capture_output=True, text=True,
                                                   check=False).stdout, 20, "the program")
        child.send_signal(signal.SIGTERM)
        child.communicate(timeout=20)
        self.assertEqual(child.returncode, 143)
        self.assert_nothing_left()


if __name__ == "__main__":
    unittest.main(verbosity=2)
