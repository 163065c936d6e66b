"""Rows of docs/scenarios.md that no other scenario holds: what users of other tools complain of."""

import scenario

POLICY = "[queue.default]\nuser_limit = {limit}\n"


class Complaints(scenario.Scenario):
    def sleeper(self, user, *flags):
        return self.submit(user, ["-o", "/dev/null", *flags], ["sleep", "600"])

    def test_17_18_the_limit_of_a_user_is_named_and_changes_live(self):
        running = [self.sleeper("alice", "-G", "1") for _ in range(2)]
        for job in running:
            self.server.wait_state(job, "running")
        third = self.sleeper("alice", "-G", "1")
        self.assertEqual(self.server.job(third)["state"], "pending")
        why = self.server.json("alice", "why", str(third))
        self.assertEqual((why["proof"]["kind"], why["proof"]["bound"]), ("limit", 2000), why)
        self.assertIn("limit", why["reason"])
        others = self.sleeper("bob", "-G", "1")
        self.server.wait_state(others, "running")
        self.server.write_config(POLICY.format(limit=3))
        self.addCleanup(self.server.tranche, "root", "config", "reload")
        self.addCleanup(self.server.write_config, POLICY.format(limit=2))
        self.server.tranche("root", "config", "reload")
        self.server.wait_state(third, "running")

    def test_7_a_job_without_gpu_does_not_wait_behind_those_with(self):
        for user in ("alice", "bob"):
            for _ in range(2):
                self.server.wait_state(self.sleeper(user, "-G", "1"), "running")
        waiting = self.sleeper("carol", "-G", "1")
        self.assertEqual(self.server.job(waiting)["state"], "pending")
        self.assertEqual(self.submit("alice", ["-o", "/dev/null"], ["true"], wait=True)["state"], "completed")
        self.assertEqual(self.server.job(waiting)["state"], "pending")

    def test_13_jobs_of_one_and_of_two_gpus_share_the_machine_without_a_split(self):
        self.server.wait_state(self.sleeper("alice", "-G", "2"), "running")
        for user in ("bob", "carol"):
            self.server.wait_state(self.sleeper(user, "-G", "1"), "running")
        held = [gpu["slices"][0]["user"] for gpu in self.server.json("alice", "gpus")["gpus"]]
        self.assertEqual(sorted(held), ["alice", "alice", "bob", "carol"])


if __name__ == "__main__":
    scenario.main(board="h100-80:4", policy=POLICY.format(limit=2))
