#!/usr/bin/env python3
"""nvitop from PyPI, unchanged, on the emulated server: what `nvitop -1` prints, and its Python API."""

import os
import re
import subprocess
import sys
import unittest

import nvitop

from emulated_server import (MIB, boards_of_this_server, context_mib, expected_memory, holders, plan_for,
                             wait_until)

BOARDS = boards_of_this_server()
# Below 1000 it prints "792.0MiB", from there on "1032MiB".
PROCESS_LINE = re.compile(r"^\|\s+(?P<gpu>\d+)\s+(?P<pid>\d+) C\s+\S+\s+(?P<mib>\d+)(\.0)?MiB\s", re.MULTILINE)


def nvitop_once():
    program = os.path.join(os.path.dirname(sys.executable), "nvitop")
    finished = subprocess.run([program, "-1", "--ascii"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              env=dict(os.environ, COLUMNS="140"))
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


def shown():
    return {(int(match["pid"]), int(match["gpu"])): int(match["mib"])
            for match in PROCESS_LINE.finditer(nvitop_once())}


class Nvitop(unittest.TestCase):
    def test_shows_boards_processes_and_memory(self):
        with holders(*plan_for(len(BOARDS))) as started:
            text = nvitop_once()
            context_mib(shown(), expected_memory(started))
        for gpu, board in enumerate(BOARDS):
            name = board.name.removeprefix("NVIDIA ")[:18].strip()
            self.assertRegex(text, rf"(?m)^\|\s+{gpu}\s+{re.escape(name)}")
        self.assertNotIn("ERROR", text)

    def test_a_killed_process_disappears(self):
        with holders({0: 1024}, {0: 512}) as (killed, survivor):
            killed.kill()
            wait_until(lambda: (killed.pid, 0) not in shown(), "the killed process leaves the list")
            self.assertEqual(set(shown()), {(survivor.pid, 0)})

    def test_python_interface_agrees(self):
        with holders(*plan_for(len(BOARDS))) as started:
            devices = nvitop.Device.all()
            self.assertEqual([device.name() for device in devices], [board.name for board in BOARDS])
            self.assertEqual([device.memory_total() for device in devices],
                             [board.total_mib * MIB for board in BOARDS])
            seen = {(pid, device.index): process.gpu_memory() // MIB
                    for device in devices for pid, process in device.processes().items()}
            context_mib(seen, expected_memory(started))


if __name__ == "__main__":
    unittest.main()
