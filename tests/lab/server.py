"""A whole Tranche on an emulated server, inside a laboratory (tests/lab/enter): for the tests and for ./try.

    with Server(board="h100-80:4") as server:
        job = server.submit("alice", ["-G", "1"], ["sleep", "1"])
        server.wait(job)

Everything is real: the emulator's device nodes, tranche-up, launcher, daemon, Unix users, processes. The lab's
/run is a tmpfs of its own, so nothing here can meet another server on the same machine; cgroups are the
machine's, and their root carries the lab's name.
"""

import json
import os
import pwd
import signal
import sqlite3
import subprocess
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("TRANCHE_BUILD", os.path.join(ROOT, "build", "ci"))
LAB = "/run/lab"
BIN = LAB + "/bin"
USERS = ("alice", "bob", "carol")
FINAL = {"completed", "failed", "cancelled", "timed_out", "out_of_memory", "node_failed", "unknown"}


class Failed(Exception):
    """A command ended otherwise than expected; the text has all of it."""


def require_lab():
    if os.environ.get("TRANCHE_LAB") != "1":
        raise SystemExit("run this inside the laboratory: tests/lab/enter python3 ...")


def bind(source, target):
    os.makedirs(target, exist_ok=True)
    subprocess.run(["mount", "--bind", source, target], check=True)


