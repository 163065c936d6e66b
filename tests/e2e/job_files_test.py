"""The files of jobs and of the service: a job opens and writes only what its user may, whatever path it is given."""

import os

import scenario
from scenario import SHARED, acting_as

SECRET_WORD = "the-word-that-nobody-may-read"


class JobFiles(scenario.Scenario):
    def test_logs_that_cannot_be(self):
        home = "/run/lab/home/alice"
        target = SHARED + "/target"
        with acting_as("alice"):
            open(target, "w", encoding="ascii").close()
            os.symlink(target, home + "/link.out")
            os.symlink("/etc/passwd", home + "/passwd.out")
            os.mkfifo(home + "/pipe.out")
            os.mkdir(home + "/folder.out")
        with acting_as("bob"):
            os.mkdir(SHARED + "/of-bob", 0o755)
            open(SHARED + "/of-bob-open", "w", encoding="ascii").close()
            os.chmod(SHARED + "/of-bob-open", 0o666)
        cases = [(home + "/link.out", "symbolic link"), (home + "/passwd.out", "symbolic link"),
                 (home + "/pipe.out", "pipe"), (home + "/folder.out", "director"),
                 ("/run/lab/home/bob/mine.out", "permission"), (SHARED + "/of-bob/mine.out", "permission"),
                 (SHARED + "/of-bob-open", "another user"), (home + "/none/mine.out", "does not exist"),
                 ("/dev/full", "regular file"), ("/etc/passwd", "permission")]
        before = self.server.daemon_pid()
        jobs = [(self.submit("alice", ["-o", path], ["echo", "text"]), path, word) for path, word in cases]
        for job, path, word in jobs:
            with self.subTest(path=path):
                done = self.server.wait(job)[0]
                self.assertEqual(done["state"], "failed", done)
                reason = done.get("reason") or ""
                self.assertIn(path, reason)
                self.assertIn(word, reason.lower().replace("folder", "directory"))
                # It never ran, so it has no exit code, and whoever waits for it must not take it for a success.
                self.assertIsNone(done.get("exit_code"), done)
                self.server.tranche("alice", "wait", str(job), code=125)
        self.assertEqual(os.stat(target).st_size, 0)
        self.assertEqual(os.stat(SHARED + "/of-bob-open").st_size, 0)
        self.assertEqual(self.server.daemon_pid(), before)
        good = self.submit("alice", ["-o", home + "/good.out"], ["echo", "text"], wait=True)
        self.assertEqual((good["state"], self.log(good)), ("completed", "text\n"))

    def test_inputs_and_directories_that_cannot_be(self):
        with acting_as("bob"):
            with open("/run/lab/home/bob/data.txt", "w", encoding="ascii") as file:
                file.write(SECRET_WORD)
        os.mkfifo(SHARED + "/input-pipe")
        os.chmod(SHARED + "/input-pipe", 0o666)
        for flags, path in ((["-i", "/run/lab/home/bob/data.txt"], "/run/lab/home/bob/data.txt"),
                            (["-i", SHARED + "/input-pipe"], SHARED + "/input-pipe"), (["-i", "/dev/zero"], "/dev/zero"),
                            (["-i", "none.txt"], "none.txt"), (["-D", "/run/lab/home/bob"], "/run/lab/home/bob"),
                            (["-D", "/nowhere"], "/nowhere"), (["-D", "/etc/passwd"], "/etc/passwd")):
            with self.subTest(flags=flags):
                output = f"{SHARED}/input-{os.path.basename(path)}.out"
                done = self.submit("alice", ["-o", output, *flags], ["cat"], wait=True)
                self.assertEqual(done["state"], "failed", done)
                self.assertIn(path, done.get("reason") or "", done)
                self.assertNotIn(SECRET_WORD, self.log(done))

    def test_files_of_the_service(self):
        # They hold what everybody runs: commands, paths, environments.
        program = """
import json, os, sys
readable = []
for top in sys.argv[1:]:
    for folder, _, files in os.walk(top):
        for name in files:
            path = os.path.join(folder, name)
            try:
                os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK))
                readable.append(path)
            except OSError:
                pass
# The guard's libraries, fitted to this driver, are mapped by every job that has a part of a GPU.
print(json.dumps([path for path in readable if not path.endswith(".pid") and "/run/tranche/guard/" not in path]))
"""
        places = [self.server.state_dir, "/run/tranche", "/run/tranche-up"]
        self.assertEqual(self.python_json("alice", [], program, *places), [])
        with acting_as("alice"):
            for place in places:
                self.assertFalse(os.access(place, os.W_OK, effective_ids=True), place)


if __name__ == "__main__":
    scenario.main()
