"""What users change about jobs that they have submitted, what is tried again by itself, and who hears of the time limit."""

import os
import time

import scenario
from scenario import SHARED, wait_until

# Fails with the code that stands in the file `codes`, a line an attempt, and marks each attempt.
ATTEMPTS = """
import os, sys
folder, attempt = sys.argv[1], int(os.environ["TRANCHE_ATTEMPT"])
open(f"{folder}/attempt-{attempt}", "w").close()
codes = open(f"{folder}/codes").read().split()
code = codes[attempt - 1]
if code == "oom":
    data = []
    while True:
        data.append(bytearray(4 << 20))
sys.exit(int(code))
"""

# Saves its work when USR1 comes, has itself requeued, and goes on from there the next time.
CHECKPOINT = """
import os, signal, subprocess, sys, time
folder, attempt = sys.argv[1], int(os.environ["TRANCHE_ATTEMPT"])
if attempt == 2:
    sys.exit(0 if os.path.exists(f"{folder}/saved") else 9)
def save(number, frame):
    open(f"{folder}/saved", "w").close()
    subprocess.run([sys.argv[2], "requeue", os.environ["TRANCHE_JOB_ID"]], check=True)
signal.signal(signal.SIGUSR1, save)
open(f"{folder}/ready", "w").close()
end = time.monotonic() + 600
while time.monotonic() < end:
    time.sleep(0.05)
"""


