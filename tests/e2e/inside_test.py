"""Commands inside running jobs, shells as jobs, and the live page: with real terminals."""

import json
import os
import pty
import select
import signal
import subprocess
import time

import scenario
from scenario import BIN, SHARED, wait_until

# What a process sees of its place: cgroup, namespaces, GPUs that open, identity, environment.
LOOK = """
import glob, json, os
def opens(path):
    try:
        os.close(os.open(path, os.O_RDWR))
        return True
    except OSError:
        return False
print(json.dumps({
    "cgroup": [line for line in open("/proc/self/cgroup").read().splitlines() if line.startswith("0::")],
    "memory": [line for line in open("/proc/self/cgroup").read().splitlines() if ":memory:" in line],
    "mount": os.readlink("/proc/self/ns/mnt"), "ipc": os.readlink("/proc/self/ns/ipc"),
    "gpus": [path for path in sorted(glob.glob("/dev/nvidia[0-9]*")) if opens(path)],
    "ids": [os.getuid(), os.getgid(), sorted(os.getgroups())], "directory": os.getcwd(),
    "job": os.environ["TRANCHE_JOB_ID"], "visible": os.environ["CUDA_VISIBLE_DEVICES"],
    "shm": sorted(os.listdir("/dev/shm"))}), flush=True)
"""
LIVE = LOOK + """
import sys, time
open("/dev/shm/of-the-job", "w").close()
open(sys.argv[1], "w").close()
time.sleep(600)
"""


class Terminal:
    """A command of a user in a pseudo-terminal of its own."""

    def __init__(self, server, user, words, rows=30, columns=100):
        self.master, slave = pty.openpty()
        import fcntl
        import struct
        import termios
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

        def lead():
            os.setsid()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        self.process = server.as_user(user, words, stdin=slave, stdout=slave, stderr=slave, preexec_fn=lead)
        os.close(slave)
        self.text = ""

    def read_until(self, words, seconds=20):
        end = time.monotonic() + seconds
        while words not in self.text:
            left = end - time.monotonic()
            if left <= 0 or not select.select([self.master], [], [], left)[0]:
                raise AssertionError(f"{words!r} did not come: {self.text!r}")
            try:
                block = os.read(self.master, 65536)
            except OSError:
                block = b""
            if not block:
                raise AssertionError(f"{words!r} did not come before the end: {self.text!r}")
            self.text += block.decode(errors="replace")
        return self.text

    def type(self, text):
        os.write(self.master, text.encode())

    def end(self, seconds=20):
        end = time.monotonic() + seconds
        while self.process.poll() is None and time.monotonic() < end:
            if select.select([self.master], [], [], 0.05)[0]:
                try:
                    self.text += os.read(self.master, 65536).decode(errors="replace")
                except OSError:
                    pass
        code = self.process.wait(1)
        os.close(self.master)
        return code


