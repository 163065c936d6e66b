"""The watchdog, one real process for each grade: a program goes around the guard on a driver that does not hold limits."""

import glob
import json
import os

import scenario
from server import wait_until
from shares_test import CUDA

AROUND = CUDA.replace('"libcuda.so.1"', '"/run/tranche-task/driver-cuda.so"')


class Watchdog(scenario.Scenario):
    def configure(self, **keys):
        text = "".join(f"{key} = {json.dumps(value)}\n" for key, value in keys.items())
        self.server.write_config("[watchdog]\n" + text)
        self.server.tranche("root", "config", "reload")

    def go_around(self, mib):
        word = os.path.join(scenario.SHARED, f"around-{mib}-{self.id().rsplit('.', 1)[1]}")
        job = self.submit("alice", ["--gpu-mem", "1G", "--grace", "1s"], ["python3", "-c", AROUND + f"""
gpu = Gpu()
assert gpu.allocate({mib} * MIB)[0] == 0, "nothing holds this program"
open(sys.argv[1], "w").close()
while True: time.sleep(0.02)
""", word])
        wait_until(lambda: os.path.exists(word), 20, "the program has what it should not")
        return job

    def reason(self, job):
        return self.server.job(job).get("reason", "")

    def test_more_than_the_part_is_reported(self):
        self.configure()
        job = self.go_around(3000)
        wait_until(lambda: "Uses too much" in self.reason(job), 10, "the job's reason says so")
        out, _ = self.server.tranche("alice", "doctor", code=None)
        self.assertIn(f"job {job} of alice holds", out)
        with open("/run/tranche-up/tranched.log", encoding="utf-8") as log:
            self.assertIn("share_exceeded", log.read())
        self.assertEqual(self.server.job(job)["state"], "running")

    def test_what_is_within_the_part_but_past_the_guard_is_reported(self):
        self.configure()
        job = self.go_around(200)
        wait_until(lambda: "go around the guard" in self.reason(job), 10, "the job's reason says so")

    def test_its_gpu_gets_no_new_job_while_it_is_over(self):
        self.configure()
        job = self.go_around(3003)
        wait_until(lambda: "held beyond a part" in self.server.tranche("alice", "gpus")[0], 10, "the GPU is closed")
        self.assertIn(f"job {job} of alice holds", self.server.tranche("alice", "gpus")[0])
        self.assertIn("Uses too much", self.server.tranche("alice", "show", str(job))[0])
        self.assertIn("Uses too much", self.server.tranche("alice", "why", str(job))[0])
        self.assertIn("held beyond a part", self.server.tranche("alice", "doctor", code=None)[0])
        next_job = self.submit("alice", ["--gpu-mem", "1G"], ["true"])
        self.assertEqual(self.server.job(next_job)["state"], "pending")
        self.end(job)
        self.assertEqual(self.server.wait(next_job, timeout=20)[0]["state"], "completed")

    def test_it_is_paused(self):
        self.configure(pause_after="1s")
        job = self.go_around(3001)
        wait_until(lambda: "Is paused by the watchdog" in self.reason(job), 10, "the job is paused")
        pattern = f"/sys/fs/cgroup/**/{self.server.cgroup_root}/u*/j{job}/t0.1/cgroup.events"
        events = glob.glob(pattern, recursive=True)
        self.assertEqual(len(events), 1)
        with open(events[0], encoding="ascii") as file:
            self.assertIn("frozen 1", file.read())

    def test_it_is_ended(self):
        self.configure(end_after="1s")
        job = self.go_around(3002)
        done = self.server.wait(job, timeout=20)[0]
        self.assertEqual(done["state"], "cancelled")
        self.assertIn("ended by the watchdog", done["reason"])


if __name__ == "__main__":
    scenario.main(board="h100-80:1")
