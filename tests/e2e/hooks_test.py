"""Who is told of jobs: web hooks against a real HTTP server that fails, hangs and redirects, and the mail program."""

import glob
import hashlib
import hmac
import http.server
import json
import os
import threading
import time

import scenario
from scenario import LAB, wait_until

KEY = "a key of the administrator"
MAILS = LAB + "/mails"


class Receiver(http.server.ThreadingHTTPServer):
    """Keeps what each path was sent; answers as `behaviour` of the path says."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.got = []  # (path, headers, body)
        self.behaviour = {}  # path: status, or None to hang
        self.release = threading.Event()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def url(self, path):
        return f"http://127.0.0.1:{self.server_port}{path}"

    def of(self, path, job=None):
        found = [(headers, json.loads(body)) for where, headers, body in list(self.got) if where == path]
        return [(h, b) for h, b in found if job is None or b.get("job", {}).get("job") == job]


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.got.append((self.path, dict(self.headers), body))
        status = self.server.behaviour.get(self.path, 200)
        if status is None:
            self.server.release.wait(60)
            return
        self.send_response(status)
        if status == 307:
            self.send_header("Location", self.server.url("/elsewhere"))
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


RECEIVER = Receiver()


class Hooks(scenario.Scenario):
    def job(self, *flags, command=("true",)):
        return self.submit("alice", ["-o", "/dev/null", *flags], list(command))

    def told(self, path, job, event="job_ended", seconds=30):
        def found():
            return [(h, b) for h, b in RECEIVER.of(path, job) if b["event"] == event]
        return wait_until(found, seconds, f"{event} of job {job} at {path}")

    def doctor(self):
        checks = {check["name"]: check for check in self.server.json("alice", "doctor")["checks"]}
        return checks["hooks"]

    def test_a_notice_is_signed_and_tells_what_everybody_may_know(self):
        job = self.job("-J", "secret-name", command=("sh", "-c", "exit 3"))
        headers, body = self.told("/all", job)[0]
        self.assertEqual((body["job"]["state"], body["job"]["exit_code"], body["job"]["user"]), ("failed", 3, "alice"))
        self.assertNotIn("secret-name", json.dumps(body))
        self.assertEqual(headers["Tranche-Notice"], body["id"])
        raw = next(raw for path, h, raw in RECEIVER.got if path == "/all" and h["Tranche-Notice"] == body["id"])
        seconds, signature = (part.split("=", 1)[1] for part in headers["Tranche-Signature"].split(","))
        expected = hmac.new(KEY.encode(), seconds.encode() + b"." + raw, hashlib.sha256).hexdigest()
        self.assertEqual(signature, expected)
        self.assertLess(abs(time.time() - int(seconds)), 600)
        self.assertEqual(len(self.told("/all", job)), 1, "once, when it is taken at once")

    def test_only_jobs_that_ask_are_told_of_by_a_hook_for_those(self):
        quiet = self.job()
        asking = self.job("--notify", "asked:started,ended")
        self.told("/asked", asking)
        self.told("/asked", asking, "job_started")
        self.told("/all", quiet)
        self.assertEqual(RECEIVER.of("/asked", quiet), [])
        self.refused("alice", ["submit", "--notify", "nobody:ended", "--", "true"], 2, "nobody", "asked", "mail")

    def test_a_receiver_that_fails_is_tried_again_with_the_same_id(self):
        RECEIVER.behaviour["/asked"] = 503
        job = self.job("--notify", "asked:ended")
        wait_until(lambda: len(RECEIVER.of("/asked", job)) >= 2, 30, "a second try")
        self.assertEqual(self.doctor()["status"], "warn")
        self.assertIn("503", self.doctor()["detail"])
        self.told("/all", job)
        RECEIVER.behaviour["/asked"] = 200
        tries = len(RECEIVER.of("/asked", job))
        wait_until(lambda: len(RECEIVER.of("/asked", job)) > tries, 60, "the try that is taken")
        self.assertEqual(len({body["id"] for _, body in RECEIVER.of("/asked", job)}), 1)

    def test_one_that_hangs_holds_up_nobody_else(self):
        RECEIVER.behaviour["/slow"] = None
        self.addCleanup(RECEIVER.behaviour.pop, "/slow")
        self.addCleanup(RECEIVER.release.set)
        first = self.job("--notify", "slow:ended")
        wait_until(lambda: RECEIVER.of("/slow", first), 30, "the receiver hangs")
        started = time.monotonic()
        jobs = [self.job() for _ in range(5)]
        for job in jobs:
            self.told("/all", job)
        self.assertLess(time.monotonic() - started, 9, "before the hanging one's own time is up")

    def test_a_redirect_leads_nowhere(self):
        RECEIVER.behaviour["/moved"] = 307
        job = self.job("--notify", "moved:ended")
        self.told("/moved", job)
        wait_until(lambda: "redirect" in self.doctor()["detail"], 30, "the doctor's word")
        self.assertEqual(RECEIVER.of("/elsewhere"), [])
        self.assertEqual(len(RECEIVER.of("/moved", job)), 1, "and it is not tried again")

    def test_this_machine_is_not_reached_unless_the_configuration_says_so(self):
        job = self.job("--notify", "inside:ended")
        self.server.wait(job)
        wait_until(lambda: "private_address" in self.doctor()["detail"], 30, "the doctor's word")
        self.assertEqual(RECEIVER.of("/inside"), [])

    def test_what_was_not_told_is_told_after_a_restart(self):
        RECEIVER.behaviour["/asked"] = 503
        job = self.job("--notify", "asked:ended")
        wait_until(lambda: RECEIVER.of("/asked", job), 30, "a first try")
        self.server.kill_daemon()
        RECEIVER.behaviour["/asked"] = 200
        before = len(RECEIVER.of("/asked", job))
        self.server.up()
        wait_until(lambda: len(RECEIVER.of("/asked", job)) > before, 30, "told by the next daemon")
        self.assertEqual(len({body["id"] for _, body in RECEIVER.of("/asked", job)}), 1)

    def test_mail_goes_to_the_owner_once_for_an_array(self):
        self.job("--notify", "mail", "-J", "näme\u00a0x", command=("sh", "-c", "exit 4"))
        text = wait_until(lambda: self.mails("exit code 4"), 30, "the mail")[0]
        head, body = text.split("\n\n", 1)
        self.assertIn("To: alice\n", head)
        self.assertIn("failed, exit code 4", head)
        self.assertTrue(head.isascii(), head)
        self.assertIn("näme", body)
        array = self.job("--notify", "mail:ended", "-a", "1-5")
        wait_until(lambda: self.mails(f"array {array} "), 30, "the array's mail")
        after = self.job("--notify", "mail:ended")
        wait_until(lambda: self.mails(f"job {after} "), 30, "the next mail")
        self.assertEqual(len(self.mails(f"array {array} ")), 1)

    def mails(self, words):
        texts = []
        for path in glob.glob(MAILS + "/*.mail"):
            with open(path, encoding="utf-8") as file:
                texts.append(file.read())
        return [text for text in texts if words in text]

    def test_a_drained_gpu_is_an_alert(self):
        self.server.tranche("root", "gpus", "drain", "3", "--reason", "fan replaced")
        self.addCleanup(self.server.tranche, "root", "gpus", "undrain", "3")
        wait_until(lambda: [b for _, b in RECEIVER.of("/all") if b["event"] == "alert" and b.get("gpu") == 3
                            and "fan replaced" in b["text"]], 30, "the alert")


def prepare():
    os.makedirs(MAILS, exist_ok=True)
    os.chmod(MAILS, 0o1777)
    with open(LAB + "/sendmail", "w", encoding="utf-8") as file:
        # Complete files only: what is renamed is whole.
        file.write(f"#!/bin/sh\nto=$(mktemp {MAILS}/XXXXXX)\ncat >\"$to\" && mv \"$to\" \"$to.mail\" && chmod 644 \"$to.mail\"\n")
    os.chmod(LAB + "/sendmail", 0o755)
    with open(LAB + "/hook.key", "w", encoding="utf-8") as file:
        file.write(KEY + "\n")
    os.chmod(LAB + "/hook.key", 0o644)  # of a trial; on a server: tranche's own, 0600


if __name__ == "__main__":
    prepare()
    hooks = {"all": ("/all", 'all_jobs = true\nalerts = true\nprivate_address = true\n'
                             f'secret_file = "{LAB}/hook.key"\n'),
             "asked": ("/asked", "private_address = true\n"), "slow": ("/slow", "private_address = true\n"),
             "moved": ("/moved", "private_address = true\n"), "inside": ("/inside", "")}
    scenario.main(board="h100-80:4", policy="".join(
        f'[hook.{name}]\nurl = "{RECEIVER.url(path)}"\n{rest}' for name, (path, rest) in hooks.items())
        + f'[mail]\nprogram = "{LAB}/sendmail"\n')
