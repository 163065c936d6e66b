"""Slurm of Debian on the same machine, disk and emulated GPUs, for the table of bench/run.

One controller, one node daemon and munge, as root in the laboratory, with what Slurm has that Tranche always has on:
tracking of processes by cgroup, and access to the devices of one's own GPUs alone. "stock" is Slurm's own defaults in
everything else; "tuned" decides at once and looks for ends at once, as sites with many short jobs set it.
"""

import os
import shutil
import signal
import subprocess
import time

CONFIGURATION = """ClusterName=bench
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
SlurmdParameters=config_overrides
MaxJobCount=100000
ProctrackType=proctrack/cgroup
TaskPlugin=task/cgroup
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
GresTypes=gpu
ReturnToService=2
NodeName={host} NodeAddr=127.0.0.1 CPUs={gpus} CoresPerSocket={gpus} RealMemory=4096 Gres=gpu:{gpus}
PartitionName=all Nodes={host} Default=YES State=UP
"""
TUNED = "SchedulerParameters=batch_sched_delay=0,sched_min_interval=0\nMinJobAge=2\nCompleteWait=0\n"
CGROUPS = "CgroupPlugin=cgroup/v1\nConstrainDevices=yes\n"


def is_installed():
    return all(shutil.which(name, path="/usr/sbin:/usr/bin") for name in ("slurmctld", "slurmd", "munged", "sbatch"))


class Slurm:
    """Started by `with`; `environment` is what its commands need."""

    def __init__(self, folder, gpus, tuned):
        self.folder, self.gpus, self.tuned = folder, gpus, tuned
        self.environment = {"SLURM_CONF": folder + "/slurm.conf"}
        self.processes = []

    def __enter__(self):
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for process in reversed(self.processes):
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _start(self):
        os.makedirs("/run/munge", 0o755, exist_ok=True)
        shutil.chown("/run/munge", "munge", "munge")
        os.mkdir(self.folder, 0o755)
        for name in ("state", "spool"):
            os.mkdir(f"{self.folder}/{name}", 0o755)
        text = CONFIGURATION.format(host=os.uname().nodename, folder=self.folder, gpus=self.gpus)
        self._write("slurm.conf", text + (TUNED if self.tuned else ""))
        self._write("gres.conf", f"Name=gpu File=/dev/nvidia[0-{self.gpus - 1}]\n")
        self._write("cgroup.conf", CGROUPS)
        self._spawn("setpriv", "--reuid", "munge", "--regid", "munge", "--clear-groups", "munged", "--force",
                    "--foreground", "--pid-file", "/run/munge/munged.pid", "--log-file", "/run/munge/munged.log",
                    "--seed-file", "/run/munge/munged.seed")
        self._wait(["munge", "--no-input"], "munge")
        self._spawn("slurmctld", "-D")
        self._spawn("slurmd", "-D", "-N", os.uname().nodename)
        self._wait(["srun", "--gres=gpu:1", "true"], "Slurm")

    def _write(self, name, text):
        with open(f"{self.folder}/{name}", "w", encoding="ascii") as file:
            file.write(text)

    def _spawn(self, *command):
        environment = {**os.environ, **self.environment, "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
        self.processes.append(subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL,
                                               stderr=subprocess.DEVNULL, cwd=self.folder))

    def _wait(self, command, what):
        deadline = time.monotonic() + 60
        environment = {**os.environ, **self.environment}
        while subprocess.run(command, env=environment, check=False, timeout=60, stdout=subprocess.DEVNULL,
                             stderr=subprocess.DEVNULL).returncode != 0:
            if time.monotonic() > deadline:
                raise SystemExit(f"bench/run: {what} does not start; without it: --without-slurm")
            time.sleep(0.2)
