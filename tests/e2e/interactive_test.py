"""`tranche run` in pipes and on terminals: as if the command ran here, whatever dies in between."""

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time

import scenario
from scenario import BIN, SHARED, wait_until

RUN = [BIN + "/tranche", "run", "-c", "0.1"]


class Terminal:
    """`command` as a user on a pseudo-terminal of its own, with what it has shown so far."""

    def __init__(self, server, user, command, rows=33, columns=101):
        self.master, slave = pty.openpty()
        self.resize(rows, columns)
        self.slave = slave
        self.before = termios.tcgetattr(slave)
        self.process = server.as_user(user, command, stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
                                      preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        self.shown = ""

    def resize(self, rows, columns):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, text):
        os.write(self.master, text.encode())

    def read_until(self, word, seconds=20):
        deadline = time.monotonic() + seconds
        while word not in self.shown:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.master], [], [], left)[0]:
                raise AssertionError(f"{word!r} was not shown within {seconds} s, but {self.shown!r}")
            self.shown += os.read(self.master, 4096).decode(errors="replace")
        return self.shown

    def finish(self, seconds=20):
        """Waits for the end; returns the exit code. What is shown goes on being read: a full terminal blocks."""
        deadline = time.monotonic() + seconds
        while self.process.poll() is None:
            if time.monotonic() > deadline:
                raise AssertionError(f"still running after {seconds} s; shown: {self.shown!r}")
            if select.select([self.master], [], [], 0.02)[0]:
                self.shown += os.read(self.master, 4096).decode(errors="replace")
        while select.select([self.master], [], [], 0)[0]:
            self.shown += os.read(self.master, 4096).decode(errors="replace")
        return self.process.returncode

    def is_restored(self):
        return termios.tcgetattr(self.slave) == self.before

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.master)
        os.close(self.slave)


