"""Hostile users' programs against a whole server: alice attacks, bob works. Nothing is gained, bob is served, and what
was tried is in the log. What a job can reach from inside is in ../e2e/isolation_test.py, files in ../e2e/job_files_test.py,
malformed input in ../e2e/bad_inputs_test.py; here is what takes something away from others, or lies about who it is."""

import contextlib
import errno
import http.client
import json
import os
import re
import socket
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))

import scenario  # noqa: E402
from scenario import BIN, SHARED, acting_as, connect, request, wait_until  # noqa: E402

LONG = os.environ.get("TRANCHE_LONG") == "1"
PROCESSES_MAX = 200

POLICY = f"""
[policy]
jobs_per_user_max = 20000
"""
DROP_IN = f"""
[daemon]
task_processes_max = {PROCESSES_MAX}
[gpus]
scan_interval = "200ms"
sample_interval = "100ms"
"""


def daemon_log():
    with open("/run/tranche-up/tranched.log", encoding="utf-8", errors="replace") as file:
        return file.read().splitlines()


class Hostile(scenario.Scenario):
    def assert_bob_is_served(self):
        """While whatever alice does goes on: bob's request is answered and his job runs to its end."""
        self.assertEqual(request("bob", "GET", "/v1/status").status, 200)
        done = self.submit("bob", ["-o", "/dev/null"], ["sh", "-c", "exit 0"], wait=True)
        self.assertEqual(done["state"], "completed", done)

    # --- what takes the machine away ------------------------------------------------------------------
    def test_fork_bomb(self):
        """It meets the task's limit of processes, its own task's alone, and all of it ends with the job."""
        marker = SHARED + "/bomb"
        program = """
import os, signal, sys, time
born = 0
while True:
    try:
        if os.fork() == 0:
            os.setsid()
            signal.pause()
        born += 1
    except OSError as error:
        with open(sys.argv[1] + ".new", "w") as file:
            file.write(f"{born} {error.errno}")
        os.rename(sys.argv[1] + ".new", sys.argv[1])
        signal.pause()
"""
        job = self.submit("alice", ["-t", "10m"], ["python3", "-c", program, marker])
        wait_until(lambda: os.path.exists(marker), 30, "the bomb to meet its limit")
        with open(marker, encoding="ascii") as file:
            born, error = map(int, file.read().split())
        self.assertEqual(error, errno.EAGAIN)
        self.assertLessEqual(born, PROCESSES_MAX)
        self.assertGreater(born, PROCESSES_MAX // 2, "the limit is the task's, not something smaller")
        self.assert_bob_is_served()
        self.server.tranche("alice", "cancel", str(job))
        done = self.server.wait(job)[0]
        self.assertEqual(done["state"], "cancelled", done)

    def test_escape_by_daemonising_from_a_task_that_ends(self):
        """setsid, double fork, another name, closed files, ignored signals: all of them end with the task."""
        program = """
import ctypes, os, signal, time
for _ in range(20):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            for number in range(1, 64):
                try:
                    signal.signal(number, signal.SIG_IGN)
                except (OSError, ValueError):
                    pass
            os.closerange(0, 256)
            os.chdir("/")
            ctypes.CDLL(None).prctl(15, b"kworker/0:1", 0, 0, 0)
            while True:
                time.sleep(1000)
        os._exit(0)
    os.wait()
"""
        done = self.submit("alice", ["--grace", "1s", "-o", "/dev/null"], ["python3", "-c", program], wait=True)
        self.assertEqual(done["state"], "completed", done)

        def left():
            found = subprocess.run(["pgrep", "-u", "2001", "-x", "kworker/0:1"], capture_output=True, text=True,
                                   check=False)
            return found.stdout.split()

        wait_until(lambda: not left(), 10, "the end of what hid itself")

    def test_gpu_used_without_a_job(self):
        """Somebody who takes a GPU past the queue is named, nobody is put on it, and it comes back afterwards."""
        squatter = self.server.as_user("alice", [BIN + "/examples/serve", "--memory", "1000", "--seconds", "600"],
                                       stdout=subprocess.DEVNULL,
                                       env={"LD_LIBRARY_PATH": self.server.library_dir})
        self.addCleanup(lambda: squatter.poll() is None and squatter.kill())

        def taken():
            self.assertIsNone(squatter.poll(), "the squatter lives")
            gpus = self.server.json("bob", "gpus")["gpus"]
            return [gpu for gpu in gpus if f"process {squatter.pid} of alice" in (gpu.get("reason") or "")]

        wait_until(taken, 30, "the squatter being named")
        gpu = taken()[0]
        self.assertTrue(gpu["drained"])
        # Three other GPUs are free: four jobs use three of them, one after the other.
        jobs = [self.submit("bob", ["-G", "1", "-o", "/dev/null"], ["sh", "-c", "exit 0"]) for _ in range(4)]
        for done in self.server.wait(*jobs, user="bob"):
            self.assertEqual(done["state"], "completed")
            self.assertNotIn(gpu["uuid"], done["tasks"][0]["gpus"])
        self.assertIsNone(squatter.poll(), "nobody's process is touched")
        squatter.kill()
        squatter.wait()
        wait_until(lambda: not any(g["drained"] for g in self.server.json("bob", "gpus")["gpus"]), 30,
                   "the GPU coming back")
        self.assertTrue(any("gpu_used_outside_of_jobs" in line and "alice" in line for line in daemon_log()))

    # --- what takes the daemon away -------------------------------------------------------------------
    def test_many_submissions(self):
        """One user sends as many jobs as she can; another's are answered meanwhile, and her limit holds."""
        count = 100_000 if LONG else 1_000
        stop = threading.Event()
        counts = {}
        accepted = []

        def flood(number):
            body = json.dumps({"argv": ["true"], "directory": "/", "held": True, "stdout": "/dev/null"})
            connection = http.client.HTTPConnection("localhost", timeout=60)
            connection.sock = sockets[number]
            while not stop.is_set():
                connection.request("POST", "/v1/jobs", body=body, headers={"Content-Type": "application/json"})
                reply = connection.getresponse()
                text = reply.read()
                with lock:
                    if reply.status == 201:
                        accepted.append(json.loads(text)["job"])
                    counts[reply.status] = counts.get(reply.status, 0) + 1
                    if sum(counts.values()) >= count:
                        stop.set()

        lock = threading.Lock()
        sockets = [connect("alice") for _ in range(4)]
        threads = [threading.Thread(target=flood, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        served = 0
        while not stop.is_set() and served < 20:
            self.assert_bob_is_served()
            served += 1
        for thread in threads:
            thread.join()
        for client in sockets:
            client.close()
        print(f"{count} submissions: answers {dict(sorted(counts.items()))}; bob was served {served} times meanwhile")
        self.assertLessEqual(set(counts), {201, 202, 429}, counts)
        self.assertLessEqual(len(accepted), 20_000)
        self.assertEqual(len(accepted), len(set(accepted)))
        self.assertGreater(served, 0)
        connection = http.client.HTTPConnection("localhost", timeout=60)
        connection.sock = connect("alice")
        for job in accepted:
            connection.request("POST", f"/v1/jobs/{job}/cancel")
            reply = connection.getresponse()
            reply.read()
            self.assertEqual(reply.status, 200)
        connection.close()
        self.assertEqual(self.server.json("alice", "ls")["jobs"], [])

    def test_giant_arrays(self):
        for indices in ("0-99999999", "1-4294967295", "1-1000000000%1"):
            out, err = self.server.tranche("alice", "submit", "-a", indices, "--", "true", code=None, timeout=30)
            self.assertNotEqual(self.server.last_code, 0, (indices[:40], out))
            self.assertTrue(err.strip())
        for count in (20_001, 100_001, 1_000_000):  # above her limit of jobs, an array's, and a request's
            try:
                reply = request("alice", "POST", "/v1/jobs", {"argv": ["true"], "directory": "/",
                                                              "array": {"indices": list(range(count))}})
            except OSError:
                continue  # it was refused while it was still being sent
            self.assertIn(reply.status, (400, 413, 422, 429), (count, reply))
        self.assert_bob_is_served()

    def test_slow_loris(self):
        """Hundreds of connections that send one byte at a time hold nobody else up."""
        slow = []
        self.addCleanup(lambda: [client.close() for client in slow])
        head = b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n{"
        for _ in range(300):
            with contextlib.suppress(OSError):
                client = connect("alice")
                slow.append(client)
                client.setblocking(False)
        for position in range(len(head)):
            for client in slow:
                with contextlib.suppress(OSError):
                    client.send(head[position:position + 1])
            if position % 20 == 0:
                self.assertEqual(request("bob", "GET", "/v1/status").status, 200)
        self.assert_bob_is_served()

    def test_clients_that_never_read(self):
        """Answers that nobody takes are bounded: event streams and lists whose reader sleeps."""
        sleepers = []
        self.addCleanup(lambda: [client.close() for client in sleepers])
        for _ in range(40):
            client = connect("alice")
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.sendall(b"GET /v1/events HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n")
            sleepers.append(client)
        before = self.resident_kib()
        jobs = [self.submit("bob", ["-o", "/dev/null"], ["true"]) for _ in range(30)]
        self.server.wait(*jobs, user="bob")
        self.assertLess(self.resident_kib() - before, 64 * 1024)
        self.assert_bob_is_served()

    def test_a_body_of_a_gibibyte(self):
        """Refused by its announced length, and when it is sent in chunks without one, at the limit."""
        before = self.resident_kib()
        client = connect("alice")
        with client:
            client.sendall(b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1073741824\r\n\r\n")
            self.assertIn(b" 413 ", client.recv(65536).split(b"\r\n")[0])
        client = connect("alice")
        sent = 0
        with client:
            client.sendall(b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
            chunk = b"10000\r\n" + b" " * 65536 + b"\r\n"
            with contextlib.suppress(OSError):
                while sent < 1 << 30:
                    client.sendall(chunk)
                    sent += 65536
        self.assertLess(sent, 256 << 20, "the daemon does not take a gibibyte in")
        self.assertLess(self.resident_kib() - before, 64 * 1024, "nor keep it")
        self.assert_bob_is_served()

    def resident_kib(self):
        with open(f"/proc/{self.server.daemon_pid()}/status", encoding="ascii") as file:
            return int(re.search(r"VmRSS:\s+(\d+)", file.read()).group(1))

    # --- who one is --------------------------------------------------------------------------------------
    def test_nobody_can_be_somebody_else(self):
        """Whatever a request says about its sender, the kernel's word counts."""
        body = {"argv": ["id", "-u"], "directory": "/tmp", "stdout": SHARED + "/whoami"}
        for headers in ({"X-Remote-User": "bob"}, {"Authorization": "Basic cm9vdDo="}, {"X-Forwarded-User": "root"},
                        {"Cookie": "user=root; uid=0"}):
            reply = request("alice", "POST", "/v1/jobs", body, headers)
            self.assertIn(reply.status, (201, 202), reply)
            job = reply.json["job"]
            done = self.server.wait(job)[0]
            self.assertEqual(done["user"], "alice")
            with open(SHARED + "/whoami", encoding="ascii") as file:
                self.assertEqual(file.read(), "2001\n")
            os.unlink(SHARED + "/whoami")
        for field, value in (("uid", 0), ("user", "bob"), ("gid", 0), ("owner", {"uid": 0, "gid": 0, "user": "root"}),
                             ("groups", [0])):
            reply = request("alice", "POST", "/v1/jobs", {**body, field: value})
            self.assertEqual(reply.status, 400, (field, reply))

    def test_environment_that_would_run_code(self):
        """LD_PRELOAD and friends never reach a program before the job's own command, and no part of Tranche."""
        library = SHARED + "/evil.so"
        mark = SHARED + "/evil-ran"
        source = f'#include <unistd.h>\n#include <fcntl.h>\n#include <stdio.h>\n' \
                 f'__attribute__((constructor)) static void run(void) {{ char text[64]; int file = ' \
                 f'open("{mark}", O_CREAT|O_APPEND|O_WRONLY, 0666); int n = snprintf(text, 64, "%d\\n", ' \
                 f'(int)geteuid()); if (write(file, text, n) < 0) {{}} close(file); }}\n'
        built = subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", library], input=source, text=True,
                               capture_output=True, check=False)
        self.assertEqual(built.returncode, 0, built.stderr)
        os.chmod(library, 0o755)
        dirty = [["LD_PRELOAD", library], ["LD_AUDIT", library], ["IFS", "/"], ["BASH_ENV", "/nonexistent"],
                 ["ENV", "/nonexistent"], ["GCONV_PATH", SHARED], ["MALLOC_TRACE", SHARED + "/trace"]]
        body = {"argv": ["/bin/sh", "-c", "echo ran; exit 3"], "directory": "/tmp", "stdout": SHARED + "/dirty.out",
                "environment": dirty}
        reply = request("alice", "POST", "/v1/jobs", body)
        if reply.status == 400:
            body["environment"] = dict(dirty)
            reply = request("alice", "POST", "/v1/jobs", body)
        self.assertIn(reply.status, (201, 202), reply)
        done = self.server.wait(reply.json["job"])[0]
        self.assertEqual((done["state"], done["exit_code"]), ("failed", 3), done)
        self.assertFalse(os.path.exists(mark), "the library ran: " + (open(mark).read() if os.path.exists(mark) else ""))

    # --- files ----------------------------------------------------------------------------------------------
    def test_log_paths_that_point_elsewhere(self):
        """Links and pipes in a log's place, and folders that are swapped while the job starts."""
        home = "/run/lab/home/alice"
        with open(SHARED + "/precious", "w", encoding="ascii") as file:
            file.write("root's")
        os.chmod(SHARED + "/precious", 0o644)
        with acting_as("bob"):
            with open(SHARED + "/of-bob", "w", encoding="ascii") as file:
                file.write("bob's")
            os.chmod(SHARED + "/of-bob", 0o666)
        with acting_as("alice"):
            os.mkfifo(home + "/fifo.out")
            os.symlink(SHARED + "/precious", home + "/symbolic.out")
            with contextlib.suppress(PermissionError):  # fs.protected_hardlinks
                os.link(SHARED + "/of-bob", home + "/hard.out")
        for name in ("fifo.out", "symbolic.out", "hard.out"):
            path = f"{home}/{name}"
            if not os.path.lexists(path):
                continue
            done = self.submit("alice", ["-o", path], ["echo", "overwritten"], wait=True)
            self.assertEqual(done["state"], "failed", (name, done))
        # The folder on the way to the log is now hers, now a link to a folder of root's that she may not write.
        os.mkdir(SHARED + "/of-root", 0o755)
        with acting_as("alice"):
            os.mkdir(home + "/real")
            os.symlink(home + "/real", home + "/way")
        stop = threading.Event()

        def swap():
            while not stop.is_set():
                for target in (SHARED + "/of-root", home + "/real"):
                    os.symlink(target, home + "/way.new")
                    os.rename(home + "/way.new", home + "/way")

        swapper = threading.Thread(target=swap)
        swapper.start()
        try:
            jobs = [self.submit("alice", ["-o", home + "/way/log.%j"], ["echo", "text"]) for _ in range(20)]
            self.server.wait(*jobs)
        finally:
            stop.set()
            swapper.join()
        self.assertEqual(os.listdir(SHARED + "/of-root"), [], "nothing is written where she may not write")
        for name, text in (("precious", "root's"), ("of-bob", "bob's")):
            with open(f"{SHARED}/{name}", encoding="ascii") as file:
                self.assertEqual(file.read(), text)

    # --- what was tried is written down ------------------------------------------------------------------
    def test_what_was_tried_is_in_the_log(self):
        job = self.submit("bob", ["-o", "/dev/null"], ["sleep", "600"])
        self.server.wait_state(job, "running", user="bob")
        tried = [("POST", f"/v1/jobs/{job}/cancel"), ("POST", f"/v1/jobs/{job}/hold"), ("POST", "/v1/gpus/0/drain"),
                 ("POST", "/v1/reload")]
        for method, path in tried:
            self.assertEqual(request("alice", method, path).status, 403, path)
        lines = [line for line in daemon_log() if "denied" in line and "user=alice" in line]
        for word in ("cancel", "hold", "drain", "reload"):
            self.assertTrue(any(word in line for line in lines), f"{word}: {lines}")
        # Trying again and again fills no disk.
        before = os.stat("/run/tranche-up/tranched.log").st_size
        connection = http.client.HTTPConnection("localhost", timeout=20)
        connection.sock = connect("alice")
        for _ in range(300):
            connection.request("POST", f"/v1/jobs/{job}/cancel")
            reply = connection.getresponse()
            reply.read()
            self.assertEqual(reply.status, 403)
        connection.close()
        grown = os.stat("/run/tranche-up/tranched.log").st_size - before
        self.assertLess(grown, 10_000, "three hundred denials write a few lines, one a second at most")
        self.assertEqual(self.server.job(job, "bob")["state"], "running")


if __name__ == "__main__":
    scenario.main(policy=POLICY, drop_in=DROP_IN)
