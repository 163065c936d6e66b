"""Daemon, launcher, shepherd and tranche-memory-limit die at every place where one of them writes or speaks to another.

    failpoint_test.py [--share 10] [--seed N] [--roles daemon,launcher,shepherd,memory-limit]

A fixed scenario of five jobs runs again and again on one server; the n-th place that a role comes by kills the process
there as kill -9 does, for n = 1, 2, ... until a run ends without reaching the n-th. Whatever died is started again, as an
init system does. Each time: no accepted job is lost, none runs twice in one attempt, exit codes are right or honestly
`unknown`, and a job that runs all the while is never touched. --share N tries each n with chance 1 in N (CI); the long
run tries all.
"""

import argparse
import collections
import contextlib
import mmap
import os
import random
import struct
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lab"))
from journal_audit import audit  # noqa: E402
import driver_limits  # noqa: E402
from server import FINAL, LAB, Failed, Server  # noqa: E402

ROLES = ("daemon", "launcher", "shepherd", "memory-limit")
SLOT = struct.Struct("<QQ48s")  # src/base/failpoint.h


class Table:
    """The file that the processes map: for each role the place to die at, the count, and where it died."""

    def __init__(self, path):
        with open(path, "wb") as file:
            file.write(bytes(SLOT.size * len(ROLES)))
        # The daemon's user counts in it as well.
        os.chmod(path, 0o666)
        self.file = open(path, "r+b")
        self.memory = mmap.mmap(self.file.fileno(), 0)

    def arm(self, role, n):
        for number, name in enumerate(ROLES):
            SLOT.pack_into(self.memory, number * SLOT.size, n if name == role else 0, 0, b"")

    def seen(self, role):
        _, passed, name = SLOT.unpack_from(self.memory, ROLES.index(role) * SLOT.size)
        return passed, name.rstrip(b"\0").decode()


class Keeper:
    """Starts again what has died, as an init system does."""

    def __init__(self, server):
        self.server = server
        self.restarts = 0

    def pid(self, name):
        try:
            with open(f"/run/tranche-up/{name}.pid", encoding="ascii") as file:
                return int(file.read())
        except (FileNotFoundError, ValueError):
            return 0

    def is_dead(self):
        for name in ("tranched", "launcher"):
            pid = self.pid(name)
            if pid == 0 or not os.path.exists(f"/proc/{pid}") or self.server._is_zombie(pid):
                return True
        return False

    def mend(self):
        """A process may die once more while it starts; then it is started once more."""
        for _ in range(3):
            if not self.is_dead():
                return
            self.restarts += 1
            try:
                self.server.up()
            except Failed:
                continue
        if self.is_dead():
            raise Failed("daemon or launcher does not start again")


RAN = "ran.txt"


def marked(text):
    return ["sh", "-c", f"echo $TRANCHE_JOB_ID.$TRANCHE_RANK.$TRANCHE_ATTEMPT >>{RAN}; {text}"]


# (flags, command, states, exit code): what must become of it.
JOBS = [
    (["-G", "1"], marked("exit 0"), "completed", 0),
    (["-G", "0.5"], marked("exit 7"), "failed", 7),
    (["-G", "1", "-n", "2"], marked("sleep 0.02"), "completed", 0),
    (["-G", "0"], marked("kill -9 $$"), "failed", None),
    (["-G", "1"], marked("sleep 600"), "cancelled", None),  # once it runs
]


class Scenario:
    def __init__(self, server, keeper, table):
        self.server, self.keeper, self.table = server, keeper, table
        self.round = 0
        self.faults = []
        self.unknown = 0
        self.broken_gangs = 0

    def submit(self, number, flags, command):
        key = f"round-{self.round}-{number}"
        deadline = time.monotonic() + 60
        while True:
            self.keeper.mend()
            out, err = self.server.tranche("alice", "submit", "--parsable", "--idempotency-key", key, "-c", "0.1", "-o",
                                           "/dev/null", *flags, "--", *command, code=None, timeout=60)
            if self.server.last_code == 0:
                return int(out.split()[0])
            if time.monotonic() > deadline:
                raise Failed(f"submit: {err}")
            time.sleep(0.02)

    def show(self, job):
        deadline = time.monotonic() + 60
        while True:
            self.keeper.mend()
            try:
                return self.server.job(job)
            except (Failed, ValueError):
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.02)

    def cancel_when_running(self, job):
        deadline = time.monotonic() + 60
        while self.show(job)["state"] in ("pending", "starting"):
            if time.monotonic() > deadline:
                raise Failed(f"job {job} does not start")
            time.sleep(0.01)
        while self.show(job)["state"] not in (*FINAL, "stopping"):
            self.server.tranche("alice", "cancel", str(job), code=None, timeout=60)

    def run(self, role, n):
        """One run with the n-th place of `role` armed. Whether that place was reached."""
        self.round += 1
        self.table.arm(role, n)
        jobs = [self.submit(number, flags, command) for number, (flags, command, _, _) in enumerate(JOBS)]
        self.cancel_when_running(jobs[-1])
        deadline = time.monotonic() + 90
        ends = {}
        for job in jobs:
            while True:
                seen = self.show(job)
                if seen["state"] in FINAL:
                    ends[job] = seen
                    break
                if time.monotonic() > deadline:
                    passed, name = self.table.seen(role)
                    raise Failed(f"{role}, place {n} of {passed} ({name}): job {job} stays {seen['state']}: "
                                 f"{seen.get('reason')}")
                time.sleep(0.01)
        self.keeper.mend()
        passed, name = self.table.seen(role)
        self.judge(role, n, name, jobs, ends)
        return passed >= n, name

    def judge(self, role, n, name, jobs, ends):
        for job, (flags, command, state, code) in zip(jobs, JOBS):
            seen = ends[job]
            what = f"{role} died at place {n} ({name}): job {job} ({' '.join(flags)}: {command[2].split('; ')[-1]})"
            if seen["state"] == "unknown":
                self.unknown += 1
                if seen.get("exit_code") is not None:
                    self.faults.append(f"{what} is unknown and yet has exit code {seen['exit_code']}")
            elif seen["state"] != state and "-n" in flags and "supervisor was lost" in (seen.get("reason") or ""):
                self.broken_gangs += 1  # one rank never started, another may have run: it is not tried again by itself
            elif seen["state"] != state:
                self.faults.append(f"{what} is {seen['state']}, not {state}: {seen.get('reason')}")
            elif code is not None and seen.get("exit_code") != code:
                self.faults.append(f"{what} has exit code {seen.get('exit_code')}, not {code}")