def wait_until(condition, seconds, what):
    """Polls `condition` until it is true; fails with `what` after `seconds`."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise Failed(f"{what} did not happen within {seconds} s")
        time.sleep(0.02)


class Server:
    """Started by `with`; ends everything and checks nothing: see leftovers()."""

    def __init__(self, board="h100-80:4", policy="", state_dir=LAB + "/state", real_gpus=False, emulator=()):
        require_lab()
        self.board = board
        self.policy = policy
        self.state_dir = state_dir
        self.real_gpus = real_gpus
        self.emulator = emulator  # more words for `tranche-emulator start`: --driver 570, --guest vgpu
        # The number of a namespace is given again once it is free, so it alone would meet what a killed lab left.
        self.cgroup_root = f"tranche-lab-{os.readlink('/proc/self/ns/pid')[5:-1]}-{os.urandom(4).hex()}"
        self.config = LAB + "/tranche.toml"
        self.library_dir = LAB + "/lib/emulator"
        self.guard_dir = LAB + "/lib/guard"

    # --- start and end ------------------------------------------------------------------------------------
    def __enter__(self):
        # A clone below /root is closed to users: they get its programs through a bind mount.
        bind(os.path.join(BUILD, "bin"), BIN)
        bind(os.path.join(BUILD, "lib", "guard"), self.guard_dir)
        if not self.real_gpus:
            bind(os.path.join(BUILD, "lib", "emulator"), LAB + "/lib/emulator")
            # What `start` puts in place has only the functions of its driver release, as a real driver has.
            self.library_dir = self.root(BIN + "/tranche-emulator", "start", *self._boards(), *self.emulator).strip()
        self.write_config(self.policy)
        try:
            self.up()
        except Exception:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, *_):
        subprocess.run([*self._up_command("stop"), "--jobs"], check=False)
        if not self.real_gpus:
            subprocess.run([BIN + "/tranche-emulator", "stop"], check=False, stdout=subprocess.DEVNULL)

    def _boards(self):
        boards = [word for board in self.board.split() for word in ("--board", board)]
        return boards

    def _up_command(self, verb):
        command = [os.path.join(ROOT, "packaging", "tranche-up"), verb, "--config", self.config, "--bin", BIN,
                   "--state-dir", self.state_dir, "--cgroup-root", self.cgroup_root,
                   "--guard-dir", self.guard_dir]
        if not self.real_gpus:
            command += ["--driver-library-dir", self.library_dir, "--emulated"]
        return command

    def up(self):
        self.root(*self._up_command("start"))

    def stop(self):
        """The services; tasks go on."""
        self.root(*self._up_command("stop"))

    def write_config(self, policy):
        driver = "" if self.real_gpus else f'[driver]\nlibrary_dir = "{self.library_dir}"\n'
        with open(self.config, "w", encoding="utf-8") as file:
            file.write(f'[daemon]\nstate_dir = "{self.state_dir}"\n{driver}{policy}')

    # --- commands -------------------------------------------------------------------------------------------
    @staticmethod
    def root(*command, timeout=120):
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
        if done.returncode != 0:
            raise Failed(f"{' '.join(command)}: exit {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout

    @staticmethod
    def as_user(user, command, **options):
        """A Popen of `command` as a Unix user, from its home, with a login's environment."""
        record = pwd.getpwnam(user)
        environment = {"HOME": record.pw_dir, "USER": user, "LOGNAME": user, "SHELL": "/bin/sh",
                       "PATH": f"{BIN}:{BIN}/examples:/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}
        environment.update(options.pop("env", {}))
        # A test's pseudo-terminal is one that knows colours, whatever runs the tests.
        terminal = os.environ.get("TERM", "dumb")
        environment.setdefault("TERM", "xterm" if terminal == "dumb" else terminal)
        return subprocess.Popen(command, user=record.pw_uid, group=record.pw_gid,
                                extra_groups=os.getgrouplist(user, record.pw_gid),
                                cwd=options.pop("cwd", record.pw_dir), env=environment, **options)

    def tranche(self, user, *arguments, code=0, timeout=120, stdin=None, env=None):
        """Runs `tranche` as `user` and returns (stdout, stderr); `code` is the exit code it must have, or None."""
        process = self.as_user(user, [BIN + "/tranche", *arguments], stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, stdin=subprocess.PIPE if stdin else subprocess.DEVNULL,
                               text=True, env=env or {})
        try:
            out, err = process.communicate(stdin, timeout=timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            raise Failed(f"tranche {' '.join(arguments)}: still running after {timeout} s\n{out}{err}") from None
        if code is not None and process.returncode != code:
            raise Failed(f"tranche {' '.join(arguments)} as {user}: exit {process.returncode}, not {code}\n{out}{err}")
        self.last_code = process.returncode
        return out, err

    def json(self, user, *arguments):
        return json.loads(self.tranche(user, *arguments, "--json")[0])

    def submit(self, user, flags, command):
        out, _ = self.tranche(user, "submit", "--parsable", *flags, "--", *command)
        return int(out.split()[0])

    def job(self, job, user="alice"):
        return self.json(user, "show", str(job))

    def wait(self, *jobs, user="alice", timeout=120):
        """Waits until all have ended; returns their summaries."""
        self.tranche(user, "wait", *map(str, jobs), code=None, timeout=timeout)
        return [self.job(job, user) for job in jobs]

    def wait_state(self, job, *states, seconds=30, user="alice"):
        return wait_until(lambda: (lambda s: s if s["state"] in states else None)(self.job(job, user)), seconds,
                          f"job {job} in state {' or '.join(states)}")

    # --- the daemon ---------------------------------------------------------------------------------------------
    def daemon_pid(self):
        with open("/run/tranche-up/tranched.pid", encoding="ascii") as file:
            return int(file.read())

    def kill_daemon(self):
        """kill -9, and gone."""
        pid = self.daemon_pid()
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not os.path.exists(f"/proc/{pid}") or self._is_zombie(pid), 10, "the daemon's end")

    @staticmethod
    def _is_zombie(pid):
        try:
            with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
                return file.read().rsplit(")", 1)[1].split()[0] == "Z"
        except (FileNotFoundError, ProcessLookupError):
            return True

    def journal(self):
        """Every row of the journal as the file has it: (seq, time, kind, event, decisions)."""
        with sqlite3.connect(f"file:{self.state_dir}/journal.db?mode=ro", uri=True) as database:
            rows = database.execute("SELECT seq, time, kind, event, decisions FROM event ORDER BY seq").fetchall()
        return [(seq, when, kind, json.loads(event), json.loads(decisions))
                for seq, when, kind, event, decisions in rows]

    def verify_journal(self):
        return self.root(BIN + "/tranched", "verify-journal", self.state_dir)

    # --- what must not be left -----------------------------------------------------------------------------------
    def leftovers(self):
        """What jobs have left behind: processes of the users, cgroups, mounts, shared memory, device memory."""
        found = []
        uids = {pwd.getpwnam(user).pw_uid: user for user in USERS}
        for entry in os.listdir("/proc"):
            if not entry.isdigit():
                continue
            try:
                uid = os.stat(f"/proc/{entry}").st_uid
                with open(f"/proc/{entry}/cmdline", "rb") as file:
                    words = file.read().replace(b"\0", b" ").decode(errors="replace")
            except (FileNotFoundError, ProcessLookupError):
                continue
            if uid in uids and words:
                found.append(f"process {entry} of {uids[uid]}: {words}")
        for base, folders, _ in os.walk("/sys/fs/cgroup"):
            # A task's cgroup: u2001/j1/t0.1 where the hierarchy is unified, u2001.j1.t0.1 in those of version 1.
            name = os.path.basename(base)
            if f"/{self.cgroup_root}/" in base and (name.startswith("t") or ".t" in name):
                found.append(f"cgroup {base}")
        for folder in ("/run/tranche/jobs", "/run/tranche/tasks", "/run/tranche/members"):
            if os.path.isdir(folder):
                found += [f"{folder}/{name}" for name in os.listdir(folder)]
        found += [f"/dev/shm/{name}" for name in os.listdir("/dev/shm")]
        with open("/proc/self/mounts", encoding="utf-8") as file:
            found += [f"mount {line.split()[1]}" for line in file if "/run/tranche/jobs/" in line]
        for gpu in self.json("root", "gpus")["gpus"]:
            if gpu["slices"]:  # their memory has gone, and the daemon has yet to see it
                found.append(f"GPU {gpu['index']} is held by {gpu['slices']}")
        if not self.real_gpus:
            status = json.loads(self.root(BIN + "/tranche-emulator", "status", "--json"))
            for gpu in status["gpus"]:
                if gpu.get("processes"):
                    found.append(f"device memory on GPU {gpu['index']}: {gpu['processes']}")
        return found

    def assert_nothing_left(self, seconds=10):
        """Reaping is not instant: what is still there after `seconds` is a leftover."""
        deadline = time.monotonic() + seconds
        while True:
            found = self.leftovers()
            if not found:
                return
            if time.monotonic() > deadline:
                raise Failed("left over:\n  " + "\n  ".join(found))
            time.sleep(0.1)
