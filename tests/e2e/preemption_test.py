"""Each kind of decision with real processes: who is stopped for whom, who waits for what, who starts when."""

import os
import signal

import scenario
from scenario import SHARED, wait_until

# Trains until its file `gate` is there. TERM: a checkpoint, and the end with the code that is asked for. A later
# attempt goes on from the checkpoint.
TRAIN = """
import os, signal, sys, time
folder, code = sys.argv[1], int(sys.argv[2])
attempt = int(os.environ["TRANCHE_ATTEMPT"])
mark = lambda name: open(f"{folder}/{name}", "w").close()
def stop(number, frame):
    mark(f"checkpoint-{attempt}")
    print(f"attempt {attempt}: checkpoint", flush=True)
    sys.exit(code)
signal.signal(signal.SIGTERM, stop)
resumed = os.path.exists(f"{folder}/checkpoint-{attempt - 1}")
print(f"attempt {attempt}: {'resumed' if resumed else 'from the start'}", flush=True)
mark(f"ready-{attempt}")
while not os.path.exists(f"{folder}/gate"):
    time.sleep(0.02)
print(f"attempt {attempt}: done", flush=True)
"""

# Says that it heard TERM, and goes on all the same.
STUBBORN = """
import os, signal, sys, time
folder = sys.argv[1]
signal.signal(signal.SIGTERM, lambda number, frame: open(folder + "/heard", "w").close())
open(folder + "/ready-1", "w").close()
end = time.monotonic() + 600
while time.monotonic() < end:
    time.sleep(0.02)
"""


