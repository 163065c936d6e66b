"""Every verb of the command line, used as its users would, against a whole server."""

import json
import os
import pty
import re
import select
import signal
import subprocess
import time

import scenario
from scenario import BIN, SHARED, wait_until

# Holds 512 MiB of the job's GPU until it is ended.
HOLD_MEMORY = """
import ctypes, sys, time
cuda = ctypes.CDLL("libcuda.so.1")
def check(result):
    if result != 0:
        sys.exit(f"CUDA error {result}")
device, context, memory = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
check(cuda.cuInit(0))
check(cuda.cuDeviceGet(ctypes.byref(device), 0))
check(cuda.cuCtxCreate_v2(ctypes.byref(context), 0, device))
check(cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(512 << 20)))
open(sys.argv[1], "w").close()
time.sleep(600)
"""

SCRIPT = """#!/bin/bash
#SBATCH --job-name=from-slurm
#SBATCH --gres=gpu:1
#SBATCH --cpus-per-task=0.1
#SBATCH --time=00:05:00
#SBATCH --output={folder}/script-%j.out
#SBATCH --mail-type=END
#TRANCHE --grace 5s
echo "job $SLURM_JOB_ID is $TRANCHE_JOB_ID, name $SLURM_JOB_NAME, arguments $*"
echo "gpus $(echo "$CUDA_VISIBLE_DEVICES" | tr , '\\n' | grep -c GPU-)"
"""

QUIET = ["-c", "0.1", "-o", "/dev/null"]


