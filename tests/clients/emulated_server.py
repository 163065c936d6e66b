"""What the client tests share: the boards of the server they run on, and real processes that hold memory.

Expected numbers stand here a second time, on purpose: they are what nvidia-smi prints for these boards.
"""

import contextlib
import os
import subprocess
import sys
import time

FOLDER = os.path.dirname(os.path.abspath(__file__))
MIB = 1 << 20

# name, total MiB, reserved MiB, fan, NVLink, MIG
BOARDS = {
    "t4": ("Tesla T4", 15360, 250, False, False, False),
    "rtx4090": ("NVIDIA GeForce RTX 4090", 24564, 346, True, False, False),
    "l40s": ("NVIDIA L40S", 46068, 612, False, False, False),
    "a100-40": ("NVIDIA A100-SXM4-40GB", 40960, 624, False, True, True),
    "a100-80": ("NVIDIA A100-SXM4-80GB", 81920, 870, False, True, True),
    "h100-80": ("NVIDIA H100 80GB HBM3", 81559, 561, False, True, True),
    "h200": ("NVIDIA H200", 143771, 607, False, True, True),
    "b200": ("NVIDIA B200", 183359, 729, False, True, True),
    "a30": ("NVIDIA A30", 24576, 514, False, False, True),
    "rtxpro6000": ("NVIDIA RTX PRO 6000 Blackwell Server Edition", 97887, 639, False, False, True),
}


class Board:
    def __init__(self, key):
        self.key = key
        self.name, self.total_mib, self.reserved_mib, self.fan, self.nvlink, self.mig = BOARDS[key]


def boards_of_this_server():
    """The GPUs of TRANCHE_TEST_BOARDS ("h100-80:4 t4:1"), in order."""
    gpus = []
    for word in os.environ["TRANCHE_TEST_BOARDS"].split():
        key, _, count = word.partition(":")
        gpus += [Board(key)] * int(count or 1)
    return gpus


class Holder:
    """A process with {gpu: MiB} of device memory."""

    def __init__(self, memory, busy=False, copy=False):
        self.memory = memory
        arguments = [f"{gpu}={mib}" for gpu, mib in memory.items()]
        arguments += (["--busy"] if busy else []) + (["--copy"] if copy else [])
        self._process = subprocess.Popen(
            [sys.executable, os.path.join(FOLDER, "holder.py"), *arguments],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env=dict(os.environ, CUDA_DEVICE_ORDER="PCI_BUS_ID"))  # CUDA's numbers are then NVML's
        if self._process.stdout.readline().strip() != "ready":
            raise RuntimeError(f"holder of {memory} did not start: exit status {self._process.wait()}")

    @property
    def pid(self):
        return self._process.pid

    def ask(self):
        """CUDA's result of one more allocation."""
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def end(self):
        self._process.stdin.close()
        assert self._process.wait() == 0

    def kill(self):
        self._process.kill()
        self._process.wait()
        self._process.stdin.close()
        self._process.stdout.close()


@contextlib.contextmanager
def holders(*memories, busy=False, copy=False):
    started = []
    try:
        for memory in memories:
            started.append(Holder(memory, busy, copy))
        yield started
    finally:
        for holder in started:
            holder.kill()


def plan_for(gpu_count):
    """Three processes of known sizes: two GPUs shared, one process on two GPUs."""
    last = gpu_count - 1
    return ({0: 1024, last: 512}, {0: 2048}, {last: 3072}) if last > 0 else ({0: 1024}, {0: 2048}, {0: 512})


def expected_memory(started):
    """{(pid, gpu): MiB asked for} of some holders."""
    return {(holder.pid, gpu): mib for holder in started for gpu, mib in holder.memory.items()}


def context_mib(seen, asked):
    """The MiB that a context costs on each GPU, from what a tool shows; fails unless the difference to what
    was asked for is one positive number a GPU."""
    assert seen.keys() == asked.keys(), f"tool shows {sorted(seen)}, running are {sorted(asked)}"
    costs = {}
    for (pid, gpu), mib in seen.items():
        cost = mib - asked[(pid, gpu)]
        assert 0 < cost < 1024, f"process {pid} on GPU {gpu} shows {mib} MiB for {asked[(pid, gpu)]} MiB"
        assert costs.setdefault(gpu, cost) == cost, f"contexts on GPU {gpu} cost {costs[gpu]} and {cost} MiB"
    return costs


def wait_until(condition, what, seconds=30):
    """Waits for something that happens soon but not at once; the limit only ends a hopeless wait."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"waited {seconds} s for: {what}"
        time.sleep(0.02)
