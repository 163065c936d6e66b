"""A published trace as real processes: the 400 jobs of Muri's testbed (SIGCOMM'22) on 64 emulated GPUs of one server.

    testbed_test.py [--jobs 400] [--divide 12000]

Submission times and durations are those of the trace divided by --divide, no duration below 100 ms; a job for N GPUs is
a gang of N processes with a GPU each, and three users submit in turn. Every job must end well, every rank must have run
exactly once with a GPU of its own, the journal must pass the audit and recompute to the same decisions from its first
event and from each snapshot in it.
"""

import argparse
import collections
import csv
import gzip
import os
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lab"))
from journal_audit import audit  # noqa: E402
from load_test import all_jobs  # noqa: E402
from server import BIN, FINAL, ROOT, USERS, Failed, Server, wait_until  # noqa: E402

TRACE = "shared/traces/muri-sigcomm22/testbed_trace.csv.gz"
FLOOR_SECONDS = 0.1
GPUS = 64
SKIPPED = 77


class Traced:
    def __init__(self, row, number, divide):
        self.tasks = int(row["num_gpu"])
        self.at = int(row["submit_time"]) / 1000 / divide
        self.seconds = max(FLOOR_SECONDS, float(row["duration"]) / 1000 / divide)
        self.user = USERS[number % len(USERS)]
        self.job = None


def read_trace(count, divide):
    for above in ("..", "../.."):
        path = os.path.join(ROOT, above, TRACE)
        if os.path.exists(path):
            with gzip.open(path, "rt", encoding="ascii") as file:
                rows = list(csv.DictReader(file))[:count]
            return [Traced(row, number, divide) for number, row in enumerate(rows)]
    return None


def submit(server, jobs, failures):
    began = time.monotonic()
    try:
        for traced in jobs:
            time.sleep(max(0.0, began + traced.at - time.monotonic()))  # the trace's own time, nothing is awaited
            program = (f"echo $TRANCHE_JOB_ID.$TRANCHE_RANK.$TRANCHE_ATTEMPT $CUDA_VISIBLE_DEVICES >>ran.txt; "
                       f"exec {BIN}/examples/train --seconds {traced.seconds:.3f} --memory 200")
            traced.job = server.submit(traced.user, ["-n", str(traced.tasks), "-G", "1", "-c", "0.01", "-t", "1h", "-o",
                                                     "/dev/null"], ["sh", "-c", program])
    except Exception as failure:  # noqa: BLE001  reported by the main thread
        failures.append(failure)


def judge(jobs, seen):
    faults = []
    for traced in jobs:
        summary = seen.pop(traced.job, None)
        if summary is None:
            faults.append(f"job {traced.job} is lost")
        elif (summary["state"], summary.get("exit_code")) != ("completed", 0):
            faults.append(f"job {traced.job} is {summary['state']}: {summary}")
    return faults + [f"job {number} was accepted twice" for number in seen]


def read_ranks():
    """What the ranks wrote down: (job, attempt) -> the GPU of each."""
    gpus = collections.defaultdict(list)
    for user in USERS:
        with open(f"/run/lab/home/{user}/ran.txt", encoding="ascii") as file:
            for line in file:
                task, gpu = line.split()
                job, _, attempt = task.split(".")
                gpus[(int(job), int(attempt))].append(gpu)
    return gpus


def judge_ranks(jobs, gpus):
    """Each rank ran once in the last attempt, and no two of a gang on one GPU."""
    faults = []
    for traced in jobs:
        held = gpus[(traced.job, max((attempt for job, attempt in gpus if job == traced.job), default=0))]
        if len(held) != traced.tasks or len(set(held)) != traced.tasks:
            faults.append(f"job {traced.job} of {traced.tasks} tasks ran on {held}")
    return faults


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--jobs", type=int, default=400)
    parser.add_argument("--divide", type=float, default=12_000)
    arguments = parser.parse_args()
    jobs = read_trace(arguments.jobs, arguments.divide)
    if jobs is None:
        print(f"skipped: {TRACE} is not beside the repository")
        return SKIPPED
    with Server(board=f"a100-40:{GPUS}") as server:
        failures = []
        began = time.monotonic()
        threads = [threading.Thread(target=submit, args=(server, [job for job in jobs if job.user == user], failures))
                   for user in USERS]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failures:
            raise failures[0]
        wait_until(lambda: all(job["state"] in FINAL for job in all_jobs(server)), 1800, "the end of all jobs")
        took = time.monotonic() - began
        server.assert_nothing_left()
        faults = judge(jobs, {job["job"]: job for job in all_jobs(server)})
        ranks = read_ranks()
        checked = audit(server.journal())
        faults += judge_ranks(jobs, ranks) + checked.faults
        print(server.verify_journal())
        work = sum(job.seconds * job.tasks for job in jobs)
        print(f"{len(jobs)} jobs of {len(USERS)} users, {sum(map(len, ranks.values()))} processes on {GPUS} GPUs: {work:.0f} GPU seconds in "
              f"{took:.0f} s, {work / took / GPUS:.0%} of all; at most {checked.jobs_at_once} jobs at once")
    for fault in faults:
        print("FAULT", fault)
    return 1 if faults else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failed as failure:
        sys.exit(f"FAILED {failure}")
