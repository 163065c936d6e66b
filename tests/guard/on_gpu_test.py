"""bench/on-gpu on an emulated GPU, as an ordinary user: its table, its exit codes, and that it leaves nothing."""

import os
import signal
import subprocess
import time
import unittest

from guarded import BIN, BUILD, EMULATOR, LAB, Guarded, wait_for
from server import ROOT, Server, bind

SOURCE = LAB + "/source"


class OnGpu(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.guarded = Guarded(1600, board="h100-80:2", arbiter=False).__enter__()
        bind(BUILD, LAB + "/build")
        for folder in ("bench", "packaging", "tests"):
            bind(os.path.join(ROOT, folder), f"{SOURCE}/{folder}")

    @classmethod
    def tearDownClass(cls):
        cls.guarded.__exit__()

    def start(self, *words, driver=EMULATOR, build=LAB + "/build"):
        driver_words = ["--driver-library-dir", driver] if driver else []
        return Server.as_user("alice", [SOURCE + "/bench/on-gpu", "--build", build, *driver_words, *words], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True)

    def run_it(self, *words, **options):
        child = self.start(*words, **options)
        out, err = child.communicate(timeout=300)
        return child.returncode, out, err

    def settings(self):
        """What `nvidia-smi` could change, and what is in use."""
        return [{key: value for key, value in self.guarded.status(gpu).items()
                 if key in ("uuid", "persistence", "compute_mode", "mig", "power_limit", "processes", "health")} for gpu in (0, 1)]

    def assert_nothing_left(self):
        self.assertEqual([name for name in os.listdir("/tmp") if name.startswith("tranche-on-gpu.")
                          and os.stat("/tmp/" + name).st_uid == 2001], [])
        shown = ["ps", "-u", "alice", "-o", "args="]
        wait_for(lambda: not subprocess.run(shown, capture_output=True, text=True, check=False).stdout.strip(), 10,
                 "the end of every process")

    def test_everything_is_tried_and_nothing_is_left(self):
        before = self.settings()
        code, out, err = self.run_it("--tiny")
        print("\n" + out)
        self.assertEqual((code, err), (0, ""), out)
        for part, least in (("view", 5), ("refusal", 12), ("return", 6), ("storm", 1), ("watchdog", 1), ("overhead", 4)):
            rows = [line for line in out.splitlines() if line.startswith(part)]
            self.assertGreaterEqual(len(rows), least, part)
            self.assertFalse([row for row in rows if "not tried" in row], rows)
        self.assertIn("everything held", out)
        self.assertIn("uid 2001", out)
        self.assertEqual(self.settings(), before)
        self.assert_nothing_left()

    def test_what_does_not_hold_is_said(self):
        folder = LAB + "/broken-guard"
        os.makedirs(folder, exist_ok=True)
        for library in ("cuda", "nvidia-ml"):
            hidden = ["--without", "cuMemAllocPitch_v2"] if library == "cuda" else []
            subprocess.run([BIN + "/tranche-guard-fit", f"{BUILD}/lib/guard/lib{library}.so.1", f"{EMULATOR}/lib{library}.so.1",
                            f"{folder}/lib{library}.so.1", *hidden], check=True)
        code, out, _ = self.run_it("--only", "refusal", "--guard-dir", folder)
        self.assertEqual(code, 1, out)
        self.assertIn("1 did not hold", out)
        self.assertRegex(out, r"refusal +cuMemAllocPitch_v2 +\d+ MiB were given under a limit of 1600")

    def test_where_there_is_nothing_to_run_on_it_says_why(self):
        for options, words in (({"driver": "/nowhere"}, "does not load"), ({"build": "/nowhere"}, "on-gpu-programs"),
                               ({"driver": None}, "no NVIDIA driver was found")):
            code, out, _ = self.run_it(**options)
            self.assertEqual(code, 77, out)
            self.assertIn(words, out)
        self.assertEqual(self.run_it("--gpu", "GPU-00000000-0000-0000-0000-000000000000")[0], 77)
        for words in (["--unknown"], ["--minutes", "many"], ["--only", "nothing"]):
            self.assertEqual(self.run_it(*words)[0], 2)
        self.assert_nothing_left()

    def test_out_of_time_or_ended_it_leaves_nothing(self):
        code, out, _ = self.run_it("--minutes", "0.03")
        self.assertEqual(code, 1, out)
        self.assertIn("stopped after 0.03 minutes", out)
        self.assert_nothing_left()
        child = self.start()
        wait_for(lambda: self.guarded.held() or self.guarded.held(1), 30, "a check that holds memory")
        time.sleep(0.1)
        child.send_signal(signal.SIGTERM)
        child.communicate(timeout=60)
        self.assertEqual(child.returncode, 143)
        self.assert_nothing_left()


if __name__ == "__main__":
    unittest.main(verbosity=2)