class Inside(scenario.Scenario):
    marks = 0

    def mark(self):
        Inside.marks += 1
        return f"{SHARED}/inside-{Inside.marks}"

    def looking_job(self, flags):
        """A job that says what it sees and stays; returns (its id, what it saw)."""
        mark = self.mark()
        log = mark + ".out"
        job = self.submit("alice", ["-o", log, *flags], ["python3", "-c", LIVE, mark])
        wait_until(lambda: os.path.exists(mark), 20, "the job looks around")
        with open(log, encoding="utf-8") as file:
            return job, json.loads(file.readline())

    def exec(self, job, *command, user="alice", code=0, stdin=None):
        return self.server.tranche(user, "exec", str(job), "--", *command, code=code, stdin=stdin)

    # --- exec -------------------------------------------------------------------------------------------
    def test_a_command_sees_what_the_job_sees(self):
        job, seen = self.looking_job(["-G", "1"])
        self.assertEqual(len(seen["gpus"]), 1, seen)
        out, _ = self.exec(job, "python3", "-c", LOOK)
        inside = json.loads(out)
        self.assertIn("of-the-job", inside.pop("shm"))
        seen.pop("shm")
        self.assertEqual(inside, seen)
        other, _ = self.looking_job(["-G", "0"])
        self.assertEqual(json.loads(self.exec(other, "python3", "-c", LOOK)[0])["gpus"], [])

    def test_streams_and_codes(self):
        job, _ = self.looking_job([])
        out, err = self.exec(job, "sh", "-c", "tr a-z A-Z; echo wrong >&2; exit 7", code=7, stdin="words\n")
        self.assertEqual((out, err), ("WORDS\n", "wrong\n"))
        self.exec(job, "no-such-command-here", code=127)
        self.exec(job, "/etc/passwd", code=126)
        self.exec(job, "sh", "-c", "kill -USR1 $$", code=128 + signal.SIGUSR1)
        block = "x" * 1000 + "\n"
        out, _ = self.exec(job, "cat", stdin=block * 3000)
        self.assertEqual(len(out), len(block) * 3000)
        self.assertEqual(self.server.job(job)["state"], "running", "the job does not mind")

    def test_only_the_owner(self):
        job, _ = self.looking_job([])
        for user in ("bob", "root"):
            _, err = self.exec(job, "id", user=user, code=3)
            self.assertIn("only the owner", err)
        self.exec(999999, "id", code=4)
        done = self.submit("alice", ["-o", "/dev/null"], ["true"], wait=True)
        _, err = self.exec(done["job"], "id", code=1)
        self.assertIn("does not run", err)

    def test_it_ends_with_its_job_even_if_it_does_not_want_to(self):
        job, _ = self.looking_job(["--grace", "20s"])
        mark = self.mark()
        command = self.server.as_user(
            "alice", [BIN + "/tranche", "exec", str(job), "--", "sh", "-c",
                      f"trap '' TERM HUP; touch {mark}; while true; do sleep 0.1; done"],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        wait_until(lambda: os.path.exists(mark), 20, "the command runs")
        self.server.tranche("alice", "cancel", str(job))
        # Its grace is the job's; what is left of a job that has gone does not hold its GPUs for as long.
        self.server.wait(job, timeout=15)
        command.communicate(timeout=10)
        self.assertNotEqual(command.returncode, 0)

    def test_it_ends_with_its_client(self):
        job, _ = self.looking_job([])
        mark = self.mark()
        command = self.server.as_user(
            "alice", [BIN + "/tranche", "exec", str(job), "--", "sh", "-c", f"echo $$ > {mark}; exec sleep 611"],
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_until(lambda: os.path.exists(mark) and os.path.getsize(mark) > 0, 20, "the command runs")
        command.kill()
        command.communicate()
        wait_until(lambda: "611" not in subprocess.run(["pgrep", "-a", "-x", "sleep"], capture_output=True,
                                                       text=True, check=False).stdout, 20, "the command has ended")
        self.assertEqual(self.server.job(job)["state"], "running")

    def test_memory_counts_for_the_job(self):
        job, _ = self.looking_job(["--mem", "64M"])
        eat = "data = []\nwhile True: data.append(bytearray(4 << 20))"
        self.exec(job, "python3", "-c", eat, code=137)
        self.assertEqual(self.server.job(job)["state"], "running", "the hog alone was ended")

    def test_a_shell_inside_has_a_terminal(self):
        job, _ = self.looking_job([])
        terminal = Terminal(self.server, "alice", [BIN + "/tranche", "exec", str(job), "sh"], rows=31, columns=97)
        terminal.type("stty size; echo job $TRANCHE_JOB_ID; tty\n")
        terminal.read_until(f"job {job}")
        terminal.read_until("/dev/pts/")
        self.assertIn("31 97", terminal.text)
        terminal.type("exit 5\n")
        self.assertEqual(terminal.end(), 5, terminal.text)

    def test_the_daemon_may_die_meanwhile(self):
        job, _ = self.looking_job([])
        mark = self.mark()
        command = self.server.as_user(
            "alice", [BIN + "/tranche", "exec", str(job), "--", "sh", "-c",
                      f"touch {mark}; while [ ! -e {mark}.go ]; do sleep 0.05; done; echo unbroken"],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        wait_until(lambda: os.path.exists(mark), 20, "the command runs")
        self.server.kill_daemon()
        self.addCleanup(self.server.up)
        with open(mark + ".go", "w", encoding="ascii"):
            pass
        out, err = command.communicate(timeout=20)
        self.assertEqual((command.returncode, out), (0, "unbroken\n"), err)

    # --- shell ------------------------------------------------------------------------------------------
    def test_shell_is_an_interactive_job(self):
        terminal = Terminal(self.server, "alice", [BIN + "/tranche", "shell", "-G", "1", "-c", "0.1"])
        terminal.type("echo I am job $TRANCHE_JOB_ID with $TRANCHE_GPUS GPU\n")
        terminal.read_until("with 1 GPU")
        mine = self.server.json("alice", "ls", "--me")["jobs"]
        shells = [job for job in mine if job.get("name") == "shell"]
        self.assertEqual([(job["class"], job["state"]) for job in shells], [("interactive", "running")], mine)
        terminal.type("exit 4\n")
        self.assertEqual(terminal.end(), 4, terminal.text)
        self.refused("alice", ["shell"], 2, "terminal")

    # --- manners of run -----------------------------------------------------------------------------------
    def test_a_reader_that_leaves_ends_the_job(self):
        pipeline = self.server.as_user(
            "alice", ["sh", "-c", f"{BIN}/tranche run -c 0.1 -J leaving -- yes | head -1"],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.assertEqual(pipeline.communicate(timeout=30), ("y\n", ""))
        job = [job for job in self.server.json("alice", "ls", "--me", "--all")["jobs"] if job.get("name") == "leaving"][-1]
        ended = self.server.wait(job["job"], timeout=8)[0]
        self.assertEqual(ended["state"], "cancelled", ended)

    def test_lost_output_is_a_failure(self):
        for words in (["submit", "--parsable", "-c", "0.1", "-o", "/dev/null", "--", "true"], ["ls", "-a"], ["gpus"]):
            with open("/dev/full", "w", encoding="ascii") as full:
                process = self.server.as_user("alice", [BIN + "/tranche", *words], stdout=full,
                                              stderr=subprocess.PIPE, text=True)
                _, err = process.communicate(timeout=20)
            self.assertEqual(process.returncode, 1, words)
            self.assertIn("No space left on device", err)
        closed = self.server.as_user("alice", ["sh", "-c", f"{BIN}/tranche gpus >&-"], stdin=subprocess.DEVNULL,
                                     stderr=subprocess.PIPE, text=True)
        _, err = closed.communicate(timeout=20)
        self.assertEqual(closed.returncode, 1, err)

    def test_in_the_background_of_a_shell_it_is_not_stopped(self):
        shell = Terminal(self.server, "alice", ["bash", "--norc", "-i"])
        shell.type(f"{BIN}/tranche run -c 0.1 -- sh -c 'sleep 0.5; echo back''ground' &\n")
        shell.read_until("background")
        self.assertNotIn("Stopped", shell.text)
        shell.type("exit\n")
        shell.end()

    # --- top --------------------------------------------------------------------------------------------
    def test_top_is_live_and_leaves_the_terminal_as_it_was(self):
        terminal = Terminal(self.server, "alice", [BIN + "/tranche", "top"], rows=20, columns=80)
        terminal.read_until("0 of 4 GPUs in use")
        job, _ = self.looking_job(["-G", "1", "-J", "seen-by-top"])
        terminal.read_until("1 of 4 GPUs in use")
        terminal.read_until("seen-b")
        terminal.type("q")
        self.assertEqual(terminal.end(), 0)
        self.assertTrue(terminal.text.startswith("\x1b[?1049h"), repr(terminal.text[:40]))
        self.assertIn("\x1b[?25h\x1b[?1049l", terminal.text[-40:])
        plain, _ = self.server.tranche("alice", "top")
        self.assertNotIn("\x1b", plain)
        self.assertIn("1 of 4 GPUs in use", plain)
        self.assertIn(str(job), plain)


if __name__ == "__main__":
    scenario.main(board="h100-80:4")
