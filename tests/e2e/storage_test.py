"""The journal's disk fills, is copied while it is written, and loses its end: nothing accepted is lost
without a word, and what runs goes on."""

import contextlib
import http.client
import json
import os
import shutil
import sqlite3
import subprocess
import sys

import scenario
from scenario import BIN, LAB, SHARED, Failed, request, wait_until

DISK = LAB + "/disk"
STATE = DISK + "/state"
DROP_IN = '[daemon]\njournal_ballast = "2M"\n'


def tranched(*arguments):
    return subprocess.run([BIN + "/tranched", *arguments], capture_output=True, text=True, check=False)


class Storage(scenario.Scenario):
    @classmethod
    def tearDownClass(cls):
        """What the tests of a full disk submitted to see whether it is taken."""
        server = scenario._SERVER[0]
        for job in server.json("root", "ls")["jobs"]:
            server.tranche("root", "cancel", str(job["job"]), code=None)
            server.tranche("root", "wait", str(job["job"]), code=None)

    def tell(self, mark):
        with open(mark, "w", encoding="ascii"):
            pass

    def waiting_job(self, code=0):
        """A job that runs until it is told, and then ends with `code`."""
        mark = f"{SHARED}/end-{os.urandom(4).hex()}"
        job = self.submit("alice", ["-o", "/dev/null"], ["sh", "-c", f"until [ -e {mark} ]; do sleep 0.01; done; exit {code}"])
        self.server.wait_state(job, "running")
        return job, mark

    def submit_status(self):
        return request("alice", "POST", "/v1/jobs", {"argv": ["true"], "directory": "/", "stdout": "/dev/null",
                                                     "environment": {"FILLER": "x" * 4000}})

    def test_a_full_disk(self):
        job, mark = self.waiting_job(code=7)
        filler = DISK + "/filler"
        with open(filler, "wb") as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(65536))
                file.flush()
        accepted, refused = [], None
        connection_lost = 0
        for number in range(2000):
            # Whoever is not answered was not accepted: the daemon may say so only after the disk has said no.
            try:
                connection = http.client.HTTPConnection("localhost", timeout=2)
                connection.sock = scenario.connect("alice", timeout=2)
                self.addCleanup(connection.close)
                connection.request("POST", "/v1/jobs", body=json.dumps(
                    {"argv": ["true"], "directory": "/", "stdout": "/dev/null", "held": True,
                     "environment": {"FILLER": f"{number} " + "x" * 100000}}))
                reply = connection.getresponse()
                text = reply.read()
                connection.close()
            except OSError:
                connection_lost += 1
                if self.submit_status().status == 507:
                    refused = 507
                    break
                continue
            if reply.status == 201:
                accepted.append(json.loads(text)["job"])
            else:
                refused = reply.status
                break
        self.assertEqual(refused, 507, "submissions are refused once the disk has said no")
        problem = self.submit_status()
        self.assertEqual(problem.json["type"], "storage_full")
        self.assertIn("space", problem.json["detail"])
        doctor, _ = self.server.tranche("alice", "doctor", code=None)
        self.assertIn("journal", doctor)
        # What runs goes on, and its end is not lost: it is recorded at the latest when there is room again.
        self.tell(mark)
        os.unlink(filler)
        done = self.server.wait(job)[0]
        self.assertEqual((done["state"], done["exit_code"]), ("failed", 7))
        wait_until(lambda: self.submit_status().status == 201, 20, "submissions being taken again")
        for number in accepted:
            self.assertEqual(self.server.job(number)["state"], "held", "what was accepted is there")
        self.server.kill_daemon()
        self.server.up()
        for number in accepted:
            self.assertEqual(self.server.job(number)["state"], "held", "also after a restart")
            self.server.tranche("alice", "cancel", str(number))
        print(f"{len(accepted)} jobs were accepted before the disk was full, {connection_lost} requests had no answer")

    def test_backup_while_it_runs_and_restore(self):
        first = self.submit("alice", ["-o", "/dev/null"], ["true"], wait=True)
        copy = LAB + "/copy.db"
        with contextlib.suppress(FileNotFoundError):
            os.unlink(copy)
        done = tranched("backup", STATE, copy)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(os.stat(copy).st_mode & 0o7777, 0o600)
        self.submit("alice", ["-o", "/dev/null"], ["true"], wait=True)
        refused = tranched("restore", copy, STATE)
        self.assertNotEqual(refused.returncode, 0, "not under a running daemon")
        self.assertIn("in use", refused.stderr)
        # Into a directory of its own: the same log up to the copy, and it recomputes.
        other = LAB + "/other"
        os.makedirs(other)
        done = tranched("restore", copy, other)
        self.assertEqual(done.returncode, 0, done.stderr)
        with contextlib.closing(sqlite3.connect(f"{other}/journal.db")) as database:
            rows = database.execute("SELECT seq, event, decisions FROM event ORDER BY seq").fetchall()
        with contextlib.closing(sqlite3.connect(f"file:{STATE}/journal.db?mode=ro", uri=True)) as database:
            now = database.execute("SELECT seq, event, decisions FROM event ORDER BY seq").fetchall()
        self.assertLess(len(rows), len(now))
        self.assertEqual(rows, now[:len(rows)])
        self.assertIn("the journal holds", tranched("verify-journal", other).stdout)
        self.assertEqual(first["state"], "completed")
        shutil.rmtree(other)

    def restart_with(self, change):
        """Stops the daemon, changes its journal's rows, and starts it again; False if it refuses."""
        with contextlib.suppress(ProcessLookupError):
            self.server.kill_daemon()
        with contextlib.closing(sqlite3.connect(STATE + "/journal.db", isolation_level=None)) as database:
            change(database)
        subprocess.run(["chown", "-R", "tranche:tranche", STATE], check=True)
        try:
            self.server.up()
            return True
        except Failed as failure:
            self.assertIn("damaged", str(failure))
            return False

    def test_damage(self):
        before = self.submit("alice", ["-o", "/dev/null"], ["true"], wait=True)
        running, mark = self.waiting_job(code=5)
        last = self.submit("alice", ["--hold", "-o", "/dev/null"], ["true"])
        wait_until(lambda: self.server.json("alice", "ls"), 10, "a quiet log")
        # In the middle: nothing is guessed, the daemon does not start, and says which row.
        kept = LAB + "/kept.db"
        self.server.kill_daemon()
        with contextlib.closing(sqlite3.connect(STATE + "/journal.db", isolation_level=None)) as database:
            database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        shutil.copy(STATE + "/journal.db", kept)
        self.assertFalse(self.restart_with(lambda database: database.execute(
            "UPDATE event SET event = replace(event, '{', '{ ') WHERE seq = 2")))
        for name in ("journal.db-wal", "journal.db-shm"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(f"{STATE}/{name}")
        shutil.copy(kept, STATE + "/journal.db")
        subprocess.run(["chown", "-R", "tranche:tranche", STATE], check=True)
        # At the end, the submission of the last job: it is cut, told, and kept in a copy; the running job is not touched.
        self.assertTrue(self.restart_with(lambda database: database.execute(
            "UPDATE event SET decisions = '[ ]' WHERE seq = (SELECT max(seq) FROM event)")))
        self.assertEqual(self.server.job(before["job"])["state"], "completed")
        self.assertEqual(self.server.job(running)["state"], "running")
        self.server.tranche("alice", "show", str(last), code=None)
        self.assertNotEqual(self.server.last_code, 0, "the job whose row was damaged is not made up")
        copies = [name for name in os.listdir(STATE) if "damaged-at" in name]
        self.assertEqual(len(copies), 1, copies)
        with open("/run/tranche-up/tranched.log", encoding="utf-8") as file:
            self.assertTrue(any("journal_tail_cut" in line for line in file))
        self.tell(mark)
        done = self.server.wait(running)[0]
        self.assertEqual((done["state"], done["exit_code"]), ("failed", 5))
        # The same number may be given again: no one is told that the lost job is another's.
        again = self.submit("bob", ["-o", "/dev/null"], ["true"], wait=True)
        self.assertEqual(again["state"], "completed")

    def test_two_daemons(self):
        second = subprocess.run(["setpriv", "--reuid", "tranche", "--regid", "tranche", "--init-groups",
                                 BIN + "/tranched", "--config", self.server.config], capture_output=True, text=True,
                                timeout=60, check=False)
        self.assertNotEqual(second.returncode, 0)
        self.assertIn("in use by another tranched", second.stderr)
        self.assertEqual(request("alice", "GET", "/v1/status").status, 200)


if __name__ == "__main__":
    os.makedirs(DISK)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m,mode=0755", "tmpfs", DISK], check=True)
    scenario.main(drop_in=DROP_IN, state_dir=STATE)
    sys.exit(0)
