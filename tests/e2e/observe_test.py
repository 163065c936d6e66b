"""daemon.mode = "observe": processes of three users on the GPUs of a server without a queue are named and added up, and
nothing is taken, closed or touched."""

import json
import subprocess

import scenario
from scenario import BIN, wait_until
from shares_test import CUDA

DROP_IN = '[daemon]\nmode = "observe"\n[gpus]\nsample_interval = "200ms"\nscan_interval = "1s"\n'
PROGRAM = CUDA + """
gpu = Gpu(int(sys.argv[1]))
check(gpu.allocate(int(sys.argv[2]) * MIB)[0], "cuMemAlloc")
print("up", flush=True)
sys.stdin.readline()
"""


class Observe(scenario.Scenario):
    def use(self, user, gpu, mib):
        """A process of the user, outside of everything, with memory on the GPU until the test ends."""
        process = self.server.as_user(user, ["python3", "-c", PROGRAM, str(gpu), str(mib)], stdin=subprocess.PIPE,
                                      stdout=subprocess.PIPE, text=True, env={"LD_LIBRARY_PATH": self.server.library_dir})
        self.addCleanup(process.wait)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.stdin.close)
        self.assertEqual(process.stdout.readline().strip(), "up")
        return process

    def share(self):
        return {row["path"]: row for row in self.server.json("alice", "share")["queues"]}

    def test_who_uses_what_is_named_and_added_up(self):
        processes = {"alice": self.use("alice", 0, 1000), "bob": self.use("bob", 1, 500), "carol": self.use("carol", 1, 700)}
        rows = wait_until(lambda: (found := self.server.json("alice", "who")["processes"]) and len(found) == 3 and found, 20,
                          "the driver lists three processes")
        seen = {row["user"]: (row["gpu"], row["pid"], row["managed"]) for row in rows}
        self.assertEqual(seen, {"alice": (0, processes["alice"].pid, False), "bob": (1, processes["bob"].pid, False),
                                "carol": (1, processes["carol"].pid, False)})
        gpus, _ = self.server.tranche("alice", "gpus")
        for user in processes:
            self.assertIn(user, gpus)
        # 1 is a thousandth of a GPU hour: 3.6 s, of which bob and carol have half each.
        share = wait_until(lambda: (now := self.share()) and now.get("carol", {}).get("usage_milli_gpu_hours", 0) >= 1 and now,
                           30, "carol has used a thousandth of a GPU hour")
        self.assertEqual({user: share[user]["used_milli"] for user in processes}, {"alice": 1000, "bob": 500, "carol": 500})
        self.assertGreaterEqual(share["alice"]["usage_milli_gpu_hours"], 2 * share["carol"]["usage_milli_gpu_hours"] - 1)
        text, _ = self.server.tranche("alice", "share")
        self.assertIn("GPU hours in all", text)
        top, _ = self.server.tranche("alice", "top")
        self.assertIn("observing only", top)
        self.assertIn("bob", top)
        # Nothing was closed to anybody, nobody was moved, and they go on.
        for gpu in self.server.json("alice", "gpus")["gpus"]:
            self.assertFalse(gpu["drained"], gpu)
        for process in processes.values():
            self.assertIsNone(process.poll())
            with open(f"/proc/{process.pid}/cgroup", encoding="ascii") as file:
                self.assertNotIn(self.server.cgroup_root, file.read())
        before = self.share()["alice"]["usage_milli_gpu_hours"]
        self.server.root(*self.server._up_command("stop"))
        self.server.up()
        self.assertGreaterEqual(self.share()["alice"]["usage_milli_gpu_hours"], before)

    def test_no_job_is_taken(self):
        for words in (["submit", "--", "true"], ["run", "-G", "1", "--", "true"]):
            self.refused("alice", words, 3, "only observes", "tranche share")
        self.assertEqual(self.server.json("root", "ls")["jobs"], [])
        status = json.loads(scenario.request("alice", "GET", "/v1/status").text)
        self.assertTrue(status["mode"].startswith("observe"), status)

    def test_the_configuration_says_it(self):
        done = subprocess.run([BIN + "/tranched", "check-config", self.server.config], capture_output=True, text=True, check=True)
        self.assertIn("Tranche only observes", done.stdout)


if __name__ == "__main__":
    scenario.main(board="h100-80:2", drop_in=DROP_IN)
