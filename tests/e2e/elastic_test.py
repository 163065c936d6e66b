"""Elastic and moldable jobs with real processes: tasks join and leave a job that runs, and nothing starts again."""

import os
import re

import scenario
from scenario import SHARED, wait_until

# Tells TERM from KILL, and how long it had; reads who is there as a shell would.
WATCH = """
folder=$1
say() { printf '%s\\n' "$*" >> "$folder/task-$TRANCHE_RANK"; }
trap 'say "TERM while RANKS=$(. "$TRANCHE_MEMBERS_FILE"; echo $RANKS)"; sleep 0.3; say grace; exit 0' TERM
say "attempt $TRANCHE_ATTEMPT"
last=
while [ ! -e "$folder/gate" ]; do
    . "$TRANCHE_MEMBERS_FILE"
    if [ "$GENERATION" != "$last" ]; then
        say "generation $GENERATION ranks $RANKS leaving $LEAVING size $WORLD_SIZE port $MASTER_PORT"
        last=$GENERATION
    fi
    sleep 0.02
done
"""


class Elastic(scenario.Scenario):
    folders = 0

    def setUp(self):
        self.last_row = self.server.journal()[-1][0]

    def folder(self):
        Elastic.folders += 1
        path = f"{SHARED}/elastic-{Elastic.folders}"
        os.mkdir(path)
        os.chmod(path, 0o777)
        return path

    def decisions(self, kind, job):
        return [decision for row in self.server.journal() if row[0] > self.last_row for decision in row[4]
                if decision["kind"] == kind and decision["task"]["job"] == job]

    def gated(self, user, flags):
        gate = self.folder() + "/gate"
        job = self.submit(user, ["-o", "/dev/null", *flags],
                          ["sh", "-c", f"while [ ! -e {gate} ]; do sleep 0.02; done"])
        return job, gate

    @staticmethod
    def touch(path):
        open(path, "w", encoding="ascii").close()

    @staticmethod
    def lines(path):
        try:
            with open(path, encoding="ascii") as file:
                return file.read().splitlines()
        except FileNotFoundError:
            return []

    def running(self, job):
        return [task["rank"] for task in self.server.job(job)["tasks"] if task["state"] == "running"]

    def members(self, job):
        return dict(line.split("=", 1) for line in self.lines(f"/run/tranche/members/{job}"))

    def test_training_survives_growing_and_shrinking(self):
        """The example: four members, two while another user's job runs, four again; its samples only rise."""
        folder = self.folder()
        job = self.submit("alice", ["--elastic", "-G", "1..4", "-t", "1h", "--grace", "20s"],
                          ["elastic", "--state", folder, "--step-ms", "5", "--memory", "100"])
        wait_until(lambda: self.running(job) == [0, 1, 2, 3], 30, "four tasks")
        detail = self.server.job(job)
        self.assertEqual((detail["elastic"], detail["tasks_min"], detail["tasks_max"]), (True, 1, 4))
        self.assertEqual(len(set(detail["gpus"])), 4)
        pids = {task["rank"]: task["pid"] for task in detail["tasks"]}
        samples = lambda: int((self.lines(folder + "/samples") or ["0"])[0])
        wait_until(lambda: samples() > 200, 30, "samples")

        other, gate = self.gated("bob", ["-G", "2"])
        self.server.wait_state(other, "running", user="bob")
        before = samples()
        self.assertEqual(self.running(job), [0, 1], "it gave up the two that the other needs")
        self.assertEqual(self.members(job)["RANKS"], "0,1")
        why = self.server.json("alice", "why", str(job))["reason"]
        self.assertIn("2 of 1 to 4 tasks", why)
        self.assertIn(f"job {other}", why)
        self.assertIn("2 of 1 to 4, elastic", self.server.tranche("alice", "show", str(job))[0])
        wait_until(lambda: samples() > before + 100, 30, "the two that stay go on")

        self.touch(gate)
        self.server.wait(other, user="bob")
        wait_until(lambda: self.running(job) == [0, 1, 2, 3], 30, "four tasks again")
        now = {task["rank"]: task["pid"] for task in self.server.job(job)["tasks"]}
        self.assertEqual([now[0], now[1]], [pids[0], pids[1]], "those that stayed are the same processes")
        before = samples()
        wait_until(lambda: samples() > before + 100, 30, "and all go on")
        detail = self.server.job(job)
        self.assertEqual((detail["state"], detail["attempt"]), ("running", 1), "the job has not begun again")
        stops = self.decisions("stop", job)
        self.assertEqual([(stop["task"].get("rank", 0), stop["reason"], stop["beneficiary"]) for stop in stops],
                         [(3, "reclaimed", other), (2, "reclaimed", other)])
        log = self.log(self.server.job(job))
        for rank in (2, 3):
            self.assertRegex(log, rf"task {rank}: leaves at sample \d+")
            self.assertRegex(log, rf"task {rank}, attempt [23]: begins at sample [1-9]\d*", "with all that was done")
        self.assertRegex(log, r"task 0: member 1 of 2 from sample \d+")
        seen = [int(number) for number in re.findall(r"task 0: member .* from sample (\d+)", log)]
        self.assertEqual(seen, sorted(seen))
        self.assertEqual(len(re.findall("task 0, attempt", log)), 1, "nothing was started again")

    def test_others_hear_of_it_before_the_task_that_goes(self):
        folder = self.folder()
        job = self.submit("alice", ["--elastic", "-n", "1-4", "-G", "1", "-t", "1h", "--grace", "20s", "-o", "/dev/null"],
                          ["sh", "-c", WATCH, "watch", folder])
        wait_until(lambda: self.members(job).get("RANKS") == "0,1,2,3", 30, "four members")
        for rank in range(4):
            wait_until(lambda: any("ranks 0,1,2,3 " in line for line in self.lines(f"{folder}/task-{rank}")), 20,
                       f"task {rank} sees them")
        other, gate = self.gated("bob", ["-G", "1"])
        self.server.wait_state(other, "running", user="bob")
        gone = self.lines(f"{folder}/task-3")
        self.assertEqual(gone[-2:], ["TERM while RANKS=0,1,2", "grace"], "TERM after the file, and time to end")
        wait_until(lambda: " size 3 " in self.lines(f"{folder}/task-0")[-1], 10, "the rest knows")
        generations = [int(line.split()[1]) for line in self.lines(f"{folder}/task-0") if line.startswith("generation")]
        self.assertEqual(generations, sorted(set(generations)), "each change has a higher number")
        ports = {line.split()[-1] for rank in range(4) for line in self.lines(f"{folder}/task-{rank}") if " port " in line}
        self.assertEqual(len(ports), 1, "the place to meet stays")
        told = self.members(job)
        self.server.kill_daemon()
        self.server.up()
        self.assertEqual(self.members(job), told, "a new daemon says the same, and no change")
        self.touch(gate)
        wait_until(lambda: self.members(job).get("RANKS") == "0,1,2,3", 30, "it grows again")
        self.touch(folder + "/gate")
        done = self.server.wait(job)[0]
        self.assertEqual(done["state"], "completed", done)
        attempts = [line for line in self.lines(f"{folder}/task-0") if "attempt" in line]
        self.assertEqual(len(attempts), 1, "it ran once; an attempt before, whose port was taken, never ran")
        self.assertFalse(os.path.exists(f"/run/tranche/members/{job}"))

    def test_environment_of_elastic_tasks(self):
        folder = self.folder()
        job = self.submit("alice", ["--elastic", "-G", "1..2", "-o", "/dev/null"],
                          ["sh", "-c", f"env | sort > {folder}/env-$TRANCHE_RANK; exec sleep 600"])
        wait_until(lambda: self.running(job) == [0, 1], 30, "two tasks")
        wait_until(lambda: any(line.startswith("WORLD_SIZE=") for line in self.lines(folder + "/env-1")), 10, "it")
        env = dict(line.split("=", 1) for line in self.lines(folder + "/env-1") if "=" in line)
        self.assertEqual((env["TRANCHE_TASKS_MIN"], env["TRANCHE_TASKS_MAX"], env["PET_NNODES"]), ("1", "2", "1:2"))
        self.assertEqual(env["PET_RDZV_BACKEND"], "c10d")
        self.assertEqual(env["PET_RDZV_ENDPOINT"], f"127.0.0.1:{env['MASTER_PORT']}")
        self.assertEqual(self.members(job)["MASTER_PORT"], env["MASTER_PORT"])
        self.assertNotIn("TF_CONFIG", env)
        self.assertNotIn("PET_NODE_RANK", env)

    def test_moldable_takes_what_is_free_when_it_starts(self):
        first, gate = self.gated("bob", ["-G", "1"])
        self.server.wait_state(first, "running", user="bob")
        program = "echo $TRANCHE_GPUS; exec sleep 600"
        job = self.submit("alice", ["-G", "1..4"], ["sh", "-c", program])
        self.server.wait_state(job, "running")
        detail = self.server.job(job)
        self.assertEqual(len(detail["gpus"]), 3)
        self.assertEqual(detail["gpu"]["count_max"], 4)
        why = self.server.json("alice", "why", str(job))["reason"]
        self.assertIn("3 of 1 to 4 GPUs", why)
        self.assertIn(f"job {first}", why)
        self.assertIn("3 of 1 to 4 GPUs", self.server.tranche("alice", "show", str(job))[0])
        wait_until(lambda: self.log(self.server.job(job)).strip() == "3", 10, "the task sees them")
        self.touch(gate)
        self.server.wait(first, user="bob")
        self.assertEqual(len(self.server.job(job)["gpus"]), 3, "it stays as it started")

    def test_joined_gpus(self):
        job = self.submit("alice", ["-G", "2", "--nvlink"], ["true"], wait=True)
        self.assertEqual(job["state"], "completed")
        self.assertEqual(job["gpu"]["topology"], "nvlink")
        self.assertIn("joined by NVLink", self.server.tranche("alice", "show", str(job["job"]))[0])

    def test_processors_of_a_queue(self):
        """A limit of processors holds, says so everywhere, and a reload that raises it lets the job in."""
        first, gate = self.gated("alice", ["-q", "narrow"])
        second, _ = self.gated("alice", ["-q", "narrow"])
        self.server.wait_state(first, "running")
        why = self.server.json("alice", "why", str(second))
        self.assertEqual((why["proof"]["kind"], why["proof"]["resource"], why["proof"]["queue"]),
                         ("limit", "cpu", "narrow"))
        self.assertIn("0.1 CPUs of its limit of 0.15 CPUs", why["reason"])
        self.assertIn("0.1 of 0.05, limit 0.15", self.server.tranche("alice", "queue")[0])
        share = self.server.tranche("alice", "share")[0]
        self.assertIn("of the machine it uses 0.1 CPUs, its quota is 0.05 CPUs, its limit is 0.15 CPUs", share)
        explained = self.server.tranche("root", "config", "explain", self.server.config)[0]
        self.assertIn("it uses at most 0.15 CPUs", explained)
        self.server.write_config(POLICY.replace("limit_cpu = 0.15", "limit_cpu = 1"))
        self.addCleanup(self.server.tranche, "root", "config", "reload")
        self.addCleanup(self.server.write_config, POLICY)
        self.server.tranche("root", "config", "reload")
        self.server.wait_state(second, "running")
        self.touch(gate)

    def test_what_makes_no_sense_is_refused(self):
        self.refused("alice", ["submit", "--elastic", "-G", "2", "--", "true"], 2, "--elastic", "range")
        self.refused("alice", ["submit", "-n", "2", "-G", "1..4", "--", "true"], 2, "--tasks")
        self.refused("alice", ["submit", "-G", "4..1", "--", "true"], 2, "smaller")
        self.refused("alice", ["submit", "-G", "1..4", "--gpu-mem", "2G", "--", "true"], 2, "range")
        self.refused("alice", ["submit", "-G", "0.5", "--nvlink", "--", "true"], 2, "whole")


POLICY = """
[policy]
minimum_runtime = "0s"
half_life = "10s"
[queue."narrow"]
quota_cpu = 0.05
limit_cpu = 0.15
"""

if __name__ == "__main__":
    scenario.main(policy=POLICY)
