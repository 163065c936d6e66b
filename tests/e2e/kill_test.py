"""Daemon, launcher and shepherds are killed at random instants while three users' jobs run.

    kill_test.py [--kills 200] [--seed N]

--kills of each are spread over the load; whatever died is started again, as an init system does. Every accepted job ends
in its right state, or as `unknown` if a supervisor of its own was killed; none runs twice in one attempt; nothing is left
and the journal recomputes.
"""

import argparse
import os
import random
import signal
import struct
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import load_test  # noqa: E402
from failpoint_test import Keeper, print_logs  # noqa: E402
from journal_audit import audit  # noqa: E402
from server import Failed, Server, wait_until  # noqa: E402

TASKS = "/run/tranche/tasks"
BACKLOG_MAX = 120  # jobs that wait or run before more are submitted
SHEPHERD_PID = struct.Struct("<52xi")  # of TaskRecord, src/wire/launcher.h


def shepherds():
    """(pid, job) of every shepherd that a record names and that lives."""
    found = []
    for name in os.listdir(TASKS):
        try:
            with open(f"{TASKS}/{name}", "rb") as file:
                pid, = SHEPHERD_PID.unpack_from(file.read(SHEPHERD_PID.size))
            with open(f"/proc/{pid}/comm", encoding="ascii", errors="replace") as file:
                # It keeps the launcher's name until it has begun, and a number may have passed to a stranger.
                if file.read().startswith("tranche-"):
                    found.append((pid, int(name.split(".")[0])))
        except (OSError, ValueError, struct.error):
            continue  # it ended, or is being written
    return found


class Killer:
    def __init__(self, server, keeper, kills, dice):
        self.server, self.keeper, self.dice = server, keeper, dice
        self.left = {"tranched": kills, "launcher": kills, "shepherd": kills}
        self.done = dict.fromkeys(self.left, 0)
        self.orphaned = set()  # jobs that lost a shepherd

    def kill_one(self):
        roles = [role for role, left in self.left.items() if left > 0]
        if not roles:
            return False
        role = self.dice.choice(roles)
        if role == "shepherd":
            alive = shepherds()
            if not alive:
                return True
            pid, job = self.dice.choice(sorted(alive))
            self.orphaned.add(job)
        else:
            pid = self.keeper.pid(role)
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return True
        self.left[role] -= 1
        self.done[role] += 1
        if role != "shepherd":
            wait_until(lambda: not os.path.exists(f"/proc/{pid}") or self.server._is_zombie(pid), 10, "an end")
            self.keeper.mend()
        return True


def judge(server, wanted, orphaned):
    """As load_test's, but that a job which lost a supervisor may honestly be unknown."""
    faults, unknown = [], 0
    ids = {number: job for job in wanted for number in range(job.first, job.first + job.count)}
    seen = {job["job"]: job for job in load_test.all_jobs(server)}
    for number, job in ids.items():
        if number in seen and seen[number]["state"] == "unknown" and number in orphaned:
            unknown += 1
            if seen[number].get("exit_code") is not None:
                faults.append(f"job {number} is unknown and yet has exit code {seen[number]['exit_code']}")
    faults += [fault for fault in load_test.judge(server, wanted)
               if not any(fault.startswith(f"job {number} ") and "is unknown" in fault for number in orphaned)]
    return faults, unknown


def live_jobs(server):
    """How many jobs wait or run; None while nobody answers."""
    try:
        return len(server.json("root", "ls")["jobs"])
    except (Failed, ValueError):
        return None


def has_backlog(server):
    live = live_jobs(server)
    return live is None or live > BACKLOG_MAX


def kill_while(killer, condition):
    """Kills until `condition` is false or all kills are made."""
    while condition():
        if not killer.kill_one():
            return
        time.sleep(killer.dice.random() * 0.1)


def wait_for_ends(server, jobs, patience):
    """Until all have ended: however many there are, and as long as some end."""
    least, deadline = jobs, time.monotonic() + patience
    while True:
        left = live_jobs(server)
        if left == 0:
            return
        if left is not None and left < least:
            least, deadline = left, time.monotonic() + patience
        if time.monotonic() > deadline:
            for job in server.json("root", "ls")["jobs"][:20]:
                print(job)
            raise Failed(f"no job has ended for {patience} s, and {left} have not")
        time.sleep(0.2)


def main():
    long_run = os.environ.get("TRANCHE_LONG") == "1"
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=200 if long_run else 12)
    parser.add_argument("--seed", type=int, default=int(os.environ.get("TRANCHE_SEED", "0")) or int(time.time()))
    arguments = parser.parse_args()
    print(f"seed {arguments.seed} (TRANCHE_SEED={arguments.seed} repeats it)", flush=True)
    dice = random.Random(arguments.seed)
    with Server(board="h100-80:4") as server:
        keeper = Keeper(server)
        killer = Killer(server, keeper, arguments.kills, dice)
        wanted, faults, jobs = [], [], 0
        started = time.monotonic()
        # Batch after batch, until all kills have been made under load.
        while any(killer.left.values()):
            batch = [load_test.random_job(dice, 4) for _ in range(40)]
            threads, failures = load_test.submit_all(server, batch, first=len(wanted))
            wanted += batch
            kill_while(killer, lambda: any(thread.is_alive() for thread in threads))
            for thread in threads:
                thread.join()
            if failures:
                print_logs()
                raise failures[0]
            jobs += sum(job.count for job in batch)
            # What waits is bounded, or the end would be an hour away.
            kill_while(killer, lambda: has_backlog(server))
        keeper.mend()
        try:
            wait_for_ends(server, jobs, 60)
        except Failed:
            print_logs()
            raise
        server.assert_nothing_left(30)
        found, unknown = judge(server, wanted, killer.orphaned)
        counts, twice = load_test.executions()
        faults = found + twice + audit(server.journal()).faults
        print(server.verify_journal())
        print(f"{jobs} jobs, {sum(counts.values())} tasks ran; killed: "
              f"{', '.join(f'{role} {count}' for role, count in killer.done.items())}; {unknown} jobs unknown of "
              f"{len(killer.orphaned)} that lost a shepherd; {time.monotonic() - started:.0f} s; {len(faults)} faults")
    for fault in faults:
        print("FAULT", fault)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