class Interactive(scenario.Scenario):
    def setUp(self):
        self.ended_before = {job["job"] for job in self.jobs()}

    def tearDown(self):
        for job in self.jobs():
            self.end(job["job"])

    def jobs(self):
        return self.server.json("root", "ls", "--all")["jobs"]

    def new_job(self):
        """The one job that this test has started."""
        return wait_until(lambda: [job for job in self.jobs() if job["job"] not in self.ended_before
                                   and job["user"] == "alice"], 20, "the job")[0]

    def popen(self, flags, command, **options):
        process = self.server.as_user("alice", [*RUN, *flags, "--", *command], text=True,
                                      **{"stdin": subprocess.PIPE, "stdout": subprocess.PIPE,
                                         "stderr": subprocess.PIPE, **options})
        self.addCleanup(self.close, process)
        return process

    @staticmethod
    def close(process):
        if process.poll() is None:
            process.kill()
        process.communicate()

    def terminal(self, flags, command):
        terminal = Terminal(self.server, "alice", [*RUN, *flags, "--", *command])
        self.addCleanup(terminal.close)
        return terminal

    def fill(self):
        """bob takes all GPUs; returns his job."""
        job = self.submit("bob", ["-G", "4", "-t", "1h", "-o", "/dev/null"], ["sleep", "600"])
        self.server.wait_state(job, "running", user="bob")
        self.ended_before.add(job)
        return job

    # --- pipes ------------------------------------------------------------------------------------
    def test_pipes(self):
        process = self.popen([], ["sh", "-c", "cat; echo error >&2; exit 7"])
        out, err = process.communicate("line one\nline two\n", timeout=20)
        self.assertEqual((out, err, process.returncode), ("line one\nline two\n", "error\n", 7))

    def test_bytes_are_kept(self):
        data = os.urandom(1 << 20) + bytes(range(256))
        process = self.server.as_user("alice", [*RUN, "--", "cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        out, _ = process.communicate(data, timeout=60)
        self.assertEqual(process.returncode, 0)
        self.assertTrue(out == data, f"{len(out)} of {len(data)} bytes came back, or others")

    def test_no_terminal_in_pipes(self):
        process = self.popen([], ["sh", "-c", "test -t 0 || test -t 1 || test -t 2 && echo terminal; exit 0"])
        out, _ = process.communicate(timeout=20)
        self.assertEqual((out, process.returncode), ("", 0))

    def test_signals_are_forwarded(self):
        program = "trap 'echo heard; exit 5' USR1; echo ready; while :; do sleep 0.05; done"
        process = self.popen([], ["sh", "-c", program])
        self.assertEqual(process.stdout.readline(), "ready\n")
        process.send_signal(signal.SIGUSR1)
        out, _ = process.communicate(timeout=20)
        self.assertEqual((out, process.returncode), ("heard\n", 5))
        process = self.popen([], ["sh", "-c", "echo ready; exec sleep 600"])
        process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=20)
        self.assertEqual(process.returncode, 128 + signal.SIGTERM)

    # --- a terminal -------------------------------------------------------------------------------
    def test_terminal(self):
        terminal = self.terminal(["-G", "1"], ["sh", "-c", "stty size; read word; echo got $word; exit 3"])
        terminal.read_until("33 101")
        self.assertEqual(self.new_job()["class"], "interactive", "a terminal makes it one")
        terminal.type("hello\r")
        terminal.read_until("got hello")
        self.assertEqual(terminal.finish(), 3)
        self.assertTrue(terminal.is_restored())

    def test_window_size_from_the_first_instruction(self):
        for _ in range(5):
            terminal = self.terminal([], ["stty", "size"])
            self.assertEqual(terminal.finish(), 0)
            self.assertEqual(terminal.shown, "33 101\r\n")

    def test_window_size_follows(self):
        program = "trap 'stty size' WINCH; echo ready; while :; do sleep 0.05; done"
        terminal = self.terminal([], ["sh", "-c", program])
        terminal.read_until("ready")
        terminal.resize(50, 132)
        terminal.read_until("50 132")
        terminal.type("\x03")
        self.assertEqual(terminal.finish(), 128 + signal.SIGINT)

    def test_interrupt_reaches_the_job(self):
        terminal = self.terminal([], ["sh", "-c", "trap 'echo interrupted; exit 9' INT; echo ready; "
                                                  "while :; do sleep 0.05; done"])
        terminal.read_until("ready")
        self.assertFalse(terminal.is_restored(), "the terminal is raw while the job has it")
        terminal.type("\x03")
        terminal.read_until("interrupted")
        self.assertEqual(terminal.finish(), 9)
        self.assertTrue(terminal.is_restored())

    def test_no_pty(self):
        terminal = self.terminal(["--no-pty"], ["sh", "-c", "test -t 1 && echo terminal || echo pipe"])
        terminal.read_until("pipe")
        self.assertEqual(terminal.finish(), 0)

    # --- waiting ----------------------------------------------------------------------------------
    def test_progress_while_waiting(self):
        holder = self.fill()
        process = self.popen(["-G", "1"], ["echo", "runs"])
        line = process.stderr.readline()
        self.assertRegex(line, r"^job \d+: position 1: .*GPU")
        self.assertRegex(line, r"Starts in .* by time limits")
        self.assertIsNone(process.poll())
        self.assertEqual(self.new_job()["state"], "pending")
        terminal = self.terminal(["-G", "1", "--class", "training"], ["echo", "second runs"])
        terminal.read_until("position 2")
        self.end(holder)
        out, _ = process.communicate(timeout=20)
        self.assertEqual((out, process.returncode), ("runs\n", 0))
        terminal.read_until("second runs")
        self.assertEqual(terminal.finish(), 0)
        self.assertTrue(terminal.is_restored())
        last = terminal.shown.replace("\r\x1b[K", "\n").split("\n")
        self.assertIn("second runs", [text.strip() for text in last], "the progress line is wiped: " + terminal.shown)

    def test_quiet(self):
        holder = self.fill()
        process = self.server.as_user("alice", [BIN + "/tranche", "-q", "run", "-c", "0.1", "-G", "1", "--", "echo", "x"],
                                      stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(self.close, process)
        self.new_job()
        self.end(holder)
        self.assertEqual((*process.communicate(timeout=20), process.returncode), ("x\n", "", 0))

    def test_interrupt_while_waiting(self):
        self.fill()
        terminal = self.terminal(["-G", "1"], ["true"])
        terminal.read_until("position 1")
        terminal.type("\x03")
        terminal.read_until("Ctrl-C again")
        job = self.new_job()
        self.assertEqual(job["state"], "pending", "the first one only asks")
        terminal.type("\x03")
        self.assertEqual(terminal.finish(), 128 + signal.SIGINT)
        self.assertEqual(self.server.wait(job["job"])[0]["state"], "cancelled")
        self.assertTrue(terminal.is_restored())

    def test_cancelled_while_waiting(self):
        self.fill()
        process = self.popen(["-G", "1"], ["true"])
        process.stderr.readline()
        self.server.tranche("alice", "cancel", str(self.new_job()["job"]))
        _, err = process.communicate(timeout=20)
        self.assertEqual(process.returncode, 125, err)
        self.assertIn("cancelled", err)

    # --- a client that dies -----------------------------------------------------------------------
    def test_client_killed_while_waiting(self):
        self.fill()
        process = self.popen(["-G", "1"], ["touch", SHARED + "/must-not-run"])
        process.stderr.readline()
        job = self.new_job()["job"]
        process.kill()
        self.assertEqual(self.server.wait_state(job, "cancelled", seconds=10)["state"], "cancelled")
        self.assertFalse(os.path.exists(SHARED + "/must-not-run"))

    def test_client_killed_while_running(self):
        # With a terminal the job goes on; without one it gets TERM after ten seconds.
        terminal = self.terminal([], ["sh", "-c", "echo ready; exec sleep 600"])
        terminal.read_until("ready")
        kept = self.new_job()["job"]
        self.ended_before.add(kept)
        mark = SHARED + "/was-asked-to-end"
        program = f"trap 'touch {mark}; exit 0' TERM; echo ready; while :; do sleep 0.05; done"
        process = self.popen([], ["sh", "-c", program])
        self.assertEqual(process.stdout.readline(), "ready\n")
        job = self.new_job()["job"]
        terminal.process.kill()
        process.kill()
        killed = time.monotonic()
        wait_until(lambda: os.path.exists(mark), 20, "TERM for the job without a client")
        self.assertGreater(time.monotonic() - killed, 5, "a client may come back within ten seconds")
        self.server.wait_state(job, *scenario.FINAL, seconds=10)
        self.assertEqual(self.server.job(kept)["state"], "running", "with a terminal it goes on")
        self.server.tranche("alice", "cancel", str(kept))
        self.server.wait(kept)

    # --- a daemon that dies -----------------------------------------------------------------------
    def test_daemon_killed_during_a_session(self):
        ends_without = self.popen([], ["sh", "-c", "echo ready; read word; echo got $word; exit 9"])
        ends_with = self.popen([], ["sh", "-c", "echo ready; read word; echo got $word; exit 8"])
        on_terminal = self.terminal([], ["sh", "-c", "echo ready; read word; echo got $word; exit 7"])
        for process in (ends_without, ends_with):
            self.assertEqual(process.stdout.readline(), "ready\n")
        on_terminal.read_until("ready")
        self.server.kill_daemon()
        try:
            out, err = ends_without.communicate("first\n", timeout=20)
            self.assertEqual((out, ends_without.returncode), ("got first\n", 9), err)
        finally:
            self.server.up()
        out, err = ends_with.communicate("second\n", timeout=20)
        self.assertEqual((out, ends_with.returncode), ("got second\n", 8), err)
        on_terminal.type("third\r")
        on_terminal.read_until("got third")
        self.assertEqual(on_terminal.finish(), 7)
        ended = [job for job in self.jobs() if job["job"] not in self.ended_before]
        self.server.wait(*(job["job"] for job in ended))
        self.assertEqual(sorted(self.server.job(job["job"])["exit_code"] for job in ended), [7, 8, 9])

    def test_daemon_killed_while_waiting(self):
        holder = self.fill()
        process = self.popen(["-G", "1"], ["true"])
        process.stderr.readline()
        self.server.kill_daemon()
        self.server.up()
        out, err = process.communicate(timeout=30)
        self.assertNotEqual(process.returncode, 0, "nobody can tell it what became of the job")
        self.assertIn("broke", err, out)
        job = self.new_job()["job"]
        self.server.wait_state(job, "cancelled", seconds=30)  # its client is gone: it must not run for nobody
        self.assertEqual(self.server.job(holder)["state"], "running", "what ran is untouched")


if __name__ == "__main__":
    scenario.main()
