"""The views agree: at any quiet moment of a random history, what CUDA tells each process, what NVML tells it, what the
arbiter's ledger has, and what the driver holds for the job's processes are one figure. Nobody asks for it: most processes
never look at their memory, and the ledger and the driver are compared before any does.

    views_test.py              some histories (TRANCHE_SEED: only that one); TRANCHE_LONG=1: many
A history: two jobs of three processes on one GPU take and give back memory in every way that the driver has, open each
other's memory, are killed and come again. The driver's figure is the emulator's own account, which knows no limits."""

import collections
import json
import os
import random
import subprocess
import sys
import unittest

import ledger
from guarded import EMULATOR, MIB, Guarded

HERE = os.path.dirname(os.path.abspath(__file__))
LONG = "TRANCHE_LONG" in os.environ
SEEDS = [int(os.environ["TRANCHE_SEED"])] if "TRANCHE_SEED" in os.environ else range(1, 201 if LONG else 4)
# One before lazy loading, one that loads functions when they are asked for alone, and a new one.
RELEASES = ("580", "535", "470")
STEPS, QUIET_EVERY, PROCESSES = 240, 12, 3
LIMITS_MIB = (4096, 2600)
OUT_OF_MEMORY = 2
UNIT = 4096

# Verb: (weight, what it is told). Half of the sizes are small, so that pages are shared.
SIZE = "size"
NUMBER = "number"
VERBS = {"allocate": (10, [SIZE]), "pitched": (3, [SIZE]), "free": (11, [NUMBER]), "managed": (3, [SIZE]),
         "free_managed": (3, [NUMBER]), "flat_array": (3, [SIZE]), "end_array": (3, [NUMBER]), "in_order": (6, [SIZE]),
         "free_in_order": (8, [NUMBER]), "pool": (1, ["threshold"]), "from_pool": (5, [NUMBER, SIZE]), "trim": (2, [NUMBER]),
         "create": (5, [SIZE]), "map": (4, [NUMBER]), "retain": (2, [NUMBER]), "unmap": (4, [NUMBER]), "release": (5, [NUMBER]),
         "graph": (3, [SIZE]), "run_graph": (3, [NUMBER]), "end_graph": (3, [NUMBER]), "trim_graphs": (1, []),
         "context": (1, []), "end_context": (1, [NUMBER]), "module": (3, ["variable"]), "unload": (2, [NUMBER]),
         "variable": (2, [NUMBER]), "launch": (4, [NUMBER]), "listed": (2, [NUMBER]), "library": (3, ["variable"]),
         "unload_library": (2, [NUMBER]), "kernel": (4, [NUMBER]), "rush": (1, [NUMBER]), "stack": (1, ["stack"]), "share": (4, []), "close": (3, [NUMBER]),
         "kill": (1, [])}

# Starts a job's processes; forwards "N JSON" to the N-th of them, and its answer back.
JOB = """
import subprocess, sys
workers = {}
for line in sys.stdin:
    number, word = line.split(" ", 1)
    if word.strip() == "kill" and number in workers:
        worker = workers.pop(number)
        worker.kill()
        worker.wait()
        print("null", flush=True)
        continue
    if number not in workers:
        workers[number] = subprocess.Popen([sys.executable, sys.argv[1]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    worker = workers[number]
    worker.stdin.write(word)
    worker.stdin.flush()
    print(worker.stdout.readline().strip() or '"ended"', flush=True)
"""


