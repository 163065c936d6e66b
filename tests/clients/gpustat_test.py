#!/usr/bin/env python3
"""gpustat from PyPI, unchanged, on the emulated server: its JSON, which scripts read, and its table."""

import json
import os
import re
import subprocess
import sys
import unittest

from emulated_server import boards_of_this_server, context_mib, expected_memory, holders, plan_for, wait_until

BOARDS = boards_of_this_server()


def gpustat(*arguments):
    program = os.path.join(os.path.dirname(sys.executable), "gpustat")
    finished = subprocess.run([program, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


def shown():
    return {(process["pid"], gpu["index"]): process["gpu_memory_usage"]
            for gpu in json.loads(gpustat("--json"))["gpus"] for process in gpu["processes"]}


class Gpustat(unittest.TestCase):
    def test_json_shows_boards_processes_and_memory(self):
        with holders(*plan_for(len(BOARDS))) as started:
            gpus = json.loads(gpustat("--json"))["gpus"]
            self.assertEqual([gpu["name"] for gpu in gpus], [board.name for board in BOARDS])
            self.assertEqual([gpu["memory.total"] for gpu in gpus], [board.total_mib for board in BOARDS])
            for gpu in gpus:
                self.assertEqual(gpu["memory.used"], sum(entry["gpu_memory_usage"] for entry in gpu["processes"]))
                self.assertGreater(gpu["enforced.power.limit"], 0)
                self.assertGreater(gpu["temperature.gpu"], 0)
            context_mib(shown(), expected_memory(started))

    def test_table_shows_them_too(self):
        with holders(*plan_for(len(BOARDS))) as started:
            in_json = shown()
            lines = gpustat("--show-pid", "--no-color", "--no-header").splitlines()
            self.assertEqual(len(lines), len(BOARDS))
            in_table = {(int(pid), gpu): int(mib) for gpu, line in enumerate(lines)
                        for pid, mib in re.findall(r"/(\d+)\((\d+)M\)", line)}
            self.assertEqual(in_table, in_json)
            context_mib(in_table, expected_memory(started))

    def test_a_killed_process_disappears(self):
        with holders({0: 1024}, {0: 512}) as (killed, survivor):
            killed.kill()
            wait_until(lambda: (killed.pid, 0) not in shown(), "the killed process leaves the list")
            self.assertEqual(set(shown()), {(survivor.pid, 0)})


if __name__ == "__main__":
    unittest.main()
