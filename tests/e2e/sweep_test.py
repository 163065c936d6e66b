"""Parameter sweeps, and jobs that run the code of their submission."""

import os
import pwd
import shutil
import subprocess

import scenario
from scenario import BIN, wait_until


class Sweeps(scenario.Scenario):
    def submit_sweep(self, *flags, command=("sh", "-c", "echo $lr {lr} $seed $TRANCHE_JOB_NAME")):
        out, _ = self.server.tranche("alice", "submit", "--parsable", "-c", "0.1", *flags, "--", *command)
        job = int(out)
        self.addCleanup(self.server.tranche, "root", "cancel", str(job), code=None)
        return job

    def test_every_element_runs_with_its_values(self):
        job = self.submit_sweep("--sweep", "lr=0.1,0.01 seed=1..3", "-J", "fit")
        elements = self.server.wait(*range(job, job + 6))
        expected = [(lr, seed) for lr in ("0.1", "0.01") for seed in ("1", "2", "3")]
        for element, (lr, seed) in zip(elements, expected):
            self.assertEqual(element["state"], "completed", element)
            self.assertEqual(self.log(element), f"{lr} {lr} {seed} fit lr={lr} seed={seed}\n")
            self.assertEqual(element["parameters"], {"lr": lr, "seed": seed})
            self.assertEqual(element["name"], f"fit lr={lr} seed={seed}")
        self.assertIn("seed=3", self.server.tranche("alice", "show", f"{job}_6")[0])
        self.assertNotIn("parameters", self.server.job(job, "bob"), "others see no values")
        self.assertNotIn("0.01", self.server.tranche("bob", "show", f"{job}_6")[0])

    def test_names_logs_and_the_limit_at_a_time(self):
        folder = scenario.SHARED + "/sweep"
        os.makedirs(folder, exist_ok=True)
        os.chmod(folder, 0o1777)
        job = self.submit_sweep("--sweep", "data=a/b,c %1", "-J", "read-{data}", "-o", folder + "/{data}.log",
                                command=("sh", "-c", "echo $data; sleep 600"))
        self.server.wait_state(job, "running")
        rows = {row["display"]: row for row in self.server.json("alice", "ls")["jobs"]}
        self.assertEqual(rows[f"{job}_1"]["name"], "read-a/b")
        self.assertEqual((rows[f"{job}_2"]["name"], rows[f"{job}_2"]["state"]), ("read-c", "pending"))
        self.assertEqual(self.server.job(job)["stdout"], folder + "/a_b.log", "a value leads into no other folder")
        wait_until(lambda: os.path.exists(folder + "/a_b.log"), 10, "the log")
        self.server.kill_daemon()
        self.server.up()
        self.assertEqual(self.server.job(job)["name"], "read-a/b", "a restart knows the values too")
        self.assertEqual(self.server.job(job + 1)["name"], "read-c")
        self.server.tranche("alice", "cancel", str(job))
        self.assertEqual(self.server.wait(job)[0]["name"], "read-a/b")

    def test_an_array_that_holds_a_gpu_is_named_as_ls_names_it(self):
        job = self.submit_sweep("-G", "1", "--sweep", "x=1,2", command=("sleep", "600"))
        self.server.wait_state(job, "running")
        self.server.wait_state(job + 1, "running")
        shown, _ = self.server.tranche("alice", "gpus")
        self.assertIn(f"{job}_1 alice", shown)
        self.assertIn(f"{job}_2 alice", shown)
        _, note = self.server.tranche("alice", "why", str(job))
        self.assertIn(f"{job} is an array", note)
        self.server.tranche("alice", "cancel", str(job))

    # --- snapshots --------------------------------------------------------------------------------------------
    def project(self):
        record = pwd.getpwnam("alice")
        folder = record.pw_dir + "/project"
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder + "/.git")
        for name, text in {"job.sh": "cat code.txt; pwd; echo $TRANCHE_SUBMIT_DIR; echo made >made.txt\n",
                           "code.txt": "old code\n", ".gitignore": "*.bin\n", "weights.bin": "data\n"}.items():
            with open(f"{folder}/{name}", "w", encoding="utf-8") as file:
                file.write(text)
        for base, folders, files in os.walk(folder):
            for name in (".", *folders, *files):
                os.chown(os.path.join(base, name), record.pw_uid, record.pw_gid)
        return folder

    def test_the_code_of_submission_runs(self):
        folder = self.project()
        out, _ = self.server.tranche("alice", "submit", "--parsable", "-c", "0.1", "--hold", "--snapshot", "-D", folder,
                                     "--", "sh", "job.sh")
        job = int(out)
        with open(folder + "/code.txt", "w", encoding="utf-8") as file:
            file.write("new code\n")
        self.server.tranche("alice", "release", str(job))
        done = self.server.wait(job)[0]
        self.assertEqual(done["state"], "completed", done)
        self.assertEqual(done["stdout"], f"{folder}/tranche-{job}.out", "its log lies where it was submitted")
        code, where, submitted = self.log(done).splitlines()
        self.assertEqual((code, submitted), ("old code", folder))
        self.assertEqual((where, done["snapshot_of"]), (done["directory"], folder))
        self.assertTrue(where.startswith(pwd.getpwnam("alice").pw_dir + "/.local/share/tranche/snapshots/"), where)
        self.assertTrue(os.path.exists(where + "/made.txt"))
        self.assertFalse(os.path.exists(where + "/weights.bin"), "what .gitignore names is not copied")
        self.assertEqual(os.stat(where + "/code.txt").st_uid, pwd.getpwnam("alice").pw_uid)
        self.assertIn("Snapshot", self.server.tranche("alice", "show", str(job))[0])

    def test_another_attempt_runs_the_same_code(self):
        folder = self.project()
        with open(folder + "/job.sh", "w", encoding="utf-8") as file:
            file.write("cat code.txt; [ $TRANCHE_ATTEMPT = 2 ] || sleep 600\n")
        out, _ = self.server.tranche("alice", "submit", "--parsable", "-c", "0.1", "--snapshot", "-D", folder,
                                     "--", "sh", "job.sh")
        job = int(out)
        self.server.wait_state(job, "running")
        with open(folder + "/code.txt", "w", encoding="utf-8") as file:
            file.write("new code\n")
        self.server.tranche("alice", "requeue", str(job))
        done = self.server.wait(job)[0]
        self.assertEqual((done["state"], done["attempt"]), ("completed", 2), done)
        self.assertEqual(set(self.log(done).splitlines()), {"old code"})

    def test_what_is_no_source_tree_is_refused(self):
        self.refused("alice", ["submit", "--snapshot", "-D", "/", "--", "true"], 2, "no source tree")

    def test_a_foreground_job_runs_the_code_of_its_start(self):
        folder = self.project()
        with open(folder + "/job.sh", "w", encoding="utf-8") as file:
            file.write("read word; cat code.txt; pwd\n")
        client = self.server.as_user("alice", [BIN + "/tranche", "run", "-c", "0.1", "--snapshot", "-D", folder, "--", "sh", "job.sh"],
                                     stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        wait_until(lambda: [job for job in self.server.json("alice", "ls")["jobs"] if job["state"] == "running"], 20, "it runs")
        with open(folder + "/code.txt", "w", encoding="utf-8") as file:
            file.write("new code\n")
        out, err = client.communicate("go\n", timeout=30)
        self.assertEqual(client.returncode, 0, err)
        code, where = out.splitlines()
        self.assertEqual(code, "old code")
        snapshot = where[:where.rindex("/tree")]
        self.assertEqual(len(os.listdir(snapshot + "/jobs")), 1, "whose it is is noted")

    def test_parameters_come_from_a_file(self):
        folder = pwd.getpwnam("alice").pw_dir
        with open(folder + "/grid.txt", "w", encoding="utf-8") as file:
            file.write("# what is tried\nlr=0.1,0.01\n\nseed=1..2\n")
        out, _ = self.server.tranche("alice", "submit", "--parsable", "-c", "0.1", "--param-file", folder + "/grid.txt", "--sweep",
                                     "mode=a", "-o", folder + "/grid-{lr}-{seed}-{mode}.out", "--", "echo", "{lr}", "{seed}", "{mode}")
        first = int(out.split()[0])
        self.server.wait(*range(first, first + 4))
        for rate in ("0.1", "0.01"):
            for seed in "12":
                with open(f"{folder}/grid-{rate}-{seed}-a.out", encoding="utf-8") as file:
                    self.assertEqual(file.read(), f"{rate} {seed} a\n")
        self.refused("alice", ["submit", "--param-file", folder + "/none", "--", "true"], 4, "--param-file")


if __name__ == "__main__":
    scenario.main(board="h100-80:4")