class Changes(scenario.Scenario):
    folders = 0

    def folder(self):
        Changes.folders += 1
        path = f"{SHARED}/changes-{Changes.folders}"
        os.mkdir(path)
        os.chmod(path, 0o777)
        return path

    def tranche(self, *arguments, code=0, user="alice", **options):
        out, err = self.server.tranche(user, *arguments, code=code, **options)
        return out + err

    def until(self, path, seconds=20):
        wait_until(lambda: os.path.exists(path), seconds, path)

    def gated(self, flags, user="alice"):
        """A job that runs until the returned file is made."""
        gate = self.folder() + "/gate"
        job = self.submit(user, ["-o", "/dev/null", *flags],
                          ["sh", "-c", f"while [ ! -e {gate} ]; do sleep 0.02; done"])
        return job, gate

    @staticmethod
    def touch(path):
        open(path, "w", encoding="ascii").close()

    # --- update ---------------------------------------------------------------------------------------
    def test_first_goes_before_ones_others(self):
        blocker, gate = self.gated(["-G", "4"])
        self.server.wait_state(blocker, "running")
        early, early_gate = self.gated(["-G", "4"])
        late, late_gate = self.gated(["-G", "4"])
        self.assertIn("first of its queue", self.tranche("update", str(late), "--first"))
        self.touch(gate)
        self.server.wait_state(late, "running")
        self.assertEqual(self.server.job(early)["state"], "pending")
        self.touch(late_gate)
        self.server.wait_state(early, "running")
        self.touch(early_gate)

    def test_a_waiting_job_changes_in_all_that_it_has(self):
        before, before_gate = self.gated([])
        job = self.submit("alice", ["-H", "-o", "/dev/null", "-J", "old"], ["true"])
        self.tranche("update", str(job), "-J", "new", "-t", "2h", "--priority", "-7", "-d", f"after:{before}",
                     "--grace", "5s")
        shown = self.server.job(job)
        self.assertEqual((shown["name"], shown["time_limit"], shown["priority"], shown["grace"]),
                         ("new", "2h", -7, "5s"), shown)
        self.assertEqual(shown["dependencies"], [{"kind": "after_start", "job": before}])
        self.server.kill_daemon()
        self.server.up()
        again = self.server.job(job)
        for key in ("name", "time_limit", "priority", "dependencies"):
            self.assertEqual(again[key], shown[key], "after a restart")
        self.tranche("update", str(job), "-d", "none")
        self.tranche("release", str(job))
        self.assertEqual(self.server.wait(job)[0]["state"], "completed")
        self.touch(before_gate)

    def test_a_dependency_that_is_taken_away_lets_the_job_start(self):
        before, gate = self.gated([])
        job = self.submit("alice", ["-o", "/dev/null", "-d", "afterok:@"], ["true"])
        self.assertEqual(self.server.job(job)["dependencies"], [{"kind": "after_ok", "job": before}])
        self.refused("alice", ["update", str(before), "-d", f"after:{job}"], 1, "only its time limit")
        self.tranche("update", str(job), "-d", "none")
        self.assertEqual(self.server.wait(job)[0]["state"], "completed")
        self.touch(gate)

    def test_the_limit_of_a_running_job_only_shrinks(self):
        job, _ = self.gated(["-t", "1h"])
        self.server.wait_state(job, "running")
        self.refused("alice", ["update", str(job), "-t", "2h"], 3, "only be made shorter")
        self.tranche("update", str(job), "-t", "2h", user="root")
        self.assertEqual(self.server.job(job)["time_limit"], "2h")
        self.tranche("update", str(job), "-t", "3s")
        self.assertEqual(self.server.wait(job)[0]["state"], "timed_out")

    def test_a_limit_changed_while_the_daemon_was_away_holds(self):
        job, _ = self.gated(["-t", "1h"])
        self.server.wait_state(job, "running")
        self.tranche("update", str(job), "-t", "6s")
        self.server.kill_daemon()
        self.server.up()
        self.assertEqual(self.server.wait(job)[0]["state"], "timed_out")

    def test_who_may_not(self):
        job, gate = self.gated([])
        self.server.wait_state(job, "running")
        self.refused("bob", ["update", str(job), "-t", "5m"], 3, "only the owner")
        self.refused("bob", ["requeue", str(job)], 3, "only the owner")
        waiting = self.submit("alice", ["-H"], ["true"])
        self.refused("alice", ["update", str(waiting), "--priority", "900000"], 3, "operator")
        self.refused("alice", ["update", str(waiting)], 2, "--time")
        self.refused("alice", ["update", str(waiting), "-d", f"after:{waiting}"], 2, "submitted before it")
        self.refused("alice", ["requeue", str(waiting)], 1, "waits already")
        self.touch(gate)
        self.server.wait(job)
        self.refused("alice", ["requeue", str(job)], 1, "ended already")

    # --- requeue --------------------------------------------------------------------------------------
    def test_requeue_is_another_attempt(self):
        folder = self.folder()
        job = self.submit("alice", ["-G", "1", "-o", "/dev/null"],
                          ["sh", "-c", f"touch {folder}/$TRANCHE_ATTEMPT; [ $TRANCHE_ATTEMPT = 2 ] || sleep 600"])
        self.until(folder + "/1")
        self.assertIn("is being stopped", self.tranche("requeue", str(job)))
        done = self.server.wait(job)[0]
        self.assertEqual((done["state"], done["attempt"]), ("completed", 2), done)
        self.assertTrue(os.path.exists(folder + "/2"))
        history = [(entry["state"], entry["reason"]) for entry in self.server.job(job)["history"]]
        self.assertTrue(any("another attempt was asked for by alice" in reason for _, reason in history), history)

    def test_checkpoint_before_the_limit_then_requeue(self):
        folder = self.folder()
        # A shell without a trap stands between: it must not die of the signal.
        job = self.submit("alice", ["-o", "/dev/null", "-t", "20s", "--signal", "USR1@17"],
                          ["sh", "-c", 'python3 -c "$1" "$2" "$3"; exit $?', "job", CHECKPOINT, folder,
                           f"{scenario.BIN}/tranche"])
        self.until(folder + "/ready")
        done = self.server.wait(job)[0]
        self.assertEqual((done["state"], done["attempt"]), ("completed", 2), done)

    # --- retries --------------------------------------------------------------------------------------
    def attempts(self, flags, codes):
        """A job that ends as `codes` say, attempt by attempt; returns (its end, how many attempts ran)."""
        folder = self.folder()
        with open(folder + "/codes", "w", encoding="ascii") as file:
            file.write("\n".join(codes))
        job = self.submit("alice", ["-o", "/dev/null", "--retry-delay", "1s", *flags], ["python3", "-c", ATTEMPTS, folder])
        return self.server.wait(job)[0], len(os.listdir(folder)) - 1

    def test_a_failure_is_tried_again_as_often_as_allowed(self):
        started = time.monotonic()
        done, ran = self.attempts(["--retry", "error:2"], ["3", "4", "0"])
        self.assertEqual((done["state"], done["attempt"], ran), ("completed", 3, 3), done)
        # Pauses of 1s and 2s lie between: not a speed, but what the job was promised.
        self.assertGreaterEqual(time.monotonic() - started, 3)
        reasons = [entry["reason"] for entry in self.server.job(done["job"])["history"]]
        self.assertTrue(any("attempt 2 failed with exit code 4" in reason for reason in reasons), reasons)
        done, ran = self.attempts(["--retry", "error:1"], ["3", "4", "0"])
        self.assertEqual((done["state"], done["exit_code"], ran), ("failed", 4, 2), done)

    def test_each_kind_of_failure_has_its_own_count(self):
        memory = ["--mem", "64M"]
        done, ran = self.attempts([*memory, "--retry", "error:3"], ["oom", "0"])
        self.assertEqual((done["state"], ran), ("out_of_memory", 1), done)
        done, ran = self.attempts([*memory, "--retry", "oom:1"], ["oom", "0"])
        self.assertEqual((done["state"], ran), ("completed", 2), done)

    def test_cancel_ends_the_pause(self):
        folder = self.folder()
        job = self.submit("alice", ["-o", "/dev/null", "--retry", "5", "--retry-delay", "30m"],
                          ["sh", "-c", f"touch {folder}/$TRANCHE_ATTEMPT; exit 1"])
        self.server.wait_state(job, "pending")
        self.until(folder + "/1")
        wait_until(lambda: self.server.job(job)["attempt"] == 2, 10, "it waits for its second attempt")
        self.tranche("cancel", str(job))
        self.assertEqual(self.server.wait(job)[0]["state"], "cancelled")
        self.assertFalse(os.path.exists(folder + "/2"))


if __name__ == "__main__":
    scenario.main(board="h100-80:4")