class Verbs(scenario.Scenario):
    def tranche(self, *arguments, code=0, user="alice", **options):
        """Output and error of `tranche` as alice."""
        out, err = self.server.tranche(user, *arguments, code=code, **options)
        return out + err

    # --- to start ---------------------------------------------------------------------------------
    def test_run(self):
        out, err = self.server.tranche("alice", "run", "-G", "1", "-c", "0.1", "--", "sh", "-c",
                                       "echo $TRANCHE_GPUS; echo wrong >&2; exit 7", code=7)
        self.assertEqual((out, err), ("1\n", "wrong\n"))
        self.assertEqual(self.tranche("run", "-c", "0.1", "--", "pwd"), "/run/lab/home/alice\n")
        self.assertEqual(self.tranche("run", "-c", "0.1", "-D", "/tmp", "--", "pwd"), "/tmp\n")
        self.assertIn("would start now", self.tranche("run", "--dry-run", "-G", "1", "--", "true"))
        detached = int(self.tranche("run", "--detach", "--parsable", *QUIET, "--", "true"))
        self.assertEqual(self.server.wait(detached)[0]["state"], "completed")

    def test_exit_codes(self):
        kill = "import os, signal; os.kill(os.getpid(), signal.SIGUSR1)"
        eat = "data = []\nwhile True: data.append(bytearray(4 << 20))"
        for flags, command, code in [
                ([], ["true"], 0), ([], ["false"], 1), ([], ["sh", "-c", "exit 255"], 255),
                ([], ["no-such-command-here"], 127), ([], ["/etc/passwd"], 126),
                ([], ["python3", "-c", kill], 128 + signal.SIGUSR1),
                ([], ["sh", "-c", "kill -9 $$"], 137), (["-t", "1s"], ["sleep", "60"], 124),
                (["--mem", "64M"], ["python3", "-c", eat], 137)]:
            with self.subTest(command=command, flags=flags):
                self.tranche("run", "-c", "0.1", *flags, "--", *command, code=code)
                job = self.submit("alice", [*flags, "-o", "/dev/null"], command)
                self.tranche("wait", str(job), code=code)
                self.tranche("submit", "--wait", *QUIET, *flags, "--", *command, code=code)
        state = self.server.json("alice", "history", "-n", "1")["jobs"][0]["state"]
        self.assertEqual(state, "out_of_memory")
        ended = [self.submit("alice", ["-o", "/dev/null"], ["sh", "-c", f"exit {code}"]) for code in (0, 3, 2)]
        self.tranche("wait", *map(str, ended), code=3)

    def test_submit_script(self):
        path = SHARED + "/job.sh"
        with open(path, "w", encoding="utf-8") as file:
            file.write(SCRIPT.format(folder=SHARED))
        out, err = self.server.tranche("alice", "submit", "--parsable", path, "one", "two words")
        self.assertIn("mail-type", err, "what has no meaning here is said")
        job = self.server.wait(int(out))[0]
        self.assertEqual(job["state"], "completed", job)
        self.assertEqual((job["name"], job["time_limit"], job["gpu"]["count"]), ("from-slurm", "5m", 1))
        self.assertEqual(job["stdout"], f"{SHARED}/script-{job['job']}.out")
        self.assertEqual(self.log(job), f"job {job['job']} is {job['job']}, name from-slurm, "
                                        "arguments one two words\ngpus 1\n")
        with open(path, "w", encoding="utf-8") as file:
            file.write("#!/usr/bin/env python3\n#TRANCHE -c 0.1\nimport sys\nprint('python', sys.argv[1:])\n")
        out, _ = self.server.tranche("alice", "submit", "--parsable", path, "--epochs", "3")
        with open(path, "w", encoding="utf-8") as file:
            file.write("changed after submission\n")
        job = self.server.wait(int(out))[0]
        self.assertEqual((job["state"], job["name"]), ("completed", "job.sh"))
        self.assertEqual(self.log(job), "python ['--epochs', '3']\n")
        out, _ = self.server.tranche("alice", "submit", "--parsable", "-c", "0.1", "-",
                                     stdin="#!/bin/sh\necho piped\n")
        self.assertEqual(self.log(self.server.wait(int(out))[0]), "piped\n")

    def test_submit_array(self):
        text = self.tranche("submit", "-c", "0.1", "-a", "1-5:2,9", "-o", SHARED + "/element-%A-%a.out", "--",
                            "sh", "-c", "echo element $TRANCHE_ARRAY_INDEX of $SLURM_ARRAY_TASK_COUNT; "
                            "exit $SLURM_ARRAY_TASK_ID")
        first = int(re.search(r"job (\d+) \(array of 4\)", text)[1])
        self.tranche("wait", str(first), code=9)
        shown = self.server.json("alice", "show", f"{first}_5")
        self.assertEqual((shown["display"], shown["exit_code"]), (f"{first}_5", 5))
        for index in (1, 3, 5, 9):
            with open(f"{SHARED}/element-{first}-{index}.out", encoding="ascii") as file:
                self.assertEqual(file.read(), f"element {index} of 4\n")
        self.assertIn("element 3", self.tranche("logs", f"{first}_3"))
        self.tranche("show", f"{first}_2", code=4)

    def test_submit_dependency_held_and_begin(self):
        first = self.submit("alice", ["-H", "-o", "/dev/null"], ["true"])
        after = self.submit("alice", ["-d", f"afterok:{first}", "-o", "/dev/null"], ["true"])
        later = self.submit("alice", ["--begin", "now+1h", "-o", "/dev/null"], ["true"])
        states = {job: self.server.job(job)["state"] for job in (first, after, later)}
        self.assertEqual(states, {first: "held", after: "pending", later: "pending"})
        self.assertIn("held", self.tranche("why", str(first)))
        self.assertIn(str(first), self.tranche("why", str(after)))
        self.assertIn("does not start before", self.tranche("why", str(later)).lower())
        self.tranche("release", str(first))
        self.assertEqual([job["state"] for job in self.server.wait(first, after)], ["completed", "completed"])
        self.tranche("cancel", str(later))
        self.assertEqual(self.server.wait(later)[0]["state"], "cancelled")

    def test_environment_directory_and_input(self):
        with open(SHARED + "/in.txt", "w", encoding="ascii") as file:
            file.write("from a file\n")
        out, _ = self.server.tranche("alice", "submit", "--parsable", "-c", "0.1", "-D", SHARED, "-i", "in.txt",
                                     "-o", "%x-%j.out", "-e", "%x-%j.err", "-J", "all-of-it", "--export",
                                     "NONE,COLOUR=blue", "--", "sh", "-c", "cat; echo $COLOUR $OTHER; pwd; echo e >&2",
                                     env={"OTHER": "never"})
        job = self.server.wait(int(out))[0]
        self.assertEqual(job["stdout"], f"{SHARED}/all-of-it-{job['job']}.out")
        self.assertEqual(self.log(job), f"from a file\nblue\n{SHARED}\n")
        self.assertEqual(self.tranche("logs", "--stderr", str(job["job"])), "e\n")

    # --- to look ----------------------------------------------------------------------------------
    def test_ls(self):
        mine = self.submit("alice", ["-J", "mine", "-o", "/dev/null"], ["sleep", "600"])
        held = self.submit("alice", ["-H", "-J", "waits", "--class", "inference"], ["true"])
        other = self.submit("bob", ["-o", "/dev/null", "-J", "secret"], ["sleep", "600"])
        self.server.wait_state(mine, "running")

        def listed(*flags):
            return [job["job"] for job in self.server.json("alice", "ls", *flags)["jobs"]]

        self.assertEqual(listed(), [mine, held, other])
        self.assertEqual(listed("--me"), [mine, held])
        self.assertEqual(listed("-u", "bob"), [other])
        self.assertEqual(listed("--state", "held"), [held])
        self.assertEqual(listed("-q", "default/bob"), [other])
        self.assertEqual(listed("-q", "default"), [mine, held, other])
        text = self.tranche("ls")
        self.assertRegex(text, rf"(?m)^ *{mine} +mine +alice +default/alice +training +running ")
        self.assertRegex(text, rf"(?m)^ *{held} +waits +alice +default/alice +inference +held ")
        self.assertRegex(text, rf"(?m)^ *{other} +- +bob ")
        self.assertEqual(self.tranche("ps", "--no-header").count("\n"), 3)
        self.tranche("cancel", str(mine))
        self.server.wait(mine)
        self.assertIn(mine, listed("--all"))
        self.assertNotIn(mine, listed())

    def test_show(self):
        job = self.submit("alice", ["-G", "1", "-J", "shown", "--mem", "1G", "-t", "1h"], ["sleep", "600"])
        detail = self.server.wait_state(job, "running")
        self.assertEqual((detail["argv"], detail["name"], detail["user"]), (["sleep", "600"], "shown", "alice"))
        with open(f"/proc/{detail['tasks'][0]['pid']}/cmdline", encoding="ascii") as file:
            self.assertEqual(file.read(), "sleep\x00600\x00")
        for words in ([str(job)], ["@"]):
            text = self.tranche("show", *words)
            for word in ("shown", "running", "sleep 600", "tranche-", "1h"):
                self.assertIn(word, text)

    def test_why(self):
        full = [self.submit("bob", ["-G", "1", "-t", "30m", "-o", "/dev/null"], ["sleep", "600"]) for _ in range(4)]
        waiting = self.submit("alice", ["-G", "2", "-o", "/dev/null"], ["true"])
        for job in full:
            self.server.wait_state(job, "running")
        self.assertIn("running", self.tranche("why", str(full[0])))
        text = self.tranche("why", str(waiting))
        self.assertRegex(text, r"(?m)^Why +\S+.*GPU")
        self.assertRegex(text, r"(?m)^Expected +position 1, expected to start by .*from time limits")
        self.assertIn(str(full[0]), text, "who is in the way is named")
        answer = self.server.json("alice", "why", str(waiting))
        self.assertEqual((answer["state"], answer["forecast"]["position"]), ("pending", 1))
        self.assertIn("would wait", self.tranche("submit", "--dry-run", "-G", "1", "--", "true"))
        text = self.tranche("submit", "-G", "4", *QUIET, "--", "true")
        self.assertRegex(text, r"job \d+ pending\n +\S", "the reason comes with the answer")
        self.tranche("cancel", "--me")
        for job in full:
            self.end(job)

    def test_logs(self):
        gate = SHARED + "/gate"
        program = f"echo one; echo two; while [ ! -e {gate} ]; do sleep 0.05; done; echo three; echo four"
        job = self.submit("alice", [], ["sh", "-c", program])
        wait_until(lambda: self.tranche("logs", str(job), code=None) == "one\ntwo\n", 20, "the first lines")
        follower = self.server.as_user("alice", [BIN + "/tranche", "logs", "-f", str(job)], stdout=subprocess.PIPE,
                                       text=True)
        self.assertEqual([follower.stdout.readline(), follower.stdout.readline()], ["one\n", "two\n"])
        self.assertIsNone(follower.poll(), "it follows")
        open(gate, "w", encoding="ascii").close()
        rest, _ = follower.communicate(timeout=20)
        self.assertEqual((rest, follower.returncode), ("three\nfour\n", 0))
        self.assertEqual(self.tranche("logs", str(job)), "one\ntwo\nthree\nfour\n")
        self.assertEqual(self.tranche("logs", "-n", "1", "@"), "four\n")
        self.assertEqual(self.tranche("logs", "-f", "-n", "2", str(job)), "three\nfour\n")

    def test_gpus_and_who(self):
        ready = SHARED + "/holding"
        job = self.submit("alice", ["-G", "1", "-o", "/dev/null"], ["python3", "-c", HOLD_MEMORY, ready])
        wait_until(lambda: os.path.exists(ready), 20, "the program's memory")
        detail = self.server.job(job)
        gpu, pid = detail["gpus"][0], detail["tasks"][0]["pid"]

        def row():
            rows = self.server.json("alice", "who")["processes"]
            return rows[0] if rows and (rows[0].get("memory_mib") or 0) >= 512 else None

        process = wait_until(row, 15, "the process in `who`")
        self.assertEqual((process["gpu"], process["pid"], process["user"], process["job"], process["managed"]),
                         (gpu, pid, "alice", job, True))
        self.assertIn("python3", process["command"])
        others = self.server.json("bob", "who")["processes"][0]
        self.assertNotIn("command", others)
        self.assertRegex(self.tranche("who"), rf"(?m)^ *{gpu} +{pid} +alice +{job} +\d+M +python3")
        self.assertIn("no process", self.tranche("who", str(3 - gpu)))
        status = self.server.json("alice", "gpus")["gpus"][gpu]
        self.assertGreaterEqual(status["memory_used_mib"], 512)
        self.assertEqual([(s["job"], s["user"], s["kind"]) for s in status["slices"]], [(job, "alice", "whole")])
        self.assertRegex(self.tranche("gpus"), rf"(?m)^ *{gpu} +h100-80 +ok .*{job} alice whole")
        self.assertEqual(self.tranche("info", "--no-header").count("\n"), 4)
        self.tranche("cancel", str(job))
        self.server.wait(job)
        wait_until(lambda: not self.server.json("alice", "who")["processes"], 15, "the end of its row")

    def test_drain(self):
        self.tranche("gpus", "drain", "3", "--reason", "fan replaced", user="root")
        self.assertRegex(self.tranche("gpus"), r"(?m)^ *3 +h100-80 +drained ")
        self.assertRegex(self.tranche("gpus"), r"(?m)^GPU 3: fan replaced$")
        self.tranche("gpus", "undrain", "3", user="root")
        self.assertNotIn("drained", self.tranche("gpus"))

    def test_fractions(self):
        jobs = [self.submit("alice", ["-G", "0.5", "-o", "/dev/null"], ["sleep", "600"]),
                self.submit("alice", ["--gpu-mem", "20G", "-o", "/dev/null"], ["sleep", "600"]),
                self.submit("bob", ["-G", "0.25", "-o", "/dev/null"], ["sleep", "600"])]
        held = [self.server.wait_state(job, "running")["gpus"] for job in jobs]
        self.assertEqual(held[0], held[1], "two fractions of one user share a GPU")
        self.assertNotEqual(held[0], held[2], "two users do not, unless the configuration allows it")
        text = self.tranche("ls")
        for shown in ("0.5", "20G", "0.25"):  # never as if it were held by hardware
            self.assertRegex(text, rf"{shown} (guarded|unenforced)")
        self.assertRegex(self.tranche("gpus"), "guarded|unenforced")
        for job in jobs:
            self.end(job)

    # --- to change --------------------------------------------------------------------------------
    def test_cancel_hold_release(self):
        running = self.submit("alice", ["-G", "4", "-o", "/dev/null"], ["sleep", "600"])
        waiting = self.submit("alice", ["-G", "1", "-o", "/dev/null"], ["true"])
        third = self.submit("alice", ["-G", "1", "-o", "/dev/null"], ["true"])
        self.server.wait_state(running, "running")
        self.assertEqual(self.tranche("hold", str(waiting)), f"job {waiting} held\n")
        self.assertEqual(self.server.job(waiting)["state"], "held")
        self.assertEqual(self.tranche("cancel", "--dry-run", str(third)), f"would be cancelled: job {third}\n")
        self.assertEqual(self.tranche("cancel", str(third)), f"job {third} cancelled\n")
        self.tranche("wait", str(third), code=None)
        self.assertNotEqual(self.server.last_code, 0, "a cancelled job is no success")
        self.tranche("hold", str(running), code=1)
        self.tranche("cancel", str(running))
        done = self.server.wait(running)[0]
        self.assertEqual((done["state"], done["signal"]), ("cancelled", signal.SIGTERM))
        self.assertEqual(self.server.job(waiting)["state"], "held", "it stays where it was put")
        self.assertEqual(self.tranche("release", str(waiting)), f"job {waiting} released\n")
        self.assertEqual(self.server.wait(waiting)[0]["state"], "completed")
        self.assertIn("ended", self.tranche("cancel", str(waiting), code=1))
        self.tranche("release", str(waiting), code=1)
        array = int(self.tranche("submit", "--parsable", "-H", "-a", "1-4", *QUIET, "--", "true"))
        self.tranche("cancel", f"{array}_[1-2]")
        states = [job["state"] for job in self.server.json("alice", "ls", "--me")["jobs"]]
        self.assertEqual(states, ["held", "held"])
        self.tranche("cancel", "--me")
        self.assertEqual(self.server.json("alice", "ls", "--me")["jobs"], [])

    # --- to administer ----------------------------------------------------------------------------
    def test_queue_and_share(self):
        job = self.submit("alice", ["-G", "2", "-o", "/dev/null"], ["sleep", "600"])
        self.server.wait_state(job, "running")
        rows = {row["path"]: row for row in self.server.json("alice", "queue")["queues"]}
        self.assertEqual(rows["default/alice"]["used_milli"], 2000)
        self.assertEqual(rows["default"]["used_milli"], 2000, "a queue's use holds what is below it")
        self.assertRegex(self.tranche("queue"), r"(?m)^ *alice .* 2 +1 +0$")
        shares = {row["path"]: row for row in self.server.json("alice", "share")["queues"]}
        self.assertEqual(shares["default/alice"]["used_milli"], 2000)
        self.assertIn("fair", self.tranche("share").lower())
        self.assertTrue(shares["default/alice"]["arithmetic"])

    def test_history(self):
        jobs = [self.submit("alice", ["-o", "/dev/null"], ["sh", "-c", f"exit {code}"], wait=True)["job"]
                for code in (0, 4)]
        rows = self.server.json("alice", "history", "--me", "-n", "2")["jobs"]
        self.assertEqual([(row["job"], row["state"], row["exit_code"]) for row in rows],
                         [(jobs[1], "failed", 4), (jobs[0], "completed", 0)])
        self.assertRegex(self.tranche("history", "-n", "1"), rf"(?m)^ *{jobs[1]} +sh +alice +\S+ +failed +4 ")
        self.assertEqual(len(self.server.json("alice", "history", "--since", "1h", "-u", "carol")["jobs"]), 0)

    def test_config(self):
        path = SHARED + "/policy.toml"
        with open(path, "w", encoding="utf-8") as file:
            file.write('[policy]\nhalf_life = "3d"\n[queue."physics"]\nquota = 2\n[queue."physics/vision"]\nweight = 3\n')
        self.assertIn("in order", self.tranche("config", "check", path))
        text = self.tranche("config", "explain", path)
        for word in ("physics", "2", "vision", "3"):
            self.assertIn(word, text)
        self.assertIn("nothing has changed", self.tranche("config", "reload", user="root"))

    def test_doctor(self):
        text = self.tranche("doctor")
        for check in ("driver", "gpus", "launcher", "journal"):
            self.assertRegex(text, rf"(?m)^ok +{check}: ")
        self.assertNotIn("fail", re.sub("fractions.*", "", text))

    def test_events(self):
        job = self.submit("alice", ["-G", "1", "-o", "/dev/null"], ["true"], wait=True)["job"]
        wait_until(lambda: "slice_released" in self.tranche("events").splitlines()[-1], 10, "the release of the GPU")
        rows = [json.loads(line) for line in self.tranche("events", "--json").splitlines()]
        self.assertEqual([row["seq"] for row in rows], list(range(1, len(rows) + 1)))
        journal = self.server.journal()
        self.assertEqual([(row["seq"], row["kind"]) for row in rows], [(seq, kind) for seq, _, kind, _, _ in journal])
        mine = [row["kind"] for row in rows if row["event"].get("job") == job
                or row["event"].get("task", {}).get("job") == job]
        self.assertEqual(mine, ["job_submitted", "task_started", "task_exited", "slice_released"])
        text = self.tranche("events", "--since", str(rows[-1]["seq"] - 4))
        self.assertRegex(text, rf"job_submitted job {job} alice .*\n +-> start job {job}, GPU (id )?\d")
        follower = self.server.as_user("alice", [BIN + "/tranche", "events", "-f", "--since", str(rows[-1]["seq"])],
                                       stdout=subprocess.PIPE, text=True)
        try:
            self.submit("alice", ["-o", "/dev/null"], ["true"], wait=True)
            self.assertIn("job_submitted", follower.stdout.readline())
        finally:
            follower.kill()
            follower.wait()
            follower.stdout.close()

    def test_completion_version_help(self):
        self.assertRegex(self.tranche("version"), r"^(tranche )?\d+\.\d+\.\d+\n$")
        self.assertIn("version", json.loads(self.tranche("version", "--json")))
        script = self.tranche("completion", "bash")
        words = subprocess.run(["bash", "-c", script + '\nCOMP_WORDS=(tranche su); COMP_CWORD=1; COMP_LINE="tranche su"; '
                                'COMP_POINT=10; $(complete -p tranche | sed "s/.*-F \\([^ ]*\\).*/\\1/") tranche su '
                                'tranche; echo "${COMPREPLY[@]}"'], capture_output=True, text=True, check=True)
        self.assertEqual(words.stdout.split(), ["submit"], words.stderr)
        for shell in ("zsh", "fish"):
            self.assertIn("submit", self.tranche("completion", shell))
        verbs = re.findall(r"(?m)^  (\w+) ", self.tranche("help"))
        self.assertGreater(len(verbs), 15)
        for verb in verbs:
            text = self.tranche("help", verb)
            self.assertIn(f"tranche {verb}", text)
            self.assertEqual(self.tranche(verb, "--help"), text)

    def test_json_of_every_read(self):
        job = str(self.submit("alice", ["-G", "1", "-o", "/dev/null"], ["true"], wait=True)["job"])
        for arguments in (["ls"], ["ls", "--all"], ["show", job], ["why", job], ["wait", job], ["gpus"], ["who"],
                          ["queue"], ["share"], ["history"], ["doctor"], ["version"],
                          ["submit", "--dry-run", "--", "true"], ["run", "--dry-run", "--", "true"]):
            at = arguments.index("--") if "--" in arguments else len(arguments)
            out, err = self.server.tranche("alice", *arguments[:at], "--json", *arguments[at:])
            self.assertIsInstance(json.loads(out), dict, arguments)
            self.assertEqual(err, "", arguments)

    def test_an_array_is_cancelled_in_one_event(self):
        array = int(self.tranche("submit", "--parsable", "-a", "1-2000", "-G", "1", *QUIET, "--", "sleep", "600"))
        wait_until(lambda: self.server.json("alice", "ls", "-s", "running")["jobs"], 20, "a running element")
        text = self.tranche("cancel", str(array))
        self.assertRegex(text, rf"^array {array}: \d+ cancelled, \d+ being ended\n$")
        rows = self.server.journal()
        cancels = [row for row in rows if row[2] == "job_cancelled" and row[3]["job"] == array]
        self.assertEqual([row[3]["more"] for row in cancels], [1999])
        starts = [decision["task"]["job"] for row in rows if row[0] >= cancels[0][0] for decision in row[4]
                  if decision["kind"] == "start"]
        self.assertEqual([job for job in starts if array <= job < array + 2000], [])
        self.tranche("wait", str(array + 1999), code=None)
        wait_until(lambda: self.server.json("alice", "ls")["jobs"] == [], 30, "the end of all elements")
        self.tranche("cancel", str(array), code=1)
        self.assertIn("ended already", self.tranche("cancel", str(array), code=None))
        # One that has ended is no reason to fail: the others are cancelled all the same.
        array = int(self.tranche("submit", "--parsable", "-H", "-a", "1-3", *QUIET, "--", "true"))
        self.tranche("cancel", f"{array}_2")
        self.assertEqual(self.tranche("cancel", str(array)), f"array {array}: 2 cancelled, 1 had ended already\n")

    def test_colour_on_terminals_only(self):
        self.submit("alice", ["-H"], ["true"])

        def on_terminal(arguments, environment):
            master, slave = pty.openpty()
            process = self.server.as_user("alice", [BIN + "/tranche", *arguments], stdin=slave, stdout=slave,
                                          stderr=slave, env={"TERM": "xterm", **environment})
            os.close(slave)
            text = b""
            deadline = time.monotonic() + 20
            while time.monotonic() < deadline and select.select([master], [], [], 20)[0]:
                try:
                    block = os.read(master, 4096)
                except OSError:
                    break
                if not block:
                    break
                text += block
            os.close(master)
            self.assertEqual(process.wait(20), 0, text)
            return text

        for arguments in (["ls"], ["gpus"], ["doctor"]):
            self.assertIn(b"\x1b[", on_terminal(arguments, {}), arguments)
            self.assertNotIn(b"\x1b", on_terminal(arguments, {"NO_COLOR": "1"}), arguments)
            self.assertNotIn("\x1b", self.tranche(*arguments), arguments)


if __name__ == "__main__":
    scenario.main()
