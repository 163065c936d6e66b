"""The systemd units under a real systemd: they start, restart, reload and are upgraded while jobs run, and jobs never
notice. Run as root; TRANCHE_BUILD names the build whose programs are installed.

systemd is the machine's own, booted in namespaces (tests/systemd/boot) on pure cgroup2. The memory, cpu and pids
controllers stay where the machine has them, so limits are not looked at here; the cgroups themselves, the device filter
and kill are.
"""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

SOURCE = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("TRANCHE_BUILD", SOURCE / "build" / "ci")).resolve()
SYSTEMD = "/lib/systemd/systemd"
SUBTREE = "system.slice/tranche-jobs.service"
UNITS = ("tranche-jobs", "tranche-arbiter", "tranche-launcher", "tranched")
ENDED = ("completed", "failed", "cancelled", "unknown", "node_failed", "timed_out", "out_of_memory")


def wait_until(condition, seconds, what):
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"{what} did not happen within {seconds} s")
        time.sleep(0.05)


def children_of(pid):
    try:
        return [int(word) for word in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


class Machine:
    """systemd in its namespaces, and commands in there."""

    def __init__(self):
        # Not below /tmp or /run: those are others' in there.
        self.folder = tempfile.mkdtemp(prefix="tranche-boot-", dir="/var/tmp")
        self.log = open(self.folder + ".log", "w+", encoding="utf-8")
        self.boot = subprocess.Popen([str(SOURCE / "tests/systemd/boot"), self.folder, str(BUILD), str(SOURCE)],
                                     stdout=self.log, stderr=subprocess.STDOUT)
        try:
            self.systemd = wait_until(self._find_systemd, 20, "systemd")
            wait_until(lambda: self.call("systemctl", "is-active", "dbus").returncode == 0, 30, "D-Bus")
        except AssertionError:
            self.end()
            raise

    def _find_systemd(self):
        if self.boot.poll() is not None:
            if self.boot.returncode == 77:
                raise unittest.SkipTest(self.console())
            raise AssertionError("systemd did not boot:\n" + self.console())
        for unshare in children_of(self.boot.pid):
            for child in children_of(unshare):
                try:
                    if os.readlink(f"/proc/{child}/exe").endswith("/systemd"):
                        self.unshare = unshare
                        return child
                except OSError:
                    pass
        return None

    def console(self):
        self.log.seek(0)
        return self.log.read()

    def end(self):
        if hasattr(self, "unshare"):
            os.kill(self.unshare, signal.SIGKILL)
        try:
            self.boot.wait(20)
        except subprocess.TimeoutExpired:
            self.boot.kill()
        self.log.close()
        os.unlink(self.folder + ".log")
        shutil.rmtree(self.folder, ignore_errors=True)

    def call(self, *command, user=None):
        """Runs it in there and returns what became of it."""
        words = ["nsenter", "--target", str(self.systemd), "--all", "--root", "--wd"]
        if user:
            words += ["setpriv", "--reuid", user, "--regid", user, "--init-groups", "env", "-C", f"/home/{user}",
                      f"HOME=/home/{user}"]
        return subprocess.run([*words, *command], capture_output=True, text=True, timeout=120, check=False,
                              env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"})

    def run(self, *command, user=None, code=0):
        done = self.call(*command, user=user)
        if done.returncode != code:
            raise AssertionError(f"{' '.join(command)}: exit {done.returncode}\n{done.stdout}{done.stderr}\n{self.console()}")
        return done.stdout

    def main_pid(self, unit):
        return int(self.run("systemctl", "show", "--property=MainPID", "--value", unit))


class Units(unittest.TestCase):
    BIN = "/opt/tranche/bin"

    @classmethod
    def setUpClass(cls):
        cls.machine = Machine()
        try:
            cls.install_everything()
        except BaseException:
            cls.machine.end()
            raise

    @classmethod
    def install_everything(cls):
        machine = cls.machine
        machine.run("useradd", "--create-home", "alice")
        driver = machine.run(cls.BIN + "/tranche-emulator", "start", "--board", "h100-80:4").strip()
        machine.run("sh", "-c", f"mkdir -p /etc/tranche && printf 'TRANCHE_DRIVER=\"--driver-library-dir {driver}\"\\n' "
                    f">/etc/default/tranche && printf '[driver]\\nlibrary_dir = \"{driver}\"\\n' >/etc/tranche/tranche.toml")
        cls.install(cls.BIN)

    @classmethod
    def install(cls, programs):
        cls.machine.run("/opt/source/packaging/systemd/install", "--bin", programs, "--guard-dir", "/opt/tranche/lib/guard")

    @classmethod
    def tearDownClass(cls):
        cls.machine.call(cls.BIN + "/tranche-emulator", "stop")
        cls.machine.end()

    # --- as alice -------------------------------------------------------------------------------------------------
    def tranche(self, *arguments, code=0):
        return self.machine.run(self.BIN + "/tranche", *arguments, user="alice", code=code)

    def submit(self, *command, flags=("-G", "1")):
        return int(self.tranche("submit", "--parsable", "-c", "0.1", "-o", "/dev/null", *flags, "--", *command))

    def job(self, job):
        return json.loads(self.tranche("show", str(job), "--json"))

    def wait_state(self, job, *states):
        return wait_until(lambda: (lambda now: now if now["state"] in states else None)(self.job(job)), 30,
                          f"job {job} in state {' or '.join(states)}")

    def start_one(self):
        """A running job that ends with 7 once /home/alice/NAME exists, and its process."""
        name = f"end-{time.monotonic_ns()}"
        job = self.submit("sh", "-c", f"while [ ! -e {name} ]; do sleep 0.1; done; exit 7")
        return job, self.wait_state(job, "running")["tasks"][0]["pid"], name

    def assert_untouched(self, job, pid, name):
        """It runs as the same process and ends with its own exit code."""
        now = self.job(job)
        self.assertEqual((now["state"], now["attempt"], now["tasks"][0]["pid"]), ("running", 1, pid))
        self.machine.run("touch", f"/home/alice/{name}")
        end = self.wait_state(job, *ENDED)
        self.assertEqual((end["state"], end.get("exit_code")), ("failed", 7))

    def assert_jobs_run(self):
        job = self.submit("sh", "-c", "exit 3")
        self.assertEqual(self.wait_state(job, *ENDED).get("exit_code"), 3)

    def assert_active(self):
        for unit in UNITS:
            self.assertEqual(self.machine.run("systemctl", "is-active", unit).strip(), "active", unit)

    # --- what is shown --------------------------------------------------------------------------------------------
    def test_all_start_and_a_job_lies_in_the_holders_subtree(self):
        self.assert_active()
        job, pid, name = self.start_one()
        cgroup = self.machine.run("cat", f"/proc/{pid}/cgroup")
        uid = self.machine.run("id", "-u", "alice").strip()
        self.assertIn(f"0::/{SUBTREE}/u{uid}/j{job}/t0.1", cgroup)
        for unit in ("tranche-launcher", "tranched"):
            self.assertNotIn(str(pid), self.machine.run("cat", f"/sys/fs/cgroup/system.slice/{unit}.service/cgroup.procs").split())
        self.assert_untouched(job, pid, name)

    def test_every_service_restarts_under_a_running_job(self):
        for unit in ("tranched", "tranche-launcher", "tranche-arbiter"):
            with self.subTest(unit=unit):
                job, pid, name = self.start_one()
                before = self.machine.main_pid(unit)
                self.machine.run("systemctl", "restart", unit)
                self.assertNotEqual(self.machine.main_pid(unit), before)
                wait_until(lambda: self.machine.call(self.BIN + "/tranche", "ls", user="alice").returncode == 0, 20,
                           "the daemon's answer")
                self.assert_jobs_run()
                self.assert_untouched(job, pid, name)

    def test_what_is_killed_comes_back(self):
        for unit in ("tranched", "tranche-launcher", "tranche-arbiter"):
            with self.subTest(unit=unit):
                job, pid, name = self.start_one()
                before = self.machine.main_pid(unit)
                self.machine.run("kill", "-KILL", str(before))
                wait_until(lambda: self.machine.main_pid(unit) not in (0, before), 20, f"another {unit}")
                wait_until(lambda: self.machine.call("systemctl", "is-active", unit).returncode == 0, 20, f"{unit}'s word")
                self.assert_jobs_run()
                self.assert_untouched(job, pid, name)

    def test_an_upgrade_changes_all_programs_but_the_holder(self):
        job, pid, name = self.start_one()
        holder = self.machine.main_pid("tranche-jobs")
        self.machine.run("sh", "-c", "mkdir -p /opt/newer && cp -a /opt/tranche/bin /opt/newer/bin")
        try:
            self.install("/opt/newer/bin")
            for unit in ("tranched", "tranche-launcher", "tranche-arbiter"):
                self.assertTrue(self.machine.run("readlink", f"/proc/{self.machine.main_pid(unit)}/exe").startswith("/opt/newer/"))
            self.assertEqual(self.machine.main_pid("tranche-jobs"), holder)
            self.assert_active()
            self.assert_jobs_run()
            self.assert_untouched(job, pid, name)
        finally:
            self.install(self.BIN)

    def test_reloads_drop_nothing_and_the_device_filter_stays(self):
        job, pid, name = self.start_one()
        daemon = self.machine.main_pid("tranched")
        self.machine.run("systemctl", "daemon-reload")
        index = self.job(job)["gpus"][0]
        other = (index + 1) % 4
        probe = f"head -c 0 /dev/nvidia{index} || exit 9; head -c 0 /dev/nvidia{other} && exit 8; exit 0"
        self.tranche("exec", str(job), "--", "sh", "-c", probe)
        self.machine.run("sh", "-c", "printf '[queue.physics]\\nquota = 1\\n' >>/etc/tranche/tranche.toml")
        self.machine.run("systemctl", "reload", "tranched")
        wait_until(lambda: "physics" in self.tranche("queue"), 20, "the new queue")
        self.assertEqual(self.machine.main_pid("tranched"), daemon)
        self.assert_untouched(job, pid, name)

    def test_the_services_have_no_capability_and_jobs_inherit_no_hardening(self):
        for unit in ("tranched", "tranche-arbiter"):
            status = self.machine.run("cat", f"/proc/{self.machine.main_pid(unit)}/status")
            for kind in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
                self.assertRegex(status, rf"{kind}:\t0{{16}}\n", unit)
            self.assertIn("NoNewPrivs:\t1\n", status, unit)
        job, pid, name = self.start_one()
        status = self.machine.run("cat", f"/proc/{pid}/status")
        self.assertIn("NoNewPrivs:\t0\n", status)
        self.assertRegex(status, r"CapEff:\t0{16}\n")
        self.assertEqual(self.machine.run("cat", f"/proc/{pid}/oom_score_adj").strip(), "0")
        self.assert_untouched(job, pid, name)

    def test_stopping_the_holder_ends_every_job_and_leaves_no_cgroup(self):
        job, pid, _ = self.start_one()
        try:
            self.machine.run("systemctl", "stop", "tranche-jobs")
            wait_until(lambda: self.machine.call("test", "-e", f"/proc/{pid}").returncode != 0, 20, "the job's end")
            left = self.machine.run("sh", "-c", f"find /sys/fs/cgroup/{SUBTREE} -name 't*.*' 2>/dev/null || :")
            self.assertEqual(left, "")
        finally:
            self.machine.run("systemctl", "start", *UNITS)
        self.assertIn(self.wait_state(job, *ENDED)["state"], ("failed", "cancelled", "unknown", "node_failed"))
        self.assert_jobs_run()


def main():
    if os.geteuid() != 0:
        print("units_test: run as root", file=sys.stderr)
        return 77
    missing = [path for path in (SYSTEMD, "/usr/bin/systemctl", "/usr/bin/dbus-daemon", "/usr/bin/nsenter")
               if not os.path.exists(path)]
    if missing:
        print(f"units_test: skipped, {', '.join(missing)} is missing: install systemd and dbus", file=sys.stderr)
        return 77
    outcome = unittest.main(argv=sys.argv, exit=False).result
    if outcome.skipped and outcome.testsRun == 0:
        print(f"units_test: skipped, {outcome.skipped[0][1]}", file=sys.stderr)
        return 77
    return 0 if outcome.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