class Preemption(scenario.Scenario):
    folders = 0

    def setUp(self):
        self.last_row = self.server.journal()[-1][0]

    def folder(self, user):
        Preemption.folders += 1
        path = f"{SHARED}/{user}-{Preemption.folders}"
        os.mkdir(path)
        os.chmod(path, 0o777)
        return path

    @staticmethod
    def touch(path):
        open(path, "w", encoding="ascii").close()

    def train(self, user, flags, code=143):
        """A training job; returns (job, folder) once its process runs."""
        folder = self.folder(user)
        job = self.submit(user, flags, ["python3", "-c", TRAIN, folder, str(code)])
        return job, folder

    def until(self, path, seconds=20):
        wait_until(lambda: os.path.exists(path), seconds, path)

    def gated(self, user, flags):
        """A job that ends well when the returned file is made."""
        gate = self.folder(user) + "/gate"
        job = self.submit(user, ["-o", "/dev/null", *flags],
                          ["sh", "-c", f"while [ ! -e {gate} ]; do sleep 0.02; done"])
        return job, gate

    def rows(self, kind=None):
        """This test's rows of the journal: (seq, time, kind, event, decisions)."""
        return [row for row in self.server.journal() if row[0] > self.last_row and (kind is None or row[2] == kind)]

    def decisions(self, kind):
        return [decision for row in self.rows() for decision in row[4] if decision["kind"] == kind]

    def stops(self):
        """{stopped job: (reason, beneficiary)}"""
        return {stop["task"]["job"]: (stop["reason"], stop.get("beneficiary")) for stop in self.decisions("stop")}

    def order_of_starts(self):
        return [start["task"]["job"] for start in self.decisions("start") if start["task"].get("rank", 0) == 0]

    def state(self, job):
        return self.server.job(job, "root")["state"]

    # --- preemption by priority -------------------------------------------------------------------
    def check_priority_preemption(self, code):
        victims = [self.train("carol", ["-q", "lab", "-G", "1", "--grace", "20s"], code) for _ in range(4)]
        for _, folder in victims:
            self.until(folder + "/ready-1")
        urgent, gate = self.gated("carol", ["-q", "lab", "-G", "1", "--priority", "10"])
        self.server.wait_state(urgent, "running", user="carol")
        stops = self.stops()
        self.assertEqual(len(stops), 1, f"one GPU is needed, so one job is stopped: {stops}")
        victim, (reason, beneficiary) = next(iter(stops.items()))
        self.assertEqual((reason, beneficiary), ("preempted", urgent))
        folder = dict(victims)[victim]
        self.until(folder + "/checkpoint-1")
        waiting = self.server.wait_state(victim, "pending", user="carol")
        self.assertEqual(waiting["attempt"], 2)
        for job, other in victims:
            if job != victim:
                self.assertEqual(self.state(job), "running", "nobody else was asked to stop")
                self.assertFalse(os.path.exists(other + "/checkpoint-1"))
        self.touch(gate)
        self.until(folder + "/ready-2")
        for _, other in victims:
            self.touch(other + "/gate")
        done = self.server.wait(urgent, *(job for job, _ in victims), user="carol")
        self.assertEqual([job["state"] for job in done], ["completed"] * 5)
        self.assertEqual([job["attempt"] for job in done if job["job"] == victim], [2])
        log = self.log(next(job for job in done if job["job"] == victim))
        self.assertEqual(log, "attempt 1: from the start\nattempt 1: checkpoint\nattempt 2: resumed\n"
                              "attempt 2: done\n", "both attempts write to one log")

    def test_priority_preempts_one_victim(self):
        self.check_priority_preemption(code=143)

    def test_a_victim_may_exit_with_zero_after_its_checkpoint(self):
        # It was asked to stop, so its 0 means "checkpoint written" and not "trained".
        self.check_priority_preemption(code=0)

    def test_a_stubborn_victim_is_killed_after_its_grace(self):
        folder = self.folder("carol")
        victim = self.submit("carol", ["-q", "lab", "-G", "4", "--grace", "1s"], ["python3", "-c", STUBBORN, folder])
        self.until(folder + "/ready-1")
        urgent = self.submit("carol", ["-q", "lab", "-G", "1", "--priority", "10"], ["true"])
        self.assertEqual(self.server.wait(urgent, user="carol")[0]["state"], "completed")
        self.assertTrue(os.path.exists(folder + "/heard"), "TERM comes before KILL")
        exited = [row[3] for row in self.rows("task_exited") if row[3]["task"]["job"] == victim]
        self.assertEqual(exited[0].get("signal"), signal.SIGKILL, exited)
        self.server.tranche("carol", "cancel", str(victim))
        self.server.wait(victim, user="carol")

    def test_equal_priority_does_not_preempt(self):
        first, gate = self.gated("carol", ["-q", "lab", "-G", "4", "-t", "1h"])
        self.server.wait_state(first, "running", user="carol")
        second = self.submit("carol", ["-q", "lab", "-G", "1"], ["true"])
        self.assertEqual(self.state(second), "pending")
        self.touch(gate)
        self.server.wait(first, second, user="carol")
        self.assertEqual(self.stops(), {})

    # --- reclaim of quota -------------------------------------------------------------------------
    def test_quota_is_reclaimed(self):
        jobs = [self.train("alice", ["-q", "physics", "-G", "1"]) for _ in range(4)]
        for _, folder in jobs:
            self.until(folder + "/ready-1")
        self.assertEqual(sum(self.server.job(job)["over_quota"] for job, _ in jobs), 2,
                         "two are inside the quota of 2, two borrow")
        claimant, gate = self.gated("bob", ["-q", "biology", "-G", "2"])
        self.server.wait_state(claimant, "running", user="bob")
        stops = self.stops()
        self.assertEqual(set(stops.values()), {("reclaimed", claimant)})
        self.assertEqual(len(stops), 2, f"as many as are needed: {stops}")
        started = {row[3]["task"]["job"]: row[1] for row in self.rows("task_started")}
        stopped_at = min(row[1] for row in self.rows() for decision in row[4] if decision["kind"] == "stop")
        for victim in stops:
            self.assertGreaterEqual(stopped_at - started[victim], 1_000_000_000, "each has had its minimum runtime")
        third = self.submit("bob", ["-q", "biology", "-G", "1"], ["true"])
        self.assertEqual(self.state(third), "pending", "beyond its quota biology takes nothing from physics")
        self.touch(gate)
        for victim in stops:
            self.until(dict(jobs)[victim] + "/ready-2")
        for _, folder in jobs:
            self.touch(folder + "/gate")
        done = self.server.wait(*(job for job, _ in jobs), claimant, third, user="root")
        self.assertEqual({job["state"] for job in done}, {"completed"}, [(job["job"], job["state"]) for job in done])
        self.assertEqual({job["job"] for job in done if job["attempt"] == 2}, set(stops))

    def test_work_that_cannot_be_preempted_stays(self):
        steady = [self.gated("alice", ["-q", "physics", "-G", "1", "--class", "inference"]) for _ in range(2)]
        borrowed, borrowed_gate = self.gated("bob", ["-q", "biology", "-G", "2"])
        for job in (steady[0][0], steady[1][0], borrowed):
            self.server.wait_state(job, "running", user="root")
        refused = self.server.tranche("alice", "submit", "-q", "physics", "-G", "3", "--class", "inference", "--", "true",
                                      code=3)[1]
        self.assertIn("quota", refused)
        waiting = self.submit("alice", ["-q", "physics", "-G", "1", "--class", "inference"], ["true"])
        self.assertEqual(self.state(waiting), "pending", "it would pass the quota, and could not be taken back")
        self.assertIn("quota", self.server.tranche("alice", "why", str(waiting))[0])
        self.touch(steady[0][1])
        self.assertEqual(self.server.wait(waiting)[0]["state"], "completed")
        self.touch(steady[1][1])
        self.touch(borrowed_gate)
        self.server.wait(steady[0][0], steady[1][0], borrowed, user="root")
        self.assertEqual(self.stops(), {})

    # --- gangs ------------------------------------------------------------------------------------
    def test_gang_starts_together_and_fails_together(self):
        blocker, gate = self.gated("alice", ["-G", "3", "-t", "1h"])
        self.server.wait_state(blocker, "running")
        folder = self.folder("alice")
        program = f"touch {folder}/$TRANCHE_RANK-of-$TRANCHE_TASKS; " \
                  f"while [ ! -e {folder}/fail ]; do sleep 0.02; done; test $TRANCHE_RANK = 1 && exit 5; exec sleep 600"
        gang = self.submit("alice", ["-n", "2", "-G", "1", "-t", "1h"], ["sh", "-c", program])
        self.assertEqual(self.state(gang), "pending", "one GPU is free, and it needs two at once")
        self.touch(gate)
        self.until(folder + "/0-of-2")
        self.until(folder + "/1-of-2")
        starts = [[d["task"].get("rank", 0) for d in row[4] if d["kind"] == "start" and d["task"]["job"] == gang]
                  for row in self.rows()]
        self.assertEqual([ranks for ranks in starts if ranks], [[0, 1]], "by decisions on one event")
        gpus = self.server.job(gang)["gpus"]
        self.assertEqual(len(set(gpus)), 2, gpus)
        self.touch(folder + "/fail")
        done = self.server.wait(gang)[0]
        self.assertEqual((done["state"], done["exit_code"]), ("failed", 5), done)
        self.server.tranche("alice", "wait", str(gang), code=5)
        self.assertEqual(self.stops()[gang][0], "gang")

    # --- time -------------------------------------------------------------------------------------
    def test_time_limit_ends_what_ignores_term(self):
        folder = self.folder("alice")
        done = self.submit("alice", ["-G", "1", "-t", "1s", "--grace", "1s"], ["python3", "-c", STUBBORN, folder],
                           wait=True)
        self.assertEqual((done["state"], done["cause"]), ("timed_out", "time_limit"), done)
        self.assertEqual(done["signal"], signal.SIGKILL, "TERM was not enough")
        self.assertTrue(os.path.exists(folder + "/heard"), "but it came first")
        self.server.tranche("alice", "wait", str(done["job"]), code=124)
        folder = self.folder("alice")
        done = self.submit("alice", ["-t", "1s", "--grace", "20s"], ["python3", "-c", TRAIN, folder, "0"], wait=True)
        self.assertEqual(done["state"], "timed_out", "also what ends well within its grace")
        self.assertTrue(os.path.exists(folder + "/checkpoint-1"))

    def test_begin_time(self):
        job = self.submit("alice", ["-o", "/dev/null", "--begin", "now+2s"], ["true"])
        self.assertEqual(self.state(job), "pending")
        self.assertEqual(self.server.wait(job)[0]["state"], "completed")
        begin = next(row[3]["spec"]["begin"] for row in self.rows("job_submitted"))
        started = next(row[1] for row in self.rows("task_started"))
        self.assertIsInstance(begin, int)
        self.assertGreaterEqual(started, begin)

    # --- order ------------------------------------------------------------------------------------
    def test_backfill_around_a_waiting_job(self):
        long, long_gate = self.gated("alice", ["-G", "2", "-t", "1h"])
        self.server.wait_state(long, "running")
        big, big_gate = self.gated("alice", ["-G", "4", "-t", "1h"])
        short, short_gate = self.gated("alice", ["-G", "1", "-t", "10m"])
        too_long, too_long_gate = self.gated("alice", ["-G", "1", "-t", "2h"])
        self.server.wait_state(short, "running")
        self.assertEqual((self.state(big), self.state(too_long)), ("pending", "pending"),
                         "what would delay the big job waits behind it")
        why = self.server.json("alice", "why", str(too_long))
        self.assertIn(why["proof"]["kind"], ("reserved", "busy"), why)
        self.touch(short_gate)
        self.server.wait(short)
        self.touch(long_gate)
        self.server.wait_state(big, "running")
        self.touch(big_gate)
        self.server.wait_state(too_long, "running")
        self.touch(too_long_gate)
        done = self.server.wait(long, big, short, too_long)
        self.assertEqual({job["state"] for job in done}, {"completed"})
        self.assertEqual(self.order_of_starts(), [long, short, big, too_long])

    def test_fair_share_between_users(self):
        first, gate = self.gated("alice", ["-q", "fair", "-G", "4", "-t", "1h"])
        self.server.wait_state(first, "running")
        flags = ["-q", "fair", "-G", "4", "-t", "1h", "-o", "/dev/null"]
        more = [self.submit("alice", flags, ["true"]) for _ in range(3)]
        other = self.submit("bob", flags, ["true"])
        self.touch(gate)
        self.server.wait(first, *more, other, user="root")
        self.assertEqual(self.order_of_starts(), [first, other, *more], "who has used less is next")

    # --- dependencies and arrays ------------------------------------------------------------------
    def test_dependencies(self):
        folder = self.folder("alice")
        wait_for_gate = f"while [ ! -e {folder}/gate ]; do sleep 0.02; done; exit "
        flags = ["-o", "/dev/null"]
        good = self.submit("alice", flags, ["sh", "-c", wait_for_gate + "0"])
        bad = self.submit("alice", flags, ["sh", "-c", wait_for_gate + "3"])
        cases = {}
        for name, on, runs in (("afterok", good, True), ("afterok", bad, False), ("afternotok", bad, True),
                               ("afternotok", good, False), ("afterany", good, True), ("afterany", bad, True)):
            cases[self.submit("alice", [*flags, "-d", f"{name}:{on}"], ["true"])] = (name, on, runs)
        both = self.submit("alice", [*flags, "-d", f"afterok:{good},afternotok:{bad}"], ["true"])
        cases[both] = ("both", good, True)
        after_start = self.submit("alice", [*flags, "-d", f"after:{good}"], ["true"])
        self.assertEqual(self.server.wait(after_start)[0]["state"], "completed", "its start is enough")
        for job in cases:
            self.assertEqual(self.state(job), "pending")
        self.touch(folder + "/gate")
        for job, (name, on, runs) in cases.items():
            done = self.server.wait(job)[0]
            with self.subTest(dependency=name, on=on):
                if runs:
                    self.assertEqual(done["state"], "completed", done)
                else:
                    self.assertEqual(done["state"], "cancelled", "it can never start: " + str(done))
                    self.assertIn(str(on), done.get("reason") or "", "and says on account of which job")
        late = self.submit("alice", [*flags, "-d", f"afterok:{good}"], ["true"], wait=True)
        self.assertEqual(late["state"], "completed", "a job that has ended already counts")

    def test_array_with_a_limit(self):
        text, _ = self.server.tranche("alice", "submit", "--parsable", "-c", "0.1", "-o", "/dev/null", "-a", "1-6%2",
                                      "--", "sleep", "0.3")
        first = int(text)
        done = self.server.wait(*range(first, first + 6))
        self.assertEqual({job["state"] for job in done}, {"completed"})
        running, most = set(), 0
        for _, _, kind, event, decisions in self.rows():
            if kind == "task_exited":
                running.discard(event["task"]["job"])
            for decision in decisions:
                if decision["kind"] == "start":
                    running.add(decision["task"]["job"])
            most = max(most, len(running))
        self.assertEqual(most, 2, "two at a time, never more, and not fewer either")


if __name__ == "__main__":
    scenario.main(policy="""
[policy]
minimum_runtime = "1s"
half_life = "10s"
[queue."lab"]
[queue."fair"]
[queue."physics"]
quota = 2
[queue."biology"]
quota = 2
""", drop_in='[daemon]\noperator_users = ["carol"]\n')
