"""The API on TCP: TLS 1.3, tokens and their scopes, and what strangers on the network may cost."""

import contextlib
import http.client
import json
import os
import pwd
import re
import socket
import ssl
import subprocess
import time

import scenario
from scenario import BIN, LAB, wait_until

TLS = LAB + "/tls"


def openssl(*words):
    subprocess.run(["openssl", *words], check=True, capture_output=True)


def make_authority(name):
    openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "30",
            "-subj", f"/CN={name}", "-keyout", f"{TLS}/{name}.key", "-out", f"{TLS}/{name}.pem")


def make_certificate(authority, name, subject):
    openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", "/CN=x",
            "-keyout", f"{TLS}/{name}.key", "-out", f"{TLS}/{name}.csr")
    with open(f"{TLS}/{name}.ext", "w", encoding="ascii") as file:
        file.write(f"subjectAltName={subject}\n")
    openssl("x509", "-req", "-in", f"{TLS}/{name}.csr", "-CA", f"{TLS}/{authority}.pem", "-CAkey",
            f"{TLS}/{authority}.key", "-CAcreateserial", "-days", "30", "-extfile", f"{TLS}/{name}.ext",
            "-out", f"{TLS}/{name}.pem")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


PORT = free_port()


class Network(scenario.Scenario):
    def token(self, user="alice", *flags):
        return self.server.tranche(user, "token", "create", *flags)[0].strip()

    def connection(self, authority="ca", **options):
        context = ssl.create_default_context(cafile=f"{TLS}/{authority}.pem")
        for name, value in options.items():
            setattr(context, name, value)
        return http.client.HTTPSConnection("localhost", PORT, timeout=20, context=context)

    def ask(self, token, method="GET", path="/v1/jobs", body=None, headers=None):
        with contextlib.closing(self.connection()) as connection:
            connection.request(method, path, body=body if body is None else json.dumps(body),
                               headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json",
                                        **(headers or {})})
            reply = connection.getresponse()
            return scenario.Reply(reply.status, reply.headers, reply.read().decode())

    def remote(self, token, *words, code=0, authority="ca", host="localhost", mode=0o600):
        """The command line as a user of another machine has it."""
        path = pwd.getpwnam("bob").pw_dir + "/token"
        with open(path, "w", encoding="ascii") as file:
            file.write(token + "\n")
        os.chown(path, pwd.getpwnam("bob").pw_uid, -1)
        os.chmod(path, mode)
        return self.server.tranche("bob", *words, code=code, env={
            "TRANCHE_HOST": f"https://{host}:{PORT}", "TRANCHE_TOKEN_FILE": path,
            "TRANCHE_CA_FILE": f"{TLS}/{authority}.pem"})

    # --- the command line ---------------------------------------------------------------------------------------
    def test_doctor_tells_how_long_the_certificate_is_good(self):
        checks = json.loads(self.server.tranche("alice", "doctor", "--json", code=None)[0])["checks"]
        tls = next(check for check in checks if check["name"] == "tls")
        self.assertEqual((tls["status"], tls["detail"]), ("ok", "the certificate is good for 29 days"))

    def test_the_command_line_works_from_elsewhere_as_the_tokens_user(self):
        token = self.token("alice", "--scope", "jobs", "--label", "laptop")
        out, _ = self.remote(token, "submit", "--parsable", "-c", "0.1", "-D", "/tmp", "-o", "/dev/null", "--", "true")
        job = self.server.wait(int(out))[0]
        self.assertEqual((job["user"], job["state"]), ("alice", "completed"), "alice's token in bob's hands is alice")
        self.assertIn("alice", self.remote(token, "ls", "--all")[0])
        self.remote(token, "wait", out.strip())
        self.assertIn("needs `Upgrade", self.remote(token, "run", "--", "true", code=2)[1])

    def test_whom_it_does_not_believe_it_does_not_tell_the_token(self):
        token = self.token()
        self.assertIn("not believed", self.remote(token, "ls", authority="other", code=3)[1])
        err = self.remote(token, "ls", host="127.0.0.1", code=3)[1]
        self.assertIn("not believed", err, "the certificate is localhost's")
        self.assertIn("chmod 600", self.remote(token, "ls", mode=0o644, code=3)[1])
        self.assertIn("valid token", self.remote("tranche_1_" + "0" * 64, "ls", code=3)[1])

    # --- tokens -------------------------------------------------------------------------------------------------
    def test_without_a_valid_token_there_is_nothing(self):
        revoked = self.token()
        number = re.match(r"tranche_(\d+)_", revoked).group(1)
        self.assertEqual(self.ask(revoked).status, 200)
        self.server.tranche("alice", "token", "revoke", number)
        short = self.token("alice", "--lifetime", "1s")
        wait_until(lambda: self.ask(short).status == 401, 10, "the end of its life")
        for wrong in (revoked, short, "", "x" * 5000, revoked.replace("tranche_", "")):
            for path in ("/v1/jobs", "/v1/no-such-route"):
                reply = self.ask(wrong, path=path)
                self.assertEqual(reply.status, 401, reply)
                self.assertEqual(reply.headers["Content-Type"], "application/problem+json")
                self.assertEqual(reply.headers["WWW-Authenticate"], "Bearer")
                self.assertEqual(reply.json["status"], 401)
        with contextlib.closing(self.connection()) as connection:
            connection.request("GET", "/v1/jobs")
            self.assertEqual(connection.getresponse().status, 401)

    def test_a_stream_ends_with_its_token(self):
        token = self.token()
        with contextlib.closing(self.connection()) as connection:
            connection.request("GET", "/v1/events?follow=true", headers={"Authorization": f"Bearer {token}"})
            stream = connection.getresponse()
            self.assertEqual(stream.status, 200)
            self.assertTrue(stream.readline(), "the past comes")
            self.server.tranche("alice", "token", "revoke", re.match(r"tranche_(\d+)_", token).group(1))
            after = self.submit("alice", ["-o", "/dev/null"], ["true"], wait=True)
            rest = stream.read().decode()  # until the server ends it
            self.assertNotIn(f'"job":{after["job"]},', rest)

    def test_z_guessing_is_slow(self):
        token = self.token()
        statuses = [self.ask("tranche_1_" + "1" * 64).status for _ in range(30)]
        self.assertEqual(statuses[0], 401)
        self.assertIn(429, statuses)
        self.assertEqual(self.ask(token).status, 200, "who holds a good one comes in all the same")

    def test_secrets_are_not_kept(self):
        token = self.token()
        with open(self.server.state_dir + "/tokens", encoding="ascii") as file:
            self.assertNotIn(token.rsplit("_", 1)[1], file.read())
        self.assertEqual(os.stat(self.server.state_dir + "/tokens").st_mode & 0o777, 0o600)
        self.assertNotIn(token.rsplit("_", 1)[1], self.server.tranche("alice", "token", "ls", "--json")[0])
        rows = self.server.json("bob", "token", "ls")["tokens"]
        self.assertEqual([row for row in rows if row["user"] != "bob"], [], "others' are nobody's business")
        number = re.match(r"tranche_(\d+)_", token).group(1)
        self.refused("bob", ["token", "revoke", number], 4, "no token")
        self.refused("bob", ["token", "create", "--user", "alice"], 3, "operators")
        self.refused("bob", ["token", "create", "--scope", "operate"], 3, "operators")
        self.server.kill_daemon()
        self.server.up()
        wait_until(lambda: self.reachable(), 20, "the port after the restart")
        self.assertEqual(self.ask(token).status, 200, "a restart knows it")

    def reachable(self):
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", PORT), timeout=1).close()
            return True
        return False

    def test_each_route_keeps_to_the_scope(self):
        """Every route of the document with every scope: what may pass does, and what may not does not."""
        with open(os.path.join(os.path.dirname(__file__), "..", "..", "api", "openapi.yaml"), encoding="utf-8") as file:
            text = file.read()
        routes, path = [], None
        for line in text[text.index("\npaths:"):text.index("\ncomponents:")].splitlines():
            if match := re.match(r"  (/\S+):$", line):
                path = match.group(1)
            elif match := re.match(r"    (get|post):$", line):
                routes.append((match.group(1).upper(), path))
        self.assertGreater(len(routes), 25)
        operators = {"/v1/gpus/{index}/drain", "/v1/gpus/{index}/undrain", "/v1/reload"}
        on_the_socket = {("POST", "/v1/tokens"), ("POST", "/v1/tokens/{id}/revoke")}
        bobs = self.submit("bob", ["-o", "/dev/null"], ["sleep", "600"])
        # carol is made an operator by the configuration of this server.
        tokens = {scope: self.server.tranche("root", "token", "create", "--user", "carol", "--scope", scope)[0].strip()
                  for scope in ("read", "jobs", "operate")}
        count = 0
        for scope, token in tokens.items():
            for method, route in routes:
                path = route.replace("{id}", str(bobs)).replace("{index}", "3")
                status = self.ask(token, method, path, body={} if method == "POST" else None).status \
                    if route not in ("/v1/events", "/v1/jobs/{id}/wait") else \
                    self.ask(token, method, path + "?timeout=1s").status
                count += 1
                with self.subTest(scope=scope, route=method + " " + route):
                    if scope == "read" and method == "POST" or (method, route) in on_the_socket:
                        self.assertEqual(status, 403)
                    elif scope == "jobs" and route in operators:
                        self.assertEqual(status, 403)
                    elif scope == "jobs" and "{id}" in route and method == "POST":
                        # bob's job, which is no array: attach and exec ask for an upgrade first, update for a body.
                        self.assertIn(status, (400, 403, 404))
                    else:
                        self.assertNotIn(status, (401, 403) if scope != "operate" else (401,), (method, route))
                        self.assertLess(status, 505)
        print(f"{count} requests: {len(routes)} routes with {len(tokens)} scopes")
        self.assertEqual(self.server.job(bobs, "root")["state"] in scenario.FINAL, True, "the operator's cancel held")

    # --- strangers ----------------------------------------------------------------------------------------------
    def test_only_tls_13_is_spoken(self):
        with socket.create_connection(("127.0.0.1", PORT), timeout=20) as plain:
            plain.sendall(b"GET /v1/jobs HTTP/1.1\r\nHost: localhost\r\n\r\n")
            self.assertNotIn(b"HTTP/1.1 2", plain.recv(4096) or b"")
        with self.assertRaises(ssl.SSLError), contextlib.closing(
                self.connection(maximum_version=ssl.TLSVersion.TLSv1_2)) as old:
            old.request("GET", "/v1/jobs")
        with contextlib.closing(self.connection()) as new:
            new.connect()
            self.assertEqual(new.sock.version(), "TLSv1.3")
        reply = self.ask(self.token(), headers={"Origin": "https://evil.example"})
        self.assertEqual(reply.status, 403)

    def test_who_never_finishes_a_handshake_is_ended(self):
        with socket.create_connection(("127.0.0.1", PORT), timeout=30) as slow:
            begun = time.monotonic()
            hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(40)
            with contextlib.suppress(OSError):
                for byte in hello:  # a byte now and then: never silent, never done
                    slow.sendall(bytes([byte]))
                    time.sleep(0.4)
                    if time.monotonic() - begun > 25:
                        break
            slow.settimeout(5)
            with contextlib.suppress(ConnectionError):
                self.assertEqual(slow.recv(1), b"", "ended by the server")
            self.assertLess(time.monotonic() - begun, 25)

    def test_ten_thousand_connections_are_bounded(self):
        """One address gets its share; the socket on the machine is not touched by it."""
        token = self.token()
        opened = held = 0
        kept = []
        with contextlib.ExitStack() as stack:
            for number in range(10_000):
                if number % 500 == 250:
                    held = max(held, self.connections_of_daemon())
                client = socket.socket()
                client.settimeout(5)
                try:
                    client.connect(("127.0.0.1", PORT))
                except OSError:
                    client.close()
                    continue
                opened += 1
                if len(kept) < 200:
                    kept.append(stack.enter_context(client))
                else:
                    client.close()
            self.assertLessEqual(held, 64, "connections of one address")
            self.assertGreater(held, 0, "some were held")
            self.assertEqual(scenario.request("alice", "GET", "/v1/status").status, 200)
        print(f"{opened} of 10,000 connections were tried, at most {held} held at a time")
        wait_until(lambda: self.comes_in(token), 30, "the port is free again")

    def comes_in(self, token):
        with contextlib.suppress(OSError, http.client.HTTPException):
            return self.ask(token).status == 200
        return False

    def connections_of_daemon(self):
        inodes = set()
        for name in os.listdir(f"/proc/{self.server.daemon_pid()}/fd"):
            with contextlib.suppress(OSError):
                link = os.readlink(f"/proc/{self.server.daemon_pid()}/fd/{name}")
                if link.startswith("socket:["):
                    inodes.add(link[8:-1])
        with open("/proc/net/tcp", encoding="ascii") as file:
            rows = [line.split() for line in file.readlines()[1:]]
        return sum(1 for row in rows if row[9] in inodes and row[3] == "01" and row[1].endswith(f":{PORT:04X}"))


def prepare():
    os.makedirs(TLS)
    make_authority("ca")
    make_authority("other")
    make_certificate("ca", "server", "DNS:localhost")
    for name in os.listdir(TLS):
        os.chmod(f"{TLS}/{name}", 0o644)
    os.chmod(f"{TLS}/server.key", 0o640)
    with contextlib.suppress(KeyError):
        os.chown(f"{TLS}/server.key", pwd.getpwnam("tranche").pw_uid, -1)


if __name__ == "__main__":
    prepare()
    scenario.main(board="h100-80:4", drop_in="[daemon]\noperator_users = [\"carol\"]\n", policy=
                  f'[api]\nlisten = "127.0.0.1:{PORT}"\ncertificate = "{TLS}/server.pem"\nkey = "{TLS}/server.key"\n')