def executions():
    path = f"/run/lab/home/alice/{RAN}"
    with open(path, encoding="ascii") as file:
        counts = collections.Counter(file.read().split())
    return [f"task {task} ran {count} times" for task, count in counts.items() if count > 1]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--share", type=int, default=1 if os.environ.get("TRANCHE_LONG") == "1" else 10)
    parser.add_argument("--seed", type=int, default=int(os.environ.get("TRANCHE_SEED", "0")) or int(time.time()))
    parser.add_argument("--roles", default=",".join(ROLES))
    parser.add_argument("--from", dest="first", type=int, default=1)
    arguments = parser.parse_args()
    print(f"seed {arguments.seed} (TRANCHE_SEED={arguments.seed} repeats it), 1 place in {arguments.share}", flush=True)
    dice = random.Random(arguments.seed)
    table = Table(LAB + "/failpoints")
    os.environ["TRANCHE_FAILPOINTS"] = LAB + "/failpoints"
    # A driver that holds limits itself, so that they are set and taken away too.
    with Server(board="h100-80:4", emulator=("--driver", "615")) as server:
        keeper = Keeper(server)
        scenario = Scenario(server, keeper, table)
        bystander = server.submit("bob", ["-G", "1", "-c", "0.1", "-o", "/dev/null"], ["sleep", "86400"])
        server.wait_state(bystander, "running", user="bob")
        bystander_pid = server.job(bystander, "bob")["tasks"][0]["pid"]
        # A run without a death: how many places there are, about; the end is where a run does not reach the n-th.
        scenario.run("daemon", 0)
        tried = collections.Counter()
        places = {}
        by_name = collections.defaultdict(collections.Counter)
        for role in arguments.roles.split(","):
            n = arguments.first
            while True:
                if arguments.share > 1 and n > 1 and dice.randrange(arguments.share) != 0:
                    n += 1
                    if n > 20_000:
                        raise Failed("there is no end of places")
                    continue
                try:
                    reached, name = scenario.run(role, n)
                except Failed:
                    print_logs()
                    print(subprocess.run(["sh", "-c", "ls -la /run/tranche/tasks; ps axo pid,ppid,stat,args | tail -40"],
                                         capture_output=True, text=True, check=False).stdout)
                    raise
                if not reached:
                    places[role] = n - 1
                    break
                tried[role] += 1
                by_name[role][name] += 1
                n += 1
            print(f"  {role}: {tried[role]} places tried of about {places[role]}: "
                  f"{', '.join(f'{name} {count}' for name, count in sorted(by_name[role].items()))}", flush=True)
        table.arm("daemon", 0)
        now = scenario.show(bystander)
        if now["state"] != "running" or server.job(bystander, "bob")["tasks"][0]["pid"] != bystander_pid:
            scenario.faults.append(f"the bystander was touched: {now}")
        os.kill(bystander_pid, 0)
        server.tranche("bob", "cancel", str(bystander))
        server.wait(bystander, user="bob")
        server.assert_nothing_left(20)
        scenario.faults += [f"limits of {driver_limits.PLACES - free} tasks are left on GPU {gpu}" for gpu in range(4)
                            if (free := driver_limits.free_places(server, gpu)) != driver_limits.PLACES]
        faults = scenario.faults + executions() + audit(server.journal()).faults
        print(server.verify_journal())
        print(f"{sum(tried.values())} deaths in {scenario.round} runs of five jobs, {keeper.restarts} restarts, "
              f"{scenario.unknown} jobs ended unknown, {scenario.broken_gangs} gangs lost a rank before its start, "
              f"{len(faults)} faults")
    for fault in faults:
        print("FAULT", fault)
    return 1 if faults else 0


def print_logs(lines=30):
    for name in ("tranched", "launcher"):
        with contextlib.suppress(OSError):
            with open(f"/run/tranche-up/{name}.log", encoding="utf-8", errors="replace") as file:
                print(f"--- {name}.log\n" + "".join(file.readlines()[-lines:]), flush=True)


if __name__ == "__main__":
    sys.exit(main())
