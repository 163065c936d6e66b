"""Bad inputs through the real command line and raw HTTP: each is refused at once, in one sentence that says what to
do, with the exit code or status of base/error.h; and the daemon goes on."""

import contextlib
import http.client
import os
import re
import subprocess

import scenario
from scenario import BIN, SHARED, connect, request, wait_until
from server import ROOT
from bad_inputs import (BODIES_REFUSED, CONFIGS_REFUSED, NOT_YET, SCRIPTS_REFUSED, SUBMIT_REFUSED, TEXTS_REFUSED,
                        VERBS_REFUSED)

ERROR_LINE = re.compile(r"X\((\w+), (\d+), (\d+)\)")
GOOD = {"argv": ["true"], "directory": "/", "cpu_milli": 100}


def error_codes():
    """{code: (HTTP status, exit code)} as base/error.h has it."""
    with open(os.path.join(ROOT, "src", "base", "error.h"), encoding="utf-8") as file:
        return {code: (int(status), int(exit)) for code, status, exit in ERROR_LINE.findall(file.read())}


class BadInputs(scenario.Scenario):
    @classmethod
    def setUpClass(cls):
        cls.codes = error_codes()
        cls.daemon = scenario._SERVER[0].daemon_pid()

    def tearDown(self):
        self.assertEqual(self.server.daemon_pid(), self.daemon)
        os.kill(self.daemon, 0)  # the same daemon lives
        jobs = request("alice", "GET", "/v1/jobs").json["jobs"]
        self.assertEqual(jobs, [], "nothing that was refused has become a job")
        done = self.submit("alice", [], ["true"], wait=True)
        self.assertEqual(done["state"], "completed", "a good job is accepted afterwards")

    def problem(self, reply, status, *words):
        """The reply is a problem document of that status; returns it."""
        self.assertEqual(reply.status, status, reply)
        self.assertEqual(reply.headers.get_content_type(), "application/problem+json", reply)
        problem = reply.json
        self.assertEqual(problem["status"], status, reply)
        if status != 405:
            self.assertIn(problem["type"], self.codes, reply)
            self.assertEqual(self.codes[problem["type"]][0], status, reply)
        self.assert_one_sentence(problem["detail"], repr(reply))
        for word in words:
            self.assertIn(word.lower(), problem["detail"].lower(), reply)
        return problem

    # --- the command line -------------------------------------------------------------------------
    def test_submit(self):
        for flags, code, words in SUBMIT_REFUSED:
            with self.subTest(flags=str(flags)[:100]):
                end = [] if flags == ["-G"] else ["--", "true"]
                self.refused("alice", ["submit", *flags, *end], code, *words)

    def test_not_available_yet(self):
        for flags in NOT_YET:
            for verb in ("submit", "run"):
                with self.subTest(verb=verb, flags=flags):
                    self.refused("alice", [verb, *flags, "--", "true"], 2, "not available yet", flags[0].strip("-")[:1])

    def test_verbs(self):
        for arguments, code, words in VERBS_REFUSED:
            with self.subTest(arguments=arguments):
                self.refused("alice", arguments, code, *words)

    def test_scripts(self):
        path = SHARED + "/bad.sh"
        for text, words in SCRIPTS_REFUSED:
            with self.subTest(text=text[:60]):
                with open(path, "w", encoding="utf-8") as file:
                    file.write(text)
                self.refused("alice", ["submit", path], 2, *words)
        self.refused("alice", ["submit", "-"], 2, "#!", stdin="echo from a pipe\n")
        with open(path, "w", encoding="utf-8") as file:
            file.write("#!/bin/sh\n#" + "x" * (200 << 10) + "\n")
        self.refused("alice", ["submit", path], 2, "120 KiB")

    def test_arguments_that_are_no_text(self):
        for arguments in ([b"\xff\xfe"], [b"-J", b"\xff", b"--", b"true"], [b"-o", b"\xc3\x28", b"--", b"true"]):
            with self.subTest(arguments=arguments):
                words = arguments if arguments[0].startswith(b"-") else [b"--", *arguments]
                process = self.server.as_user("alice", [BIN.encode() + b"/tranche", b"submit", *words],
                                              stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                _, err = process.communicate(timeout=20)
                self.assertEqual(process.returncode, 2, err)
                self.assert_one_sentence(err.decode(), repr(err))

    def test_odd_names_that_are_good(self):
        for name in ('say "hello"', "it's", "back\\slash", "$(reboot)", "größer 東京", "%n%s", "-dash", "a/b"):
            with self.subTest(name=name):
                job = self.submit("alice", ["-J" + name, "-o", "/dev/null"], ["true"], wait=True)
                self.assertEqual((job["state"], job["name"]), ("completed", name))

    # --- HTTP -------------------------------------------------------------------------------------
    def test_fields(self):
        for change, status, words in BODIES_REFUSED:
            with self.subTest(change=str(change)[:100]):
                body = {name: value for name, value in {**GOOD, **change}.items() if value is not None}
                self.problem(request("alice", "POST", "/v1/jobs", body), status, *words)

    def test_texts(self):
        for text in TEXTS_REFUSED:
            with self.subTest(text=str(text)[:60]):
                self.problem(request("alice", "POST", "/v1/jobs", text), 400)
        problem = self.problem(request("alice", "POST", "/v1/jobs", '{"argv":["true"],\n "directory" "/"}'), 400)
        self.assertIn("2", problem["detail"], "the line of the mistake is named")

    def test_a_huge_body(self):
        for size in (9 << 20, 64 << 20):
            client = connect("alice")
            with client:
                head = f"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: {size}\r\n\r\n"
                client.sendall(head.encode())
                sent = 0
                try:
                    while sent < size:
                        sent += client.send(b" " * 65536)
                except OSError:
                    pass  # it may close in the middle: it has said why
                answer = b""
                try:
                    while chunk := client.recv(65536):
                        answer += chunk
                        if b"\r\n\r\n" in answer and answer.endswith(b"}"):
                            break
                except OSError:
                    pass
            self.assertIn(b" 413 ", answer.split(b"\r\n")[0], (size, sent, answer[:500]))
            self.assertIn(b"too_large", answer)

    def test_what_is_no_http(self):
        for data in (b"\x16\x03\x01\x02\x00\x01\x00", b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"\0" * 4096,
                     b"GET /v1/jobs HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * (1 << 20) + b"\r\n\r\n",
                     b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n{}",
                     b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999999999999\r\n\r\n{}",
                     b"GET /" + b"a" * (1 << 20) + b" HTTP/1.1\r\nHost: localhost\r\n\r\n"):
            with self.subTest(data=data[:40]), connect("alice", timeout=3) as client:
                answer = b""
                try:
                    client.sendall(data)
                    client.shutdown(1)
                    while chunk := client.recv(65536):
                        answer += chunk
                except OSError:
                    pass
                first = answer.split(b"\r\n")[0]
                self.assertTrue(answer == b"" or re.match(rb"HTTP/1\.[01] [45]\d\d", first), answer[:200])

    def test_one_user_cannot_take_all_connections(self):
        hoard = []
        self.addCleanup(lambda: [client.close() for client in hoard])
        for _ in range(600):
            client = connect("alice")
            hoard.append(client)
            with contextlib.suppress(OSError):  # beyond her limit the daemon hangs up
                client.sendall(b"GET /v1/jobs HTTP/1.1\r\nHost: localhost\r\n")
        self.assertEqual(request("bob", "GET", "/v1/status").status, 200, "others are served")
        for client in hoard:
            client.close()
        wait_until(lambda: self.is_served("alice"), 10, "alice being served again")
        with open("/run/tranche-up/tranched.log", encoding="utf-8") as file:
            lines = [line for line in file if "connection_refused" in line]
        self.assertTrue(0 < len(lines) <= 20, f"nobody fills the log by being refused: {len(lines)} lines")

    @staticmethod
    def is_served(user):
        try:
            return request(user, "GET", "/v1/status").status == 200
        except (OSError, http.client.HTTPException):
            return False

    def test_paths_methods_and_queries(self):
        for method, path, status, words in [
                ("GET", "/", 404, []), ("GET", "/v1/nosuch", 404, ["/v1/nosuch"]), ("GET", "/v2/jobs", 404, []),
                ("GET", "/v1/jobs/../../etc/passwd", 404, []), ("GET", "/v1/%1b%5b31m", 400, ["control"]),
                ("DELETE", "/v1/jobs", 405, ["GET"]), ("PUT", "/v1/jobs/1", 405, ["GET"]),
                ("GET", "/v1/jobs/1/cancel", 405, ["POST"]), ("GET", "/v1/jobs/abc", 400, ["job"]),
                ("GET", "/v1/jobs/0", 400, ["job"]), ("GET", "/v1/jobs/-1", 400, ["job"]),
                ("GET", "/v1/jobs/999999", 404, ["999999"]), ("GET", "/v1/jobs/99999999999999999999", 400, []),
                ("GET", "/v1/jobs?limit=0", 400, ["limit"]), ("GET", "/v1/jobs?limit=x", 400, ["limit"]),
                ("GET", "/v1/jobs?limit=10001", 400, ["limit"]), ("GET", "/v1/jobs?cursor=x", 400, ["cursor"]),
                ("GET", "/v1/jobs?state=sleeping", 400, ["sleeping"]),
                ("GET", "/v1/history?since=yesterday", 400, []), ("GET", "/v1/events?since=-1", 400, []),
                ("GET", "/v1/events?limit=99999999", 400, ["limit"]),
                ("GET", "/v1/jobs/1/wait?timeout=soon", 400, ["timeout"]),
                ("POST", "/v1/gpus/99/drain", 404, ["99"]), ("POST", "/v1/gpus/x/drain", 400, [])]:
            with self.subTest(method=method, path=path):
                self.problem(request("alice", method, path), status, *words)
        self.problem(request("alice", "POST", "/v1/run", GOOD), 400, "tranche run")
        self.problem(request("root", "POST", "/v1/gpus/0/drain", {"reazon": "x"}), 400, "reason")

    def test_idempotency(self):
        for key in ("", "k" * 129):
            self.problem(request("alice", "POST", "/v1/jobs", GOOD, {"Idempotency-Key": key}), 400, "128")
        first = request("alice", "POST", "/v1/jobs", GOOD, {"Idempotency-Key": "once"})
        again = request("alice", "POST", "/v1/jobs", GOOD, {"Idempotency-Key": "once"})
        other = request("bob", "POST", "/v1/jobs", GOOD, {"Idempotency-Key": "once"})
        self.assertEqual((first.status, again.status, other.status), (201, 201, 201), (first, again, other))
        self.assertEqual(first.json["job"], again.json["job"])
        self.assertNotEqual(first.json["job"], other.json["job"], "a key belongs to its user")
        flags = ["submit", "--parsable", "-c", "0.1", "--idempotency-key", "by-hand", "--", "true"]
        jobs = {self.server.tranche("alice", *flags)[0] for _ in range(3)}
        self.assertEqual(len(jobs), 1, jobs)
        self.server.wait(first.json["job"], other.json["job"], *map(int, jobs), user="root")

    # --- configuration ----------------------------------------------------------------------------
    def test_configuration(self):
        path = SHARED + "/bad.toml"
        for text, line, words in CONFIGS_REFUSED:
            with self.subTest(text=text):
                with open(path, "w", encoding="utf-8") as file:
                    file.write(text)
                self.refused("alice", ["config", "check", path], 2, f"{path}:{line}", *words)
                problem = self.problem(request("alice", "POST", "/v1/config/check", text), 400, *words)
                self.assertEqual(problem.get("line"), line, problem)
        # A bad file that the daemon is asked to load changes nothing.
        with open(self.server.config, encoding="utf-8") as file:
            good = file.read()
        try:
            with open(self.server.config, "a", encoding="utf-8") as file:
                file.write("[policy]\nhalf_live = \"7d\"\n")
            self.problem(request("root", "POST", "/v1/reload"), 400, "half_life")
        finally:
            with open(self.server.config, "w", encoding="utf-8") as file:
                file.write(good)
        self.assertEqual(request("root", "POST", "/v1/reload").status, 200)

    # --- impossible now, but not for ever ---------------------------------------------------------
    def test_drained_waits(self):
        for index in range(4):
            reply = request("root", "POST", f"/v1/gpus/{index}/drain", {"reason": "fans are replaced"})
            self.assertEqual(reply.status, 200, reply)
        gpus = self.server.json("alice", "gpus")["gpus"]
        self.assertEqual([(gpu["drained"], gpu["reason"]) for gpu in gpus], [(True, "fans are replaced")] * 4)
        self.refused("alice", ["submit", "-G", "9", "--", "true"], 3, "fewer")
        job = self.submit("alice", ["-G", "1"], ["true"])
        self.assertEqual(self.server.job(job)["state"], "pending")
        why, _ = self.server.tranche("alice", "why", str(job))
        self.assertIn("drained", why)
        for index in range(4):
            self.assertEqual(request("root", "POST", f"/v1/gpus/{index}/undrain").status, 200)
        self.assertEqual(self.server.wait(job)[0]["state"], "completed")


if __name__ == "__main__":
    scenario.main()
