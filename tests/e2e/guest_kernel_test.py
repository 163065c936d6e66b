"""What the cgroup limits hold on a kernel that has every controller on version 2, as an installed Debian has.

Run by tests/guest_kernel/boot.py; elsewhere it skips. Emulated processors are slow: nothing here has short deadlines.
"""

import os
import sys

import scenario
from scenario import SHARED, wait_until

UNIFIED = "/sys/fs/cgroup"
PROCESSES_MAX = 300

# Starts processes until it is refused, says how many there were, and ends them.
MANY_PROCESSES = """
import os, signal
children = []
try:
    while len(children) < 5000:
        pid = os.fork()
        if pid == 0:
            signal.pause()
        children.append(pid)
except BlockingIOError:
    pass
print(len(children))
for pid in children:
    os.kill(pid, signal.SIGKILL)
"""

# Two processes that compute for as long as the file is missing.
BUSY = "while [ ! -e {folder}/stop ]; do :; done & while [ ! -e {folder}/stop ]; do :; done; wait"


def read(path):
    with open(path, encoding="ascii") as file:
        return file.read()


class GuestKernel(scenario.Scenario):
    def folder_of(self, job):
        """The cgroup of the job's task."""
        for base, _, _ in os.walk(UNIFIED):
            if base.endswith(f"/j{job}/t0.1"):
                return base
        return None

    def running(self, flags, command):
        job = self.server.submit("alice", flags, ["sh", "-c", command])
        self.addCleanup(self.end, job)
        self.server.wait_state(job, "running", seconds=120)
        return job, self.folder_of(job)

    def test_memory_is_held_and_its_end_is_named(self):
        job = self.server.submit("alice", ["--mem", "64M", "-o", f"{SHARED}/memory.out"],
                                 ["python3", "-c", "x = bytearray(512 << 20); print(len(x))"])
        done = self.server.wait(job, timeout=300)[0]
        self.assertEqual(done["state"], "out_of_memory", done)

    def test_limits_are_on_the_tasks_own_cgroup(self):
        _, folder = self.running(["--mem", "64M", "-c", "1", "-o", "/dev/null"], "sleep 600")
        self.assertEqual(int(read(folder + "/memory.max")), 64 << 20)
        user = os.path.dirname(os.path.dirname(folder))
        weights = [int(read(level + "/cpu.weight")) for level in (folder, os.path.dirname(folder), user)]
        self.assertEqual(weights, [20, 20, 20], "a core each: the task, its job, its user")
        with self.subTest("what another job asks for is its user's weight too"):
            other, _ = self.running(["-c", "0.5", "-o", "/dev/null"], "sleep 600")
            self.assertEqual(int(read(user + "/cpu.weight")), 40)
            self.end(other)
            wait_until(lambda: int(read(user + "/cpu.weight")) == 20, 60, "its weight gone with it")
        self.assertGreater(int(read(folder + "/pids.max")), 0)
        self.assertEqual(read(folder + "/memory.swap.max").strip() if os.path.exists(folder + "/memory.swap.max")
                         else "0", "0", "what is over the limit does not go to swap")

    def test_processors_are_shared_by_what_was_asked_for(self):
        os.makedirs(f"{SHARED}/busy")
        heavy, light = [self.running(["-c", cores, "-o", "/dev/null"], BUSY.format(folder=f"{SHARED}/busy"))
                        for cores in ("1.9", "0.1")]
        def used():
            return [int(read(folder + "/cpu.stat").split()[1]) for _, folder in (heavy, light)]
        before = used()
        gone = lambda: [after - first for after, first in zip(used(), before)]
        wait_until(lambda: sum(gone()) > 20_000_000, 600, "20 s of processor time")
        # Both want all of it: 1.9 to 1 by weight, since no task weighs less than one core.
        shown = [(read(f"{level}/cpu.weight").strip(), level) for _, folder in (heavy, light)
                 for level in (folder, os.path.dirname(folder), os.path.dirname(os.path.dirname(folder)))]
        self.assertGreater(2 * gone()[0], 3 * gone()[1], shown)
        with open(f"{SHARED}/busy/stop", "w", encoding="ascii"):
            pass
        for job, _ in (heavy, light):
            self.assertEqual(self.server.wait(job, timeout=300)[0]["state"], "completed")

    def test_the_number_of_processes_is_held(self):
        job = self.server.submit("alice", ["-o", f"{SHARED}/processes.out"], ["python3", "-c", MANY_PROCESSES])
        self.addCleanup(self.end, job)
        done = self.server.wait(job, timeout=600)[0]
        self.assertEqual(done["state"], "completed", done)
        self.assertLess(int(read(f"{SHARED}/processes.out")), PROCESSES_MAX)

    def test_a_job_opens_its_own_gpu_alone(self):
        text = ("for node in 0 1; do if (: </dev/nvidia$node); then echo $node; fi; done 2>/dev/null; "
                "echo has $TRANCHE_JOB_GPUS")
        job = self.server.submit("alice", ["-G", "1", "-o", f"{SHARED}/nodes.out"], ["sh", "-c", text])
        self.assertEqual(self.server.wait(job, timeout=300)[0]["state"], "completed")
        opened, has = read(f"{SHARED}/nodes.out").split("has ")
        self.assertEqual(opened.split(), has.split())

    def test_descendants_end_with_the_job(self):
        text = f"setsid sh -c 'sleep 1000 & sleep 1000' >/dev/null 2>&1 & touch {SHARED}/started; sleep 1000"
        job, folder = self.running(["-o", "/dev/null"], text)
        wait_until(lambda: len(read(folder + "/cgroup.procs").split()) >= 4, 120, "the descendants")
        self.server.tranche("alice", "cancel", str(job))
        self.assertEqual(self.server.wait(job, timeout=300)[0]["state"], "cancelled")
        wait_until(lambda: not os.path.exists(folder), 60, "the end of the task's cgroup")


if __name__ == "__main__":
    if not os.path.exists(UNIFIED + "/cgroup.controllers") or "memory" not in read(UNIFIED + "/cgroup.controllers"):
        print("skipped: the controllers of this kernel are not on cgroup version 2; see tests/guest_kernel/boot.py")
        sys.exit(77)
    scenario.main(board="h100-80:2", drop_in=f"[daemon]\ntask_processes_max = {PROCESSES_MAX}\n")
