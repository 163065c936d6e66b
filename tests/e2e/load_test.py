"""Three Unix users, an emulated server, some hundred jobs of mixed sizes as real processes.

    load_test.py [--jobs 200] [--board h100-80:4] [--kills 3] [--seed N]

Each job must end in its right state with its right exit code, the journal must pass the audit and recompute to
the same decisions, and nothing may be left. With --kills the daemon is killed with -9 that many times under
the load and started again: nothing accepted is lost, nothing runs twice, running jobs are untouched.
"""

import argparse
import collections
import os
import random
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lab"))
from journal_audit import audit  # noqa: E402
from server import BIN, FINAL, USERS, Failed, Server, wait_until  # noqa: E402


class Wanted:
    """One job: how it is submitted, and how it must end."""

    def __init__(self, user, flags, command, state, code=None, signal=None, count=1):
        self.user, self.flags, self.command = user, flags, command
        self.state, self.code, self.signal, self.count = state, code, signal, count
        self.first = None


def marked(text):
    """A shell command that notes each execution in the user's home, then runs `text`."""
    return ["sh", "-c", f"echo $TRANCHE_JOB_ID.$TRANCHE_RANK.$TRANCHE_ATTEMPT >>ran.txt; {text}"]


def random_job(dice, gpus):
    user = dice.choice(USERS)
    length = dice.choice([0, 0.05, 0.1, 0.2, 0.5])
    whole = dice.randint(1, gpus)
    kind = dice.randrange(12)
    if kind <= 3:
        code = dice.choice([0, 0, 0, 1, 3, 77])
        state = "completed" if code == 0 else "failed"
        return Wanted(user, ["-G", str(whole)], marked(f"sleep {length}; exit {code}"), state, code=code)
    if kind <= 6:
        part = dice.choice(["0.1", "0.25", "0.5", "0.75"])
        return Wanted(user, ["-G", part], marked(f"sleep {length}"), "completed", code=0)
    if kind == 7:
        return Wanted(user, ["--gpu-mem", dice.choice(["1G", "3000", "8G"])], marked(f"sleep {length}"), "completed",
                      code=0)
    if kind == 8:
        return Wanted(user, ["-G", "1", "-n", "2"] if gpus > 1 else ["-G", "1"], marked(f"sleep {length}"), "completed",
                      code=0)
    if kind == 9:
        return Wanted(user, ["-G", "1", "-t", "1s", "--grace", "1s"], marked("sleep 600"), "timed_out")
    if kind == 10:
        return Wanted(user, ["-G", "0"], marked("kill -9 $$"), "failed", signal=9)
    return Wanted(user, ["-G", "1", "-a", "1-3%2"], marked(f"sleep {length}"), "completed", code=0, count=3)


def submit_all(server, wanted, first=0):
    """Each user submits from a process of his own; a submission that the daemon's death interrupts is repeated
    under its idempotency key, as a script would. `first`: that number of jobs were submitted before."""
    def submit(user):
        for number, job in enumerate(j for j in wanted if j.user == user):
            command = [BIN + "/tranche", "submit", "--parsable", "--idempotency-key", f"{user}-{first + number}",
                       "-o", "/dev/null", *job.flags, "--", *job.command]
            deadline = time.monotonic() + 60
            while job.first is None:
                process = server.as_user(user, command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                         stdin=subprocess.DEVNULL)
                out, err = process.communicate(timeout=60)
                if process.returncode == 0:
                    job.first = int(out.split()[0])
                elif time.monotonic() > deadline:
                    raise Failed(f"submit as {user}: {err}")
                else:
                    time.sleep(0.1)

    failures = []

    def guarded(user):
        try:
            submit(user)
        except Exception as failure:  # noqa: BLE001  reported by the main thread
            failures.append(failure)

    threads = [threading.Thread(target=guarded, args=(user,)) for user in USERS]
    for thread in threads:
        thread.start()
    return threads, failures


def kill_under_load(server, kills, threads):
    for number in range(kills):
        before = server.journal()[-1][0] if os.path.exists(server.state_dir + "/journal.db") else 0
        wait_until(lambda: server.journal()[-1][0] > before + 60 or not any(t.is_alive() for t in threads), 60,
                   "enough events between two kills")
        server.kill_daemon()
        server.up()
        print(f"  kill {number + 1}: after row {server.journal()[-1][0]}", flush=True)


def all_jobs(server):
    jobs, cursor = [], []
    while True:
        page = server.json("root", "ls", "-a", *cursor)
        jobs += page["jobs"]
        if not page.get("next_cursor"):
            return jobs
        cursor = ["--cursor", page["next_cursor"]]


def judge(server, wanted):
    faults = []
    by_id = {job["job"]: job for job in all_jobs(server)}
    for job in wanted:
        for number in range(job.first, job.first + job.count):
            seen = by_id.pop(number, None)
            what = f"job {number} of {job.user} ({' '.join(job.flags)}: {job.command[2]})"
            if seen is None:
                faults.append(f"{what} is lost")
            elif seen["state"] != job.state:
                faults.append(f"{what} is {seen['state']}, not {job.state}: {seen.get('reason')}")
            elif job.code is not None and seen.get("exit_code") != job.code:
                faults.append(f"{what} has exit code {seen.get('exit_code')}, not {job.code}")
            elif job.signal is not None and seen.get("signal") != job.signal:
                faults.append(f"{what} has signal {seen.get('signal')}, not {job.signal}")
    faults += [f"job {number} was accepted twice" for number in by_id]
    return faults


def executions():
    """What the jobs themselves wrote down: each (job, rank, attempt) at most once."""
    lines = []
    for user in USERS:
        path = f"/run/lab/home/{user}/ran.txt"
        if os.path.exists(path):
            with open(path, encoding="ascii") as file:
                lines += file.read().split()
    counts = collections.Counter(lines)
    return counts, [f"task {task} ran {count} times" for task, count in counts.items() if count > 1]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--board", default="h100-80:4")
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--seed", type=int, default=int(os.environ.get("TRANCHE_SEED", "1")))
    arguments = parser.parse_args()
    print(f"seed {arguments.seed} (TRANCHE_SEED={arguments.seed} repeats it)", flush=True)
    dice = random.Random(arguments.seed)
    started = time.monotonic()
    with Server(board=arguments.board) as server:
        gpus = len(server.json("alice", "gpus")["gpus"])
        wanted = [random_job(dice, gpus) for _ in range(arguments.jobs)]
        threads, failures = submit_all(server, wanted)
        kill_under_load(server, arguments.kills, threads)
        for thread in threads:
            thread.join()
        if failures:
            raise failures[0]
        submitted = time.monotonic()
        wait_until(lambda: all(job["state"] in FINAL for job in all_jobs(server)), 300, "the end of all jobs")
        ended = time.monotonic()
        server.assert_nothing_left()
        faults = judge(server, wanted)
        counts, twice = executions()
        checked = audit(server.journal())
        faults += twice + checked.faults
        print(server.verify_journal())
        print(f"{sum(job.count for job in wanted)} jobs of {len(USERS)} users on {gpus} GPUs: submitted in "
              f"{submitted - started:.1f} s, ended after {ended - started:.1f} s; {sum(counts.values())} tasks ran, at "
              f"most {checked.jobs_at_once} jobs at once, GPUs promised up to {max(checked.peak.values())} milli; "
              f"{arguments.kills} kills")
    for fault in faults:
        print("FAULT", fault)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
