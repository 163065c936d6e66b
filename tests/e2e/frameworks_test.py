"""Gangs of real frameworks that meet by the job's environment alone: TensorFlow, torch.distributed and torchrun.

Their packages are large, so `./setup --long` installs them and the long run alone asks for them. Computing is on
processors: both frameworks look for CUDA only where a GPU's own libraries are installed with them.
"""

import json
import os
import subprocess
import sys

import scenario
from scenario import SHARED

TENSORFLOW = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", ".venv-long", "bin", "python3")

# Two workers train one model: the gradients of both, summed over the wire, move it to the mean of their targets.
TENSORFLOW_GANG = """
import json, os, sys
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
import tensorflow as tf
strategy = tf.distribute.MultiWorkerMirroredStrategy()
rank = strategy.cluster_resolver.task_id
with strategy.scope():
    weight = tf.Variable(0.0)
def step():
    target = tf.constant(10.0 * (1 + rank))
    with tf.GradientTape() as tape:
        loss = (weight - target) ** 2
    gradient = tf.distribute.get_replica_context().all_reduce("mean", tape.gradient(loss, weight))
    weight.assign_sub(0.25 * gradient)
train = tf.function(lambda: strategy.run(step), autograph=False)
for _ in range(40):
    train()
with open(f"{sys.argv[1]}/{rank}", "w") as file:
    json.dump({"replicas": strategy.num_replicas_in_sync, "weight": float(weight.numpy()),
               "rank": os.environ["RANK"]}, file)
"""

TORCH_GANG = """
import json, os, sys
import torch, torch.distributed as dist
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
weight = torch.zeros(1)
for _ in range(40):
    gradient = 2 * (weight - 10.0 * (1 + rank))
    dist.all_reduce(gradient)
    weight -= 0.25 * gradient / size
ranks = [None] * size
dist.all_gather_object(ranks, (rank, os.environ["LOCAL_RANK"], os.environ["TRANCHE_RANK"]))
with open(f"{sys.argv[1]}/{rank}", "w") as file:
    json.dump({"weight": weight.item(), "ranks": ranks}, file)
dist.destroy_process_group()
"""


class Frameworks(scenario.Scenario):
    number = 0

    def folder(self):
        Frameworks.number += 1
        path = f"{SHARED}/frameworks-{Frameworks.number}"
        os.mkdir(path)
        os.chmod(path, 0o777)
        return path

    @staticmethod
    def program(folder):
        with open(folder + "/program.py", "w", encoding="ascii") as file:
            file.write(TORCH_GANG)
        return folder + "/program.py"

    def ends_well(self, folder, flags, command):
        job = self.server.submit("alice", ["-n", "2", "-c", "1", "-o", f"{folder}/out-%t", *flags],
                                 [*command, folder])
        self.addCleanup(self.end, job)
        done = self.server.wait(job, timeout=600)[0]
        if done["state"] == "completed":
            return
        logs = ""
        for rank in range(2):
            with open(f"{folder}/out-{rank}", encoding="utf-8", errors="replace") as file:
                logs += file.read()[-3000:]
        self.fail(f"{done}\n{logs}")

    @staticmethod
    def told(folder, ranks):
        results = []
        for rank in range(ranks):
            with open(f"{folder}/{rank}", encoding="ascii") as file:
                results.append(json.load(file))
        return results

    def test_two_workers_of_tensorflow_train_one_model(self):
        folder = self.folder()
        self.ends_well(folder, ["--mem", "4G"], [f"{SHARED}/tensorflow/bin/python3", "-c", TENSORFLOW_GANG])
        for rank, result in enumerate(self.told(folder, 2)):
            self.assertEqual((result["replicas"], result["rank"]), (2, str(rank)))
            self.assertAlmostEqual(result["weight"], 15.0, places=3, msg="the mean of what both of them want")

    def test_torch_distributed_meets_with_a_process_for_each_task(self):
        folder = self.folder()
        self.ends_well(folder, ["--mem", "4G"], ["/usr/bin/python3", self.program(folder)])
        for result in self.told(folder, 2):
            self.assertAlmostEqual(result["weight"], 15.0, places=3)
            self.assertEqual(result["ranks"], [[0, "0", "0"], [1, "0", "1"]])

    def test_torchrun_starts_a_process_for_each_gpu_of_each_task(self):
        folder = self.folder()
        # The options' defaults trip over Debian's Python 3.11 in Debian's torch 1.13, which knows no member 0 of a flag.
        self.ends_well(folder, ["-G", "2", "--mem", "8G"],
                       ["torchrun", "--redirects", "1", "--tee", "2", self.program(folder)])
        for result in self.told(folder, 4):
            self.assertAlmostEqual(result["weight"], 25.0, places=3, msg="the mean of 10, 20, 30 and 40")
            self.assertEqual(result["ranks"], [[0, "0", "0"], [1, "1", "0"], [2, "0", "1"], [3, "1", "1"]])


if __name__ == "__main__":
    if not os.path.exists(TENSORFLOW) or subprocess.run(
            ["/usr/bin/python3", "-c", "import torch.distributed"], check=False, capture_output=True).returncode:
        print("skipped: TensorFlow or PyTorch is not installed; `./setup --long` installs them")
        sys.exit(77)
    # A clone below /root is closed to users: the environment is shown to them where they may look.
    os.makedirs(SHARED + "/tensorflow")
    subprocess.run(["mount", "--bind", os.path.join(os.path.dirname(TENSORFLOW), ".."), SHARED + "/tensorflow"],
                   check=True)
    scenario.main(board="h100-80:4")
