#!/usr/bin/env python3
"""nvtop from Debian, unchanged, in a terminal (tmux), and all clients' views of two processes on one GPU.

nvtop prints to a terminal only, so it is read from a tmux pane.
"""

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import nvitop
import pynvml

from emulated_server import MIB, boards_of_this_server, holders, wait_until

BOARDS = boards_of_this_server()


@contextlib.contextmanager
def terminal(command, columns=180, lines=50):
    """A function that gives what a terminal shows in which `command` runs."""
    with tempfile.TemporaryDirectory() as folder:
        def tmux(*arguments):
            return subprocess.run(["tmux", "-S", folder + "/socket", "-f", "/dev/null", *arguments], text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False).stdout
        environment = dict(os.environ, TERM="xterm-256color", LC_ALL="C.UTF-8", HOME=folder)
        subprocess.run(["tmux", "-S", folder + "/socket", "-f", "/dev/null", "new-session", "-d", "-x", str(columns),
                        "-y", str(lines), "-s", "client", command], env=environment, check=True)
        try:
            yield lambda: tmux("capture-pane", "-p", "-t", "client")
        finally:
            tmux("kill-server")


def nvtop_processes(screen):
    """{(pid, gpu): MiB} of the process table: PID USER DEV TYPE GPU% ... GPU MEM."""
    found = {}
    for line in screen.splitlines():
        match = re.search(r"^\s*(\d+)\s+\S+\s+(\d+)\s+Compute\s.*?(\d+)MiB", line)
        if match:
            found[int(match[1]), int(match[2])] = int(match[3])
    return found


def pynvml_processes():
    found = {}
    for gpu in range(len(BOARDS)):
        for entry in pynvml.nvmlDeviceGetComputeRunningProcesses(pynvml.nvmlDeviceGetHandleByIndex(gpu)):
            found[entry.pid, gpu] = entry.usedGpuMemory // MIB
    return found


def gpustat_processes():
    program = os.path.join(os.path.dirname(sys.executable), "gpustat")
    text = subprocess.run([program, "--json"], stdout=subprocess.PIPE, check=True, text=True).stdout
    return {(process["pid"], gpu["index"]): process["gpu_memory_usage"]
            for gpu in json.loads(text)["gpus"] for process in gpu["processes"]}


def nvitop_processes():
    return {(pid, device.index): process.gpu_memory() // MIB
            for device in nvitop.Device.all() for pid, process in device.processes().items()}


class Nvtop(unittest.TestCase):
    def setUp(self):
        pynvml.nvmlInit()
        self.addCleanup(pynvml.nvmlShutdown)

    def test_shows_every_board(self):
        with terminal("nvtop --delay 1") as screen:
            wait_until(lambda: all(board.name in screen() for board in BOARDS), "nvtop shows the boards")
            self.assertIn(f"/{BOARDS[0].total_mib / 1024:.3f}Gi"[:6], screen())

    def test_two_processes_on_one_gpu_are_seen_alike_by_all(self):
        with holders({0: 1024}, {0: 512}, busy=True) as started, terminal("nvtop --delay 1") as screen:
            wait_until(lambda: len(nvtop_processes(screen())) == 2, "nvtop shows two processes")
            expected = pynvml_processes()
            self.assertEqual({pid for pid, _ in expected}, {holder.pid for holder in started})
            self.assertEqual(nvtop_processes(screen()), expected)
            self.assertEqual(gpustat_processes(), expected)
            self.assertEqual(nvitop_processes(), expected)

    def test_the_end_of_a_process_is_shown(self):
        with holders({0: 1024}, {0: 512}) as (killed, survivor), terminal("nvtop --delay 1") as screen:
            wait_until(lambda: len(nvtop_processes(screen())) == 2, "nvtop shows two processes")
            killed.kill()
            wait_until(lambda: set(nvtop_processes(screen())) == {(survivor.pid, 0)}, "the killed process goes")


if __name__ == "__main__":
    for program in ("nvtop", "tmux"):
        if shutil.which(program) is None:
            print(f"skipped: {program} is not installed; ./setup installs it")
            sys.exit(77)
    unittest.main()
