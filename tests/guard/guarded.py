"""Programs under the guard on an emulated server in a laboratory, without the rest of Tranche but the arbiter.

    with Guarded(limit_mib=1024) as guarded:
        guarded.start([...])        a process under the limit; all of one Guarded are one task
        guarded.held()              what the emulator says that GPU 0 holds: the oracle, which knows nothing of limits
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lab"))

from server import BIN, BUILD, LAB, bind, require_lab, wait_until  # noqa: E402,F401

RUN = "/run/tranche"
EMULATOR = LAB + "/lib/emulator"
MIB = 1 << 20


class Guarded:
    def __init__(self, limit_mib, board="h100-80:1", without=(), arbiter=True, driver=EMULATOR, release=None):
        require_lab()
        self.limit = limit_mib * MIB
        self.board = board
        self.without = without
        # Libraries without the names that the release lacks lie with the server.
        self.driver = "/run/tranche-emulator/lib" if release else driver
        self.release = ["--driver", release] if release else []
        self.with_arbiter = arbiter
        self.arbiter = None
        self.children = []

    def __enter__(self):
        if not os.path.ismount(BIN):
            bind(os.path.join(BUILD, "bin"), BIN)
            bind(os.path.join(BUILD, "lib", "emulator"), EMULATOR)
        subprocess.run([BIN + "/tranche-emulator", "start", "--board", self.board, *self.release], check=True, stdout=subprocess.DEVNULL)
        os.makedirs(RUN + "/guard", exist_ok=True)
        self.fit()
        self.measure_contexts()
        self.start_arbiter()
        return self

    def measure_contexts(self):
        """As tranche-up does: what one context takes is known before a job makes one."""
        if self.driver == EMULATOR or self.release:
            with open(RUN + "/guard/contexts", "w", encoding="ascii") as file:
                subprocess.run([BIN + "/tranche-gpu-proof", "contexts"], check=True, stdout=file,
                               env={**os.environ, "LD_LIBRARY_PATH": self.driver})

    def fit(self):
        for library in ("cuda", "nvidia-ml"):
            name = f"lib{library}.so.1"
            hidden = [word for symbol in self.without if symbol.startswith("nvml") == (library == "nvidia-ml")
                      for word in ("--without", symbol)]
            subprocess.run([BIN + "/tranche-guard-fit", os.path.join(BUILD, "lib", "guard", name),
                            os.path.join(self.driver, name), f"{RUN}/guard/{name}", *hidden], check=True)
        for library in ("cuda", "nvml"):
            link = f"{RUN}/guard/libtranche-driver-{library}.so.1"
            if not os.path.islink(link):
                os.symlink(f"/run/tranche-task/driver-{library}.so", link)

    def start_arbiter(self):
        if not self.with_arbiter:
            return
        reader, writer = os.pipe()
        self.arbiter = subprocess.Popen([BIN + "/tranche-arbiter", "--ready-fd", str(writer)], pass_fds=[writer])
        os.close(writer)
        assert os.read(reader, 16), "the arbiter did not start"
        os.close(reader)

    def end_arbiter(self, how=signal.SIGKILL):
        if self.arbiter is not None:
            self.arbiter.send_signal(how)
            self.arbiter.wait()
            self.arbiter = None

    def __exit__(self, *_):
        for child in self.children:
            child.kill()
            child.wait()
        self.end_arbiter()
        subprocess.run([BIN + "/tranche-emulator", "stop", "--force"], check=False, stdout=subprocess.DEVNULL)
        shutil.rmtree(RUN, ignore_errors=True)

    def status(self, gpu=0):
        done = subprocess.run([BIN + "/tranche-emulator", "status", "--json"], check=True, capture_output=True, text=True)
        return json.loads(done.stdout)["gpus"][gpu]

    def held(self, gpu=0):
        return {p["pid"]: p["memory_bytes"] for p in self.status(gpu).get("processes", [])}

    def command(self, command, limit=None):
        limits = [f"--limit={self.status(gpu)['uuid']}={(limit or self.limit) // MIB}"
                  for gpu in range(int(self.board.split(":")[1]))]
        return [BIN + "/tranche-guard-run", "--driver-library-dir", self.driver, *limits, "--", *command]

    def start(self, command, limit=None, **options):
        child = subprocess.Popen(self.command(command, limit), **options)
        self.children.append(child)
        return child

    def run(self, command, timeout=60, **options):
        return subprocess.run(self.command(command), timeout=timeout, capture_output=True, text=True, check=False, **options)

    def run_python(self, program, *arguments, timeout=60):
        """The JSON that a Python program prints as its last line."""
        done = self.run([sys.executable, "-c", program, *arguments], timeout=timeout)
        if done.returncode != 0:
            raise AssertionError(f"exit {done.returncode}\n{done.stdout}{done.stderr}")
        return json.loads(done.stdout.splitlines()[-1])


def wait_for(condition, seconds, what):
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"{what} did not happen within {seconds} s")
        time.sleep(0.02)