class Driver:
    """What the driver holds for each process, read outside of all jobs."""

    PROGRAM = """
import ctypes, json, sys
nvml = ctypes.CDLL(sys.argv[1])
class Process(ctypes.Structure):
    _fields_ = [("pid", ctypes.c_uint32), ("used", ctypes.c_uint64), ("gi", ctypes.c_uint32), ("ci", ctypes.c_uint32)]
device = ctypes.c_void_p()
assert nvml.nvmlInit_v2() == 0 and nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device)) == 0
for _ in sys.stdin:
    count, room = ctypes.c_uint32(64), (Process * 64)()
    assert nvml.nvmlDeviceGetComputeRunningProcesses_v3(device, ctypes.byref(count), room) == 0
    print(json.dumps({room[i].pid: room[i].used for i in range(count.value)}), flush=True)
"""

    def __init__(self):
        self.process = subprocess.Popen([sys.executable, "-c", self.PROGRAM, EMULATOR + "/libnvidia-ml.so.1"],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def held(self):
        self.process.stdin.write("?\n")
        self.process.stdin.flush()
        return {int(pid): used for pid, used in json.loads(self.process.stdout.readline()).items()}

    def end(self):
        self.process.communicate()


class Job:
    def __init__(self, guarded, limit_mib):
        self.limit = limit_mib * MIB
        self.pids, self.unsettled = {}, {}
        self.process = guarded.start([sys.executable, "-c", JOB, HERE + "/worker.py"], limit=self.limit, stdin=subprocess.PIPE,
                                     stdout=subprocess.PIPE, text=True)

    def tell(self, number, verb, *arguments):
        word = "kill" if verb == "kill" else json.dumps([verb, *arguments])
        self.process.stdin.write(f"{number} {word}\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        if verb == "kill":
            self.pids.pop(number, None)
            self.unsettled.pop(number, None)
            return None
        if answer == "ended":
            raise AssertionError(f"process {number} ended at {verb} {arguments}")
        self.pids[number] = answer["pid"]
        self.unsettled[number] = answer["unsettled"]
        return answer

    def end(self):
        self.process.communicate()


class Views(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.counts = collections.Counter()

    def value(self, chooser, kind):
        if kind == SIZE:
            return chooser.choice([chooser.randrange(1, 64 << 10), chooser.randrange(1, 4 * MIB), chooser.randrange(1, 400 * MIB)])
        if kind == "threshold":
            return chooser.choice([0, 1 << 60])
        if kind == "variable":
            return chooser.choice([4, 3 * MIB])
        if kind == "stack":
            return chooser.choice([1024, 8192])
        return chooser.randrange(1000)

    def step(self, chooser, jobs):
        job = chooser.choice(jobs)
        number = chooser.randrange(PROCESSES)
        if number not in job.pids:
            result = job.tell(number, "start")["result"]
            self.counts["start"] += 1
            if result != 0:
                self.assertEqual(result, OUT_OF_MEMORY)
                job.tell(number, "kill")
            return
        verb = chooser.choices(list(VERBS), [weight for weight, _ in VERBS.values()])[0]
        if verb == "kill":
            job.tell(number, "kill")
        elif verb == "share":
            self.share(chooser, job, number)
        else:
            free = job.limit - self.charged(job)
            arguments = [self.value(chooser, kind) for kind in VERBS[verb][1]]
            words = (["elsewhere"] if chooser.random() < 0.3 else []) + [verb, *arguments]
            result = job.tell(number, *words)["result"]
            self.judge(verb, arguments, result, free)
        self.counts[verb] += 1

    def judge(self, verb, arguments, result, free):
        if result == OUT_OF_MEMORY:
            self.counts["refused"] += 1
            if verb in ("allocate", "create"):
                pages = -(-arguments[0] // (2 * MIB)) * 2 * MIB
                self.assertGreater(pages, free, f"{verb} of {arguments[0]} was refused with {free} free")
        else:
            self.assertIn(result, (0, None), f"{verb} {arguments}")

    def share(self, chooser, job, number):
        answer = job.tell(number, "export", chooser.randrange(1000))
        others = [other for other in job.pids if other != number]
        if answer["exported"] is not None and answer["result"] == 0 and others:
            self.assertEqual(job.tell(chooser.choice(others), "open", answer["exported"])["result"], 0)

    def charged(self, job):
        return {entry.job: entry for entry in ledger.usage()}[(1 << 64) - 1 - job.process.pid].charged

    def check_quiet(self, jobs, driver):
        """The ledger against the driver, then what each process sees against both; looking has changed nothing."""
        held = driver.held()
        for job in jobs:
            charged = self.charged(job)
            self.assertLessEqual(charged, job.limit)
            holds = sum(held.get(pid, 0) for pid in job.pids.values())
            early = sum(job.unsettled.values())
            self.assertLessEqual(holds, charged, "the driver holds more than is charged")
            self.assertLessEqual(charged - holds, early + UNIT * 16 * len(job.pids), "more is charged than is held")
            for number in job.pids:
                answer = job.tell(number, "view")
                free = job.limit - charged
                self.assertEqual(answer["result"], 0)
                self.assertEqual(answer["seen"], {"free": free, "total": job.limit, "whole": job.limit, "nvml_free": free,
                                                  "nvml_total": job.limit, "nvml_used": charged})
            self.assertEqual(self.charged(job), charged, "a process that looked made it another figure")
        self.counts["quiet moments"] += 1

    def history(self, guarded, seed):
        chooser = random.Random(seed)
        jobs = [Job(guarded, limit) for limit in LIMITS_MIB]
        driver = Driver()
        done = []
        try:
            for step in range(STEPS):
                self.step(chooser, jobs)
                done.append(step)
                if step % QUIET_EVERY == QUIET_EVERY - 1:
                    self.check_quiet(jobs, driver)
        except AssertionError as fault:
            raise AssertionError(f"TRANCHE_SEED={seed}, after {len(done)} steps: {fault}") from fault
        finally:
            driver.end()
            for job in jobs:
                job.end()
                guarded.children.remove(job.process)

    def test_cuda_nvml_and_ledger_tell_what_the_driver_holds(self):
        for place, release in enumerate(RELEASES):
            seeds = [seed for seed in SEEDS if (seed - 1) % len(RELEASES) == place]
            with Guarded(max(LIMITS_MIB), release=release) as guarded:
                for seed in seeds:
                    self.history(guarded, seed)
        print(f"\n{len(SEEDS)} histories of {STEPS} steps, seeds {SEEDS[0]} to {SEEDS[-1]}, on driver releases {', '.join(RELEASES)}: "
              + ", ".join(f"{count} {what}" for what, count in self.counts.most_common()))


if __name__ == "__main__":
    unittest.main(verbosity=2)
