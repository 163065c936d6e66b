"""What ./try shows: three users' sample jobs (training, inference, interactive) compete for one server's GPUs."""

import argparse
import os
import shutil
import stat
import subprocess
import sys
import time

from server import BIN, FINAL, Failed, Server

NEXT = f"""
What to type next (you are alice; bob and carol are here too):

  tranche gpus                                   every GPU, who holds it, what it does
  tranche run -G 1 -- train --seconds 5          a job in the foreground: it waits its turn, then runs
  tranche submit -G 0.5 -- train --seconds 30    half a GPU, in the background; its log is tranche-ID.out
  tranche ls                                     all users' jobs
  tranche why ID                                 why a job waits, and what would help
  tranche share                                  who is entitled to what, with the arithmetic
  tranche logs -f ID                             follow a job's output
  tranche --help                                 everything else

On your own server: README.md, "On a server".
"""

# What the commands are told through their pipes, so that their tables fit where they are shown.
WIDTH = {"COLUMNS": str(shutil.get_terminal_size().columns)}


class Sample:
    """One job of the demo, and the state that it must end in."""

    def __init__(self, user, name, flags, command, state="completed", interactive_input=None):
        self.user, self.name, self.flags, self.command = user, name, flags, command
        self.state = state
        self.interactive_input = interactive_input
        self.job = None
        self.process = None


def samples(gpus, scale):
    """Training on whole GPUs, a gang, quick inference on slices, an interactive session, and one that overruns."""
    seconds = lambda n: str(max(1, round(n * scale)))
    whole = str(max(1, gpus // 2))
    return [
        Sample("alice", "resnet", ["-G", whole, "-t", "10m"], ["train", "--memory", "4000", "--seconds", seconds(8)]),
        Sample("alice", "bert", ["-G", "1", "-t", "10m"], ["train", "--memory", "8000", "--seconds", seconds(6)]),
        Sample("bob", "gpt-small", ["-G", whole, "-t", "10m"], ["train", "--memory", "6000", "--seconds", seconds(8)]),
        Sample("bob", "sweep", ["-G", "1", "-a", "1-4", "-t", "10m"], ["train", "--memory", "2000", "--seconds", seconds(3)]),
        Sample("bob", "pair", ["-G", "1", "-n", "2", "-t", "10m"], ["train", "--memory", "2000", "--seconds", seconds(4)]),
        Sample("carol", "chat-service", ["-G", "0.25", "--class", "inference", "-t", "10m"],
               ["serve", "--memory", "1000", "--seconds", seconds(10)]),
        Sample("carol", "embed-service", ["-G", "0.25", "--class", "inference", "-t", "10m"],
               ["serve", "--memory", "1000", "--seconds", seconds(10)]),
        Sample("carol", "notebook", ["-G", "0.5", "-t", "10m"], ["notebook"],
               interactive_input="load 500\ncompute 0.5\nfree\n"),
        Sample("alice", "overrun", ["-G", "1", "-t", "3s", "--grace", "1s"],
               ["train", "--memory", "1000", "--seconds", "600"], state="timed_out"),
    ]


def start(server, sample):
    if sample.interactive_input is not None:
        sample.process = server.as_user(sample.user, [BIN + "/tranche", "run", "--quiet", "-J", sample.name, *sample.flags,
                                                      "--", *sample.command],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                        text=True)
        sample.process.stdin.write(sample.interactive_input)
        sample.process.stdin.close()
        return
    sample.job = server.submit(sample.user, ["-J", sample.name, *sample.flags], sample.command)


def show(server, live):
    table, _ = server.tranche("alice", "ls", env=WIDTH)
    gpus, _ = server.tranche("alice", "gpus", env=WIDTH)
    if live:
        sys.stdout.write("\x1b[H\x1b[2J")
    print(f"{gpus}\n{table}", flush=True)


def all_jobs(server):
    return server.json("root", "ls", "-a")["jobs"]


def judge(server, wanted):
    """Prints the final table; returns what went wrong, a sentence each."""
    table, _ = server.tranche("root", "ls", "-a", env=WIDTH)
    print(f"\nThe jobs' final table:\n{table}", flush=True)
    faults = []
    expected = {sample.name: sample.state for sample in wanted}
    seen = {}
    for job in all_jobs(server):
        seen.setdefault(job["name"], []).append(job)
        if job["state"] != expected.get(job["name"], "completed"):
            faults.append(f"job {job['display']} ({job['name']}) is {job['state']}, not {expected.get(job['name'])}")
    faults += [f"job {name} is missing" for name in expected if name not in seen]
    for sample in wanted:
        if sample.process is not None and sample.process.wait(timeout=30) != 0:
            faults.append(f"the foreground job {sample.name} returned {sample.process.returncode}, not 0: "
                          f"{sample.process.stdout.read()}")
    return faults


def compete(server, gpus, seconds, live):
    print("Three users submit: alice trains on whole GPUs, bob brings a sweep and a gang, carol serves models on "
          "slices and opens a notebook.\n", flush=True)
    # Leave a third of the time for waiting in line.
    wanted = samples(gpus, min(1.0, (seconds or 45) / 45))
    for sample in wanted:
        start(server, sample)
    deadline = time.monotonic() + (seconds or 600)
    last = 0.0
    while any(job["state"] not in FINAL for job in all_jobs(server)):
        if time.monotonic() > deadline:
            raise Failed(f"the jobs did not end within {seconds} s; try a larger --seconds")
        if live or time.monotonic() - last >= 5:
            show(server, live)
            last = time.monotonic()
        time.sleep(1.0 if live else 0.5)
    return judge(server, wanted)


def shell(server):
    print(NEXT, flush=True)
    print("This shell is inside the server of the demo; leaving it ends the demo.", flush=True)
    process = server.as_user("alice", ["/bin/bash", "--norc", "-i"], env={"PS1": "alice@tranche:\\w$ "})
    process.wait()


def has_real_gpus():
    try:
        return stat.S_ISCHR(os.stat("/dev/nvidiactl").st_mode)
    except FileNotFoundError:
        return False


def main():
    parser = argparse.ArgumentParser(prog="try", description=__doc__)
    parser.add_argument("--seconds", type=int, help="end by itself within this time")
    parser.add_argument("--board", default="h100-80:4", help="emulated server, e.g. rtx4090:2")
    arguments = parser.parse_args()
    interactive = sys.stdout.isatty() and sys.stdin.isatty() and arguments.seconds is None
    seconds = arguments.seconds or (None if interactive else 60)

    with Server(board=arguments.board, real_gpus=has_real_gpus()) as server:
        gpus = server.json("alice", "gpus")["gpus"]
        kind = "this machine's" if server.real_gpus else "emulated"
        print(f"\nTranche is running on {len(gpus)} {kind} GPUs: {gpus[0]['name']}\n", flush=True)
        faults = compete(server, len(gpus), seconds, live=interactive)
        if interactive:
            shell(server)
        else:
            print(NEXT, flush=True)
            server.assert_nothing_left()
    for fault in faults:
        print(f"try: {fault}", file=sys.stderr)
    print("try: every job ended in its right state" if not faults else "try: failed", flush=True)
    return 1 if faults else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failed as failure:
        sys.exit(f"try: {failure}")
