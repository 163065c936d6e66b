"""What an administrator does with a GPU that has failed, and what needs driver release 570: resets, MIG, checkpoints.

The driver of this server says what it recommends (field 230), so a GPU that was reset comes back by itself.
"""

import json
import os
import subprocess
import sys

import scenario
from scenario import BIN, wait_until

EMULATOR = BIN + "/tranche-emulator"
TRAIN = BIN + "/examples/train"

# Runs one step on a process and prints the CUDA result; started as root, who may trace it.
CHECKPOINT = """
import ctypes, sys
cuda = ctypes.CDLL(sys.argv[1] + "/libcuda.so.1")
arguments = (ctypes.c_uint32 * 16)(10000) if sys.argv[2] == "Lock" else None  # its time limit, ms
print(getattr(cuda, "cuCheckpointProcess" + sys.argv[2])(int(sys.argv[3]), arguments))
"""
STEPS = {"Lock": "locked", "Checkpoint": "checkpointed", "Restore": "restored", "Unlock": "running"}
OUT_OF_MEMORY = 2


def emulator(*words, code=0):
    done = subprocess.run([EMULATOR, *map(str, words)], capture_output=True, text=True, check=False)
    assert done.returncode == code, f"{words}: exit {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout.strip() if code == 0 else done.stderr


