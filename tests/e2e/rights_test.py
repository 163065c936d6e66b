"""Who may do what: every process that runs is held against the table in HACKING.md, and what the daemon's rights are not
enough for is tried with exactly those rights."""

import glob
import json
import os
import pwd
import re
import signal
import subprocess

import scenario
from scenario import wait_until

HACKING = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "HACKING.md")
KINDS = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")
NONE = "0" * 16

# Run with the rights of tranched: what each attempt met.
ATTEMPTS = """
import ctypes, json, os, signal, socket, sys
task, folder = int(sys.argv[1]), sys.argv[2]
met = {}
def attempt(name, action):
    try:
        action()
        met[name] = "done"
    except OSError as error:
        met[name] = type(error).__name__
attempt("signal a task", lambda: os.kill(task, signal.SIGTERM))
attempt("read a task's environment", lambda: open(f"/proc/{task}/environ").read())
attempt("read a user's file", lambda: open(folder + "/private").read())
attempt("kill a task's cgroup", lambda: open(sys.argv[3] + "/cgroup.kill", "w").write("1"))
attempt("write a task's record", lambda: open("/run/tranche/tasks/1.0.1", "w"))
attempt("take the shepherds' socket away", lambda: os.unlink("/run/tranche/shepherd.sock"))
attempt("put other records in place", lambda: os.rename("/run/tranche/tasks", "/run/tranche/tasks.old"))
attempt("speak as a shepherd", lambda: socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET).connect("/run/tranche/shepherd.sock"))
attempt("become root", lambda: os.setuid(0))
attempt("become alice", lambda: os.setuid(int(sys.argv[4])))
def mount():
    if ctypes.CDLL(None, use_errno=True).mount(b"none", b"/mnt", b"tmpfs", 0, None) != 0:
        raise OSError(ctypes.get_errno(), "mount")
attempt("mount", mount)
attempt("make a node", lambda: os.mknod("/tmp/tranche-node", 0o20666, os.makedev(1, 3)))
print(json.dumps(met))
"""


def documented():
    """{process: (user, capabilities, no new privileges)} as the table says."""
    with open(HACKING, encoding="utf-8") as file:
        section = file.read().split("## Who may do what", 1)[1].split("\n## ", 1)[0]
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \| ([^|]+) \| ([^|]+) \| [^|]+ \|$", section, re.MULTILINE)
    return {row[0].strip("` "): tuple(cell.strip() for cell in row[1:]) for row in rows[1:]}


def statuses(pid):
    """The status of each thread: every thread has rights of its own."""
    for path in glob.glob(f"/proc/{pid}/task/*/status"):
        with open(path, encoding="utf-8") as file:
            yield dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)


def processes(name, parent=None):
    found = []
    for path in glob.glob("/proc/[0-9]*/status"):
        try:
            with open(path, encoding="utf-8") as file:
                status = dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)
        except OSError:
            continue
        if status["Name"] == name[:15] and (parent is None or int(status["PPid"]) == parent):
            found.append(int(status["Pid"]))
    return found


def pid_of(service):
    with open(f"/run/tranche-up/{service}.pid", encoding="ascii") as file:
        return int(file.read())


