"""A server whose GPUs are virtual ones of a hypervisor (vGPU): given whole only, and their sensors are the host's."""

import scenario
from scenario import BIN

TRAIN = BIN + "/examples/train"


class Guest(scenario.Scenario):
    def test_virtual_gpus_are_given_whole_only(self):
        gpus = self.server.json("alice", "gpus")["gpus"]
        self.assertEqual([g["whole_only"] for g in gpus], [True, True])
        self.assertIn("virtual, given whole only", self.server.tranche("alice", "gpus")[0])
        self.assertIn("whole only", self.server.tranche("alice", "doctor", code=None)[0])
        self.refused("alice", ["submit", "-G", "0.5", "--", "true"], 2, "whole")
        done = self.submit("alice", ["-G", "2"], [TRAIN, "--steps", "1"], wait=True)
        self.assertEqual((done["state"], done["gpus"]), ("completed", [0, 1]))

    def test_what_the_host_keeps_to_itself_is_unknown_and_not_zero(self):
        gpu = self.server.json("alice", "gpus")["gpus"][0]
        self.assertNotIn("temperature_celsius", gpu)
        self.assertNotIn("power_milliwatts", gpu)
        self.assertIn("memory_used_mib", gpu)


if __name__ == "__main__":
    scenario.main(board="t4:2", emulator=("--guest", "vgpu"))