class GpuReset(scenario.Scenario):
    def setUp(self):
        self.addCleanup(self.well_again)

    def well_again(self):
        emulator("fault", "clear")
        def well():
            closed = [gpu for gpu in self.gpus() if gpu["health"] != "ok" or gpu["drained"]]
            for gpu in closed:  # again, where the daemon has not seen yet that the fault is gone
                self.server.tranche("root", "gpus", "undrain", str(gpu["index"]), code=None)
            return not closed
        wait_until(well, 40, "all well again")

    def gpus(self):
        return self.server.json("alice", "gpus")["gpus"]

    def gpu(self, index):
        return {"let_go": False, **self.gpus()[index]}

    def doctor(self, name):
        out, _ = self.server.tranche("alice", "doctor", "--json", code=None)
        return next(check for check in json.loads(out)["checks"] if check["name"] == name)

    def until_gpu(self, index, seconds=30, **facts):
        def looks():
            self.doctor("driver")  # has a GPU that was let go looked at
            gpu = self.gpu(index)
            return gpu if all(gpu[key] == value for key, value in facts.items()) else None
        return wait_until(looks, seconds, f"GPU {index} with {facts}, it is {self.gpu(index)}")

    def train(self, flags=("-G", "1")):
        job = self.submit("alice", [*flags, "-o", f"{scenario.SHARED}/%j.out"],
                          [TRAIN, "--seconds", "3600", "--memory", "200"])
        self.server.wait_state(job, "running")
        index = self.server.job(job)["gpus"][0]
        pid = lambda: next((p["pid"] for p in self.gpu(index)["processes"] if p.get("job") == job), None)
        return job, index, wait_until(pid, 30, f"job {job} on GPU {index}")

    def step(self, name, pid):
        done = subprocess.run([sys.executable, "-c", CHECKPOINT, self.server.library_dir, name, str(pid)],
                              capture_output=True, text=True, check=True)
        return int(done.stdout)

    # --- resets -------------------------------------------------------------------------------------------
    def test_a_failed_gpu_is_let_go_reset_and_comes_back_by_itself(self):
        bystander, other, _ = self.train()
        job, index, _ = self.train()
        emulator("fault", "xid", 95, "--gpu", index)
        done = self.server.wait(job)[0]
        self.assertEqual(done["state"], "failed")
        self.assertIn(f"XID 95 on GPU {index}, a fault of the GPU", done["reason"])
        self.until_gpu(index, health="failed", let_go=True)
        self.assertIn("let go: it can be reset now", self.server.tranche("alice", "gpus")[0])
        self.assertIn("is in use by process", emulator("reset", "--gpu", other, code=1), "a GPU with a job is not")
        # A look of the daemon's may be under way, for a moment.
        reset = lambda: subprocess.run([EMULATOR, "reset", "--gpu", str(index)], capture_output=True, check=False)
        wait_until(lambda: reset().returncode == 0, 20, "the reset")
        gpu = self.until_gpu(index, health="ok", let_go=False)
        self.assertEqual([f["xid"] for f in gpu["faults"]][-1:], [95], "what was is not forgotten")
        self.assertEqual(self.server.job(bystander)["state"], "running")
        for held in [g["index"] for g in self.gpus() if g["index"] not in (index, other)]:
            self.server.tranche("root", "gpus", "drain", str(held), "--reason", "only the reset one is wanted")
        done = self.submit("alice", ["-G", "1"], [TRAIN, "--steps", "1"], wait=True)
        self.assertEqual((done["state"], done["gpus"]), ("completed", [index]))

    def test_the_sampler_stands_in_the_way_of_nobody_who_drains_first(self):
        index = next(g["index"] for g in self.gpus() if not g["slices"])
        self.assertIn("tranche-sampler", emulator("reset", "--gpu", index, code=1))
        self.server.tranche("root", "gpus", "drain", str(index), "--reason", "a new board")
        self.until_gpu(index, drained=True, let_go=True)
        wait_until(lambda: subprocess.run([EMULATOR, "reset", "--gpu", str(index)], capture_output=True,
                                          check=False).returncode == 0, 20, "the reset")
        self.server.tranche("root", "gpus", "undrain", str(index))
        gpu = self.gpu(index)
        self.assertEqual((gpu["drained"], gpu["let_go"], gpu["health"]), (False, False, "ok"))
        self.assertIn("tranche-sampler", emulator("reset", "--gpu", index, code=1), "it is read again")

    def test_a_gpu_that_was_cut_up_while_it_was_drained_stays_closed(self):
        self.server.tranche("root", "gpus", "drain", "0", "--reason", "to be cut up")
        self.until_gpu(0, let_go=True)
        emulator("mig", "on", "--gpu", 0)
        self.addCleanup(emulator, "mig", "off", "--gpu", 0)
        self.refused("root", ["gpus", "undrain", "0"], 1, "MIG mode", "nvidia-smi -i 0 -mig 0")
        # Turned off, it is opened at once, though the daemon has not yet seen that it was.
        emulator("mig", "off", "--gpu", 0)
        self.server.tranche("root", "gpus", "undrain", "0")
        self.server.tranche("root", "gpus", "drain", "0", "--reason", "to be cut up after all")
        self.until_gpu(0, let_go=True)
        emulator("mig", "on", "--gpu", 0)
        gpu = self.until_gpu(0, drained=True, mig_enabled=True)
        for other in self.gpus()[1:]:
            self.server.tranche("root", "gpus", "drain", str(other["index"]), "--reason", "nothing else is free")
        waiting = self.submit("alice", ["-G", "1"], [TRAIN, "--steps", "1"])
        why = self.server.tranche("alice", "why", str(waiting))[0]
        self.assertIn("drained", why)
        self.assertIn("GPU 0", self.doctor("gpus")["detail"])
        self.assertEqual(gpu["slices"], [])

    # --- checkpoints ----------------------------------------------------------------------------------------
    def test_a_checkpoint_that_fails_at_each_step_harms_its_own_process_alone(self):
        bystander, _, _ = self.train()
        for failing in STEPS:
            with self.subTest(step=failing):
                job, index, pid = self.train(["-G", "1", "--grace", "1s"])
                emulator("fault", "checkpoint", STEPS[failing])
                for step in STEPS:
                    result = self.step(step, pid)
                    if step == failing:
                        break
                    self.assertEqual(result, 0, step)
                self.assertNotEqual(result, 0, failing)
                emulator("fault", "clear")
                # What was neither taken nor given back goes on; what failed half-way is lost ("no roll-back").
                again = self.step(failing, pid)
                self.assertEqual(again == 0, failing in ("Lock", "Unlock"), again)
                self.assertEqual(self.server.job(job)["state"], "running", "it hangs, or goes on: nobody ends it")
                self.assertEqual(self.gpu(index)["health"], "ok")
                self.server.tranche("alice", "cancel", str(job))
                self.assertEqual(self.server.wait(job)[0]["state"], "cancelled")
                wait_until(lambda: not self.gpu(index)["slices"], 20, "the GPU is free again")
                self.assertFalse(self.gpu(index)["drained"])
        self.assertEqual(self.server.job(bystander)["state"], "running")

    def test_a_process_on_a_mig_device_is_not_suspended(self):
        self.server.tranche("root", "gpus", "drain", "0", "--reason", "to be cut up")
        self.until_gpu(0, let_go=True)
        emulator("mig", "on", "--gpu", 0)
        device = emulator("mig", "create", "1g.5gb", "--gpu", 0)
        holder = subprocess.Popen([TRAIN, "--seconds", "600", "--memory", "100"], stdout=subprocess.DEVNULL,
                                  env={**os.environ, "CUDA_VISIBLE_DEVICES": device,
                                       "LD_LIBRARY_PATH": self.server.library_dir})
        try:
            listed = lambda: json.loads(emulator("mig", "list", "--json"))[0]
            wait_until(lambda: listed()["busy_ns"] > 0, 20, "work on the device")
            self.assertEqual(self.step("Lock", holder.pid), 0)
            self.assertEqual(self.step("Checkpoint", holder.pid), OUT_OF_MEMORY, "as it was seen on hardware")
            self.assertEqual(self.step("Unlock", holder.pid), 0)
            before = listed()["busy_ns"]
            wait_until(lambda: listed()["busy_ns"] > before, 20, "it works on")
        finally:
            holder.kill()
            holder.wait()
            emulator("mig", "destroy", "all", "--gpu", 0)
            emulator("mig", "off", "--gpu", 0)


if __name__ == "__main__":
    scenario.main(board="a100-40:1 h100-80:3", emulator=("--driver", "570"),
                  drop_in='[gpus]\nsample_interval = "100ms"\n')