class Rights(scenario.Scenario):
    def assert_as_documented(self, process, pid):
        user, capabilities, no_new_privileges = documented()[process]
        uid = pwd.getpwnam({"its user": "alice"}.get(user, user)).pw_uid
        threads = list(statuses(pid))
        self.assertTrue(threads, process)
        for status in threads:
            self.assertEqual({int(word) for word in status["Uid"].split()}, {uid}, process)
            held = {kind: status[kind] for kind in KINDS}
            if capabilities == "none":
                self.assertEqual(set(held.values()), {NONE}, f"{process}: {held}")
            elif capabilities == "none, and may be given some by a set-uid program":
                self.assertEqual({held[kind] for kind in KINDS if kind != "CapBnd"}, {NONE}, f"{process}: {held}")
            else:
                self.assertEqual(capabilities, "all")
                self.assertEqual(held["CapEff"], held["CapBnd"], process)
                self.assertNotEqual(held["CapEff"], NONE, process)
            self.assertEqual(status["NoNewPrivs"], "1" if no_new_privileges == "yes" else "0", process)

    def running_job(self, flags=("-G", "1")):
        job = self.submit("alice", list(flags), ["sleep", "600"])
        return job, self.server.wait_state(job, "running")["tasks"][0]["pid"]

    def test_every_process_is_as_the_table_says(self):
        job, pid = self.running_job(("-G", "0.5"))
        inside = self.server.as_user("alice", [scenario.BIN + "/tranche", "exec", str(job), "--", "sleep", "600"],
                                     stdin=subprocess.DEVNULL)
        try:
            sessions = wait_until(lambda: processes("tranche-exec"), 10, "a session of exec")
            shepherd = self.parent_of(pid)
            found = {"tranched": pid_of("tranched"), "tranche-sampler": processes("tranche-sampler", pid_of("tranched"))[0],
                     "tranche-arbiter": pid_of("arbiter"), "tranche-launcher": pid_of("launcher"),
                     "tranche-launcher --hold": pid_of("holder"), "shepherd": shepherd, "exec session": sessions[0],
                     "task": pid}
            self.assertEqual(set(documented()), set(found), "the table has every process, and no other")
            for process, number in found.items():
                with self.subTest(process=process):
                    self.assert_as_documented(process, number)
        finally:
            inside.send_signal(signal.SIGTERM)
            inside.wait(20)

    @staticmethod
    def parent_of(pid):
        with open(f"/proc/{pid}/status", encoding="utf-8") as file:
            return int(re.search(r"^PPid:\t(\d+)$", file.read(), re.MULTILINE)[1])

    def test_the_daemon_does_all_its_work_without_any_capability(self):
        for status in statuses(pid_of("tranched")):
            self.assertEqual({status[kind] for kind in KINDS}, {NONE})
        done = self.submit("alice", ["-G", "1"], ["sh", "-c", "echo said; exit 3"], wait=True)
        self.assertEqual((done["state"], done["exit_code"]), ("failed", 3))
        self.assertEqual(self.log(done).strip(), "said")
        gang = self.submit("alice", ["--tasks", "2", "-G", "1"], ["true"], wait=True)
        self.assertEqual(gang["state"], "completed")
        share = self.submit("alice", ["-G", "0.5"], ["true"], wait=True)
        self.assertEqual(share["state"], "completed")
        job, _ = self.running_job()
        self.server.tranche("alice", "exec", str(job), "--", "true")
        self.server.tranche("alice", "cancel", str(job))
        self.assertEqual(self.server.wait(job)[0]["state"], "cancelled")

    def test_with_the_daemons_rights_nothing_of_others_is_reached(self):
        _, task = self.running_job()
        home = pwd.getpwnam("alice").pw_dir
        self.server.as_user("alice", ["sh", "-c", "umask 077; echo secret >private"]).wait()
        with open(f"/proc/{task}/cgroup", encoding="utf-8") as file:
            unified = next(line.split("::", 1)[1].strip() for line in file if line.startswith("0::"))
        with open("/proc/self/mountinfo", encoding="utf-8") as file:
            mount = next(line.split()[4] for line in file if " - cgroup2 " in line)
        done = subprocess.run(["setpriv", "--reuid", "tranche", "--regid", "tranche", "--init-groups", "--inh-caps=-all",
                               "--bounding-set=-all", "--no-new-privs", "--", "/usr/bin/python3", "-c", ATTEMPTS, str(task), home,
                               mount + unified, str(pwd.getpwnam("alice").pw_uid)],
                              capture_output=True, text=True, check=True)
        met = json.loads(done.stdout)
        self.assertEqual({name: what for name, what in met.items() if what != "PermissionError"}, {})
        self.assertGreaterEqual(len(met), 11)
        os.kill(task, 0)


if __name__ == "__main__":
    scenario.main(board="h100-80:4")
