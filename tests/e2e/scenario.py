"""What the scenario tests share: one server for each file, jobs that are Python programs, raw HTTP as a Unix user.

    class Isolation(scenario.Scenario):
        def test_something(self): ...

    if __name__ == "__main__":
        scenario.main(board="h100-80:4")
"""

import contextlib
import http.client
import json
import os
import pwd
import socket
import sys
import unittest

sys.path[:0] = [os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lab"),
                os.path.dirname(os.path.abspath(__file__))]

import journal_audit  # noqa: E402
from server import BIN, FINAL, LAB, Failed, Server, wait_until  # noqa: E402,F401

API_SOCKET = "/run/tranche/tranche.sock"
SHARED = LAB + "/shared"  # everybody may write here, as into /tmp
_SERVER = []


class Scenario(unittest.TestCase):
    """Tests against the one server of the file. A job that a test leaves running is cancelled behind it."""

    maxDiff = None

    @property
    def server(self) -> Server:
        return _SERVER[0]

    def submit(self, user, flags, command, wait=False):
        # A tenth of a core each: what waits in a test waits for GPUs, also on a machine of two cores.
        job = self.server.submit(user, ["-c", "0.1", *flags], command)
        self.addCleanup(self.end, job)
        return self.server.wait(job, user=user)[0] if wait else job

    def end(self, job):
        """Cancels the job if it lives, and waits until it has ended."""
        if self.server.job(job, "root")["state"] in FINAL:
            return
        self.server.tranche("root", "cancel", str(job), code=None)
        self.server.tranche("root", "wait", str(job), code=None)

    def python(self, user, flags, program, *arguments):
        """Runs a Python program as a job; returns (its summary, what it wrote)."""
        done = self.submit(user, flags, ["python3", "-c", program, *arguments], wait=True)
        return done, self.log(done)

    def python_json(self, user, flags, program, *arguments):
        """The same for a program that prints JSON as its last line and ends well."""
        done, text = self.python(user, flags, program, *arguments)
        self.assertEqual(done["state"], "completed", f"{done}\n{text}")
        return json.loads(text.splitlines()[-1])

    @staticmethod
    def log(job):
        try:
            with open(job["stdout"], encoding="utf-8", errors="replace") as file:
                return file.read()
        except FileNotFoundError:
            return "(no log)"

    def refused(self, user, arguments, code, *words, stdin=None):
        """The command is refused with this exit code, in one sentence that has the words; returns it."""
        out, err = self.server.tranche(user, *arguments, code=None, timeout=20, stdin=stdin)
        shown = f"tranche {' '.join(map(repr, arguments))[:300]} as {user}: exit {self.server.last_code}\n{out}{err}"
        self.assertEqual(self.server.last_code, code, shown)
        self.assertTrue(err.strip(), "a refusal says why: " + shown)
        self.assert_one_sentence(err, shown)
        for word in words:
            self.assertIn(word.lower(), err.lower(), shown)
        return err

    def assert_one_sentence(self, text, shown):
        self.assertEqual(len(text.strip().splitlines()), 1, "one line: " + shown)
        control = [c for c in text.strip() if ord(c) < 0x20 or 0x7F <= ord(c) < 0xA0]
        self.assertEqual(control, [], "control characters are not echoed: " + repr(shown))
        self.assertLess(len(text), 2048, "the sentence is short: " + shown)


@contextlib.contextmanager
def acting_as(user):
    """This process with the effective identity of `user`: what the kernel tells the other end of a socket."""
    record = pwd.getpwnam(user)
    groups = os.getgroups()
    os.setgroups(os.getgrouplist(user, record.pw_gid))
    os.setegid(record.pw_gid)
    os.seteuid(record.pw_uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)
        os.setgroups(groups)


def connect(user, path=API_SOCKET, timeout=20):
    client = socket.socket(socket.AF_UNIX)
    client.settimeout(timeout)
    with acting_as(user):
        client.connect(path)
    return client


class Reply:
    def __init__(self, status, headers, text):
        self.status = status
        self.headers = headers
        self.text = text

    @property
    def json(self):
        return json.loads(self.text)

    def __repr__(self):
        return f"{self.status} {self.text[:500]}"


def request(user, method, path, body=None, headers=None):
    """One request on the API's socket as `user`; `body` is text, bytes or what becomes JSON."""
    if body is not None and not isinstance(body, (str, bytes)):
        body = json.dumps(body)
    connection = http.client.HTTPConnection("localhost", timeout=20)
    connection.sock = connect(user)
    try:
        connection.request(method, path, body=body, headers={"Content-Type": "application/json", **(headers or {})})
        reply = connection.getresponse()
        return Reply(reply.status, reply.headers, reply.read().decode(errors="replace"))
    finally:
        connection.close()


def close_well(server):
    """What holds at the end of every scenario."""
    server.assert_nothing_left()
    server.verify_journal()
    audit = journal_audit.audit(server.journal())
    if audit.faults:
        raise Failed("the journal's audit:\n  " + "\n  ".join(audit.faults))


def print_daemon_log(lines=40):
    for name in ("tranched", "launcher"):
        with contextlib.suppress(OSError):
            with open(f"/run/tranche-up/{name}.log", encoding="utf-8", errors="replace") as file:
                print(f"--- {name}.log\n" + "".join(file.readlines()[-lines:]), file=sys.stderr)


def main(board="h100-80:4", policy="", drop_in="", state_dir=LAB + "/state", emulator=()):
    """Runs the calling file's tests against one server, then looks at what is left. `drop_in`: more configuration, as
    administrators add it in conf.d."""
    if drop_in:
        os.makedirs(LAB + "/conf.d")
        with open(LAB + "/conf.d/scenario.toml", "w", encoding="utf-8") as file:
            file.write(drop_in)
    with Server(board=board, policy=policy, state_dir=state_dir, emulator=emulator) as server:
        _SERVER[:] = [server]
        os.makedirs(SHARED, exist_ok=True)
        os.chmod(SHARED, 0o1777)
        program = unittest.main(module="__main__", exit=False, verbosity=2)
        good = program.result.wasSuccessful()
        try:
            close_well(server)
            print("nothing is left, the journal recomputes and its audit finds no fault")
        except Failed as failure:
            print(f"FAILED at the end: {failure}", file=sys.stderr)
            good = False
        if not good:
            print_daemon_log()
    sys.exit(0 if good else 1)
