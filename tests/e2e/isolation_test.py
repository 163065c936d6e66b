"""A job reaches nothing but what is its own: tried by real users from inside real jobs."""

import errno
import json
import os
import signal
import socket
import stat
import subprocess

import scenario
from scenario import SHARED, acting_as, connect, request, wait_until

SECRET_NAME = "quarterly-figures"
SECRET_WORD = "the-word-that-nobody-may-read"
SECRET_VARIABLE = "SECRET_OF_BOB"

BOB_PROGRAM = """
import os, sys, time
print("log of bob:", os.environ["SECRET_OF_BOB"], flush=True)
with open("/dev/shm/of-bob", "w") as file:
    file.write("shared memory of bob")
open(sys.argv[2], "w").close()
time.sleep(600)
"""

# Prints, for every node that is named, "open" or the errno's name.
OPEN_NODES = """
import errno, json, os, sys
def attempt(path):
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CLOEXEC))
        return "open"
    except OSError as error:
        return errno.errorcode[error.errno]
"""

EXAMINE_PROCESSES = """
import ctypes, errno, json, os, signal, sys
me = os.getuid()
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
reached = []
foreign = []
def attempt(what, pid, action):
    try:
        action()
        reached.append(f"{what} of {pid}")
    except OSError:
        pass
def attach(pid):
    if libc.ptrace(16, pid, None, None) != 0:  # PTRACE_ATTACH
        raise OSError(ctypes.get_errno(), "ptrace")
def read(path):
    with open(path, "rb") as file:
        file.read(1)
for entry in {*filter(str.isdigit, os.listdir("/proc")), *sys.argv[1:]}:
    pid = int(entry)
    try:
        if os.stat(f"/proc/{pid}").st_uid == me:
            continue
    except FileNotFoundError:
        pass
    foreign.append(pid)
    attempt("signal", pid, lambda: os.kill(pid, 0))
    attempt("environment", pid, lambda: read(f"/proc/{pid}/environ"))
    attempt("memory", pid, lambda: os.close(os.open(f"/proc/{pid}/mem", os.O_RDONLY)))
    attempt("root folder", pid, lambda: os.listdir(f"/proc/{pid}/root"))
    attempt("descriptors", pid, lambda: os.listdir(f"/proc/{pid}/fd"))
    attempt("ptrace", pid, lambda: attach(pid))
print(json.dumps({"reached": reached, "foreign": foreign}))
"""


class Isolation(scenario.Scenario):
    """bob's job runs all the time and holds a GPU; alice tries to get at it, from her jobs and from her shell."""

    @classmethod
    def setUpClass(cls):
        server = scenario._SERVER[0]
        cls.bob_log = SHARED + "/bob.log"
        cls.folder = "/run/lab/home/bob/unpublished"
        with acting_as("bob"):
            os.mkdir(cls.folder)
        ready = SHARED + "/bob-is-ready"
        out, _ = server.tranche("bob", "submit", "--parsable", "-G", "1", "-c", "0.1", "-J", SECRET_NAME,
                                "-o", cls.bob_log, "-D", cls.folder, "--", "python3", "-c", BOB_PROGRAM, SECRET_WORD,
                                ready, env={SECRET_VARIABLE: SECRET_WORD})
        cls.bob_job = int(out)
        wait_until(lambda: os.path.exists(ready), 20, "the start of bob's job")
        detail = server.job(cls.bob_job, "bob")
        cls.bob_pid = detail["tasks"][0]["pid"]
        cls.bob_gpu = detail["gpus"][0]

    @classmethod
    def tearDownClass(cls):
        server = scenario._SERVER[0]
        server.tranche("bob", "cancel", str(cls.bob_job))
        server.wait(cls.bob_job, user="bob")

    def assert_bob_runs(self):
        self.assertEqual(self.server.job(self.bob_job, "bob")["state"], "running")
        os.kill(self.bob_pid, 0)

    # --- device nodes -----------------------------------------------------------------------------
    def test_device_nodes(self):
        # Nodes with the same numbers that lie elsewhere: only root can make them, and has done so here.
        for index in range(4):
            numbers = os.stat(f"/dev/nvidia{index}").st_rdev
            kind = stat.S_IFMT(os.stat(f"/dev/nvidia{index}").st_mode)
            os.mknod(f"{SHARED}/copy{index}", kind | 0o666, numbers)
            os.chmod(f"{SHARED}/copy{index}", 0o666)
        with acting_as("alice"):
            os.close(os.open(f"{SHARED}/copy{self.bob_gpu}", os.O_RDWR))  # the control: outside of jobs it opens

        program = OPEN_NODES + """
import stat, subprocess
answer = {"held": os.environ["TRANCHE_JOB_GPUS"], "path": {}, "copy": {}, "proc": {}, "mknod": {}, "namespace": {}}
for index in range(4):
    node = f"/dev/nvidia{index}"
    answer["path"][index] = attempt(node)
    answer["copy"][index] = attempt(f"%s/copy{index}")
    answer["proc"][index] = [attempt(f"/proc/self/root{node}"), attempt(f"/proc/1/root{node}"),
                             attempt(f"/proc/{sys.argv[1]}/root{node}"), attempt(f"/proc/thread-self/root{node}")]
    try:
        status = os.stat(node)
        os.mknod(f"made{index}", stat.S_IFMT(status.st_mode) | 0o666, status.st_rdev)
        answer["mknod"][index] = attempt(f"made{index}")
    except OSError as error:
        answer["mknod"][index] = errno.errorcode[error.errno]
    probe = "import os; os.close(os.open('%%s', os.O_RDWR))" %% node
    done = subprocess.run(["unshare", "--user", "--map-root-user", "--mount", sys.executable, "-c", probe],
                          capture_output=True)
    answer["namespace"][index] = "open" if done.returncode == 0 else "refused"
print(json.dumps(answer))
""" % SHARED
        answer = self.python_json("alice", ["-G", "1"], program, str(self.bob_pid))
        held = answer["held"]
        self.assertEqual(answer["path"][held], "open", "the job opens its own GPU")
        for index in "0123":
            if index == held:
                continue
            self.assertIn(answer["path"][index], ("EPERM", "EACCES", "ENOENT"), answer)
            self.assertIn(answer["copy"][index], ("EPERM", "EACCES"), answer)
            self.assertNotIn("open", answer["proc"][index], answer)
            self.assertIn(answer["mknod"][index], ("EPERM", "EACCES"), answer)
            self.assertEqual(answer["namespace"][index], "refused", answer)

    def test_a_job_without_gpu_opens_none(self):
        program = OPEN_NODES + """
names = sorted(name for name in os.listdir("/dev") if name.startswith("nvidia"))
print(json.dumps({name: attempt("/dev/" + name) for name in names}))
"""
        for flags in ([], ["-G", "0"]):
            answer = self.python_json("alice", flags, program)
            self.assertNotIn("open", answer.values(), (flags, answer))

    def test_a_job_cannot_leave_its_cgroup(self):
        program = OPEN_NODES + """
moved = []
for base, folders, files in os.walk("/sys/fs/cgroup"):
    if base.count("/") > 6:
        folders.clear()
    if "cgroup.procs" not in files:
        continue
    try:
        with open(base + "/cgroup.procs", "w") as file:
            file.write(str(os.getpid()))
        moved.append(base)
    except OSError:
        pass
print(json.dumps({"moved": moved, "other": attempt("/dev/nvidia" + sys.argv[1])}))
"""
        answer = self.python_json("alice", ["-G", "1"], program, str(self.bob_gpu))
        self.assertEqual(answer["moved"], [])
        self.assertNotEqual(answer["other"], "open")

    def test_emulated_nodes_refuse_loop_controls(self):
        program = """
import errno, fcntl, json, os
node = os.open("/dev/nvidia" + os.environ["TRANCHE_JOB_GPUS"], os.O_RDWR)
answers = {}
for control in (0x4C00, 0x4C01, 0x4C02, 0x4C03, 0x4C04, 0x4C05, 0x4C06, 0x4C0A, 0x4C80, 0x4C81, 0x4C82):
    try:
        fcntl.ioctl(node, control, node)
        answers[hex(control)] = "done"
    except OSError as error:
        answers[hex(control)] = errno.errorcode[error.errno]
print(json.dumps(answers))
"""
        answers = self.python_json("alice", ["-G", "1"], program)
        self.assertEqual(set(answers.values()), {"EPERM"}, answers)

    # --- other users' processes, logs and jobs ----------------------------------------------------
    def test_processes_of_others(self):
        for flags in (["-G", "1"], []):
            answer = self.python_json("alice", flags, EXAMINE_PROCESSES, str(self.bob_pid))
            self.assertIn(self.bob_pid, answer["foreign"])
            self.assertEqual(answer["reached"], [])
        self.assert_bob_runs()
        kill = subprocess.run(["python3", "-c", "import os, sys; os.kill(int(sys.argv[1]), 9)", str(self.bob_pid)],
                              user=2001, group=2001, extra_groups=[], capture_output=True, check=False)
        self.assertNotEqual(kill.returncode, 0)
        self.assert_bob_runs()

    def test_log_of_another(self):
        status = os.stat(self.bob_log)
        self.assertEqual(stat.S_IMODE(status.st_mode), 0o600, "a log is its owner's alone")
        self.assertEqual(status.st_uid, 2002)
        self.assertIn(SECRET_WORD, self.server.tranche("bob", "logs", str(self.bob_job))[0])
        out, _ = self.server.tranche("alice", "logs", str(self.bob_job), code=3)
        self.assertEqual(out, "")
        answer = self.python_json("alice", [], OPEN_NODES + "print(json.dumps(attempt(sys.argv[1])))", self.bob_log)
        self.assertIn(answer, ("EACCES", "EPERM", "ENOENT"))

    def test_what_others_are_told_of_a_job(self):
        job = str(self.bob_job)
        secrets = (SECRET_NAME, SECRET_WORD, SECRET_VARIABLE, self.folder, self.bob_log, "time.sleep")
        self.assertIn(SECRET_NAME, self.server.tranche("bob", "ls")[0], "the control: bob sees his job's name")
        told = {}
        for arguments in (["ls"], ["ls", "--json"], ["ls", "--all", "--json"], ["show", job], ["show", job, "--json"],
                          ["gpus"], ["gpus", "--json"], ["who"], ["who", "--json"], ["history"],
                          ["history", "--json"], ["queue", "--json"], ["share", "--json"], ["events"],
                          ["events", "--json"], ["doctor", "--json"]):
            told[" ".join(arguments)] = self.server.tranche("alice", *arguments)[0]
        for path in ("/v1/jobs?all=true", f"/v1/jobs/{job}", f"/v1/jobs/{job}/why", "/v1/events", "/v1/history",
                     "/v1/who", "/v1/gpus", "/v1/queues", "/v1/status"):
            reply = request("alice", "GET", path)
            self.assertEqual(reply.status, 200, (path, reply))
            told[path] = reply.text
        for source, text in told.items():
            for secret in secrets:
                self.assertNotIn(secret, text, f"{source} tells alice of bob's job: {secret}")
        detail = json.loads(told[f"/v1/jobs/{job}"])
        self.assertEqual((detail["user"], detail["gpus"]), ("bob", [self.bob_gpu]), "user and GPUs are everybody's")
        self.assertIsNone(detail["tasks"][0].get("pid"), "the process is its owner's affair")

    def test_control_of_another_job(self):
        job = str(self.bob_job)
        for verb in ("cancel", "hold", "release"):
            self.refused("alice", [verb, job], 3, "bob")
            reply = request("alice", "POST", f"/v1/jobs/{job}/{verb}")
            self.assertEqual((reply.status, reply.json["type"]), (403, "denied"), reply)
        reply = request("alice", "POST", f"/v1/jobs/{job}/attach",
                        headers={"Connection": "Upgrade", "Upgrade": "tranche-attach"})
        self.assertEqual(reply.status, 403, reply)
        for path in ("/v1/gpus/0/drain", "/v1/gpus/0/undrain", "/v1/reload"):
            self.assertEqual(request("alice", "POST", path).status, 403, path)
        self.assert_bob_runs()
        with open("/run/tranche-up/tranched.log", encoding="utf-8") as file:
            denied = [line for line in file if "denied" in line and "user=alice" in line and f"job={job}" in line]
        for verb in ("cancel", "hold", "release"):
            self.assertTrue(any(f"verb={verb}" in line for line in denied), f"{verb} is in the daemon's log: {denied}")

    # --- what a job sees of the machine -----------------------------------------------------------
    def test_cuda_and_nvml_see_the_own_gpu_only(self):
        program = """
import ctypes, json, os
os.environ.pop("CUDA_VISIBLE_DEVICES", None)
os.environ.pop("NVIDIA_VISIBLE_DEVICES", None)
ctypes.CDLL(None).unsetenv(b"CUDA_VISIBLE_DEVICES")
cuda = ctypes.CDLL("libcuda.so.1")
nvml = ctypes.CDLL("libnvidia-ml.so.1")
answer = {"init": cuda.cuInit(0)}
count = ctypes.c_int(-1)
answer["count_result"] = cuda.cuDeviceGetCount(ctypes.byref(count))
answer["count"] = count.value
device = ctypes.c_int(-1)
answer["get"] = cuda.cuDeviceGet(ctypes.byref(device), 0)
answer["get_second"] = cuda.cuDeviceGet(ctypes.byref(ctypes.c_int()), 1)
raw = (ctypes.c_ubyte * 16)()
cuda.cuDeviceGetUuid(raw, device)
text = bytes(raw).hex()
answer["uuid"] = "GPU-" + "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))
answer["nvml"] = nvml.nvmlInit_v2()
number = ctypes.c_uint(99)
nvml.nvmlDeviceGetCount_v2(ctypes.byref(number))
answer["nvml_count"] = number.value
handle = ctypes.c_void_p()
nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(handle))
name = ctypes.create_string_buffer(96)
nvml.nvmlDeviceGetUUID(handle, name, 96)
answer["nvml_uuid"] = name.value.decode()
print(json.dumps(answer))
"""
        done, text = self.python("alice", ["-G", "1"], program)
        self.assertEqual(done["state"], "completed", text)
        answer = json.loads(text.splitlines()[-1])
        own = done["tasks"][0]["gpus"][0]
        self.assertEqual((answer["init"], answer["count_result"], answer["get"]), (0, 0, 0), answer)
        self.assertEqual(answer["count"], 1, answer)
        self.assertNotEqual(answer["get_second"], 0, answer)
        self.assertEqual(answer["uuid"], own, "device 0 is the job's GPU")
        self.assertEqual((answer["nvml"], answer["nvml_count"], answer["nvml_uuid"]), (0, 1, own), answer)

    def test_identity(self):
        program = """
import json, os, subprocess
status = dict(line.rstrip().split(":\\t", 1) for line in open("/proc/self/status") if ":\\t" in line)
answer = {"uids": os.getresuid(), "gids": os.getresgid(), "groups": sorted(os.getgroups()), "regained": []}
answer["capabilities"] = {name: status[name] for name in ("CapInh", "CapPrm", "CapEff", "CapAmb")}
for name, call in (("setuid", lambda: os.setuid(0)), ("setresuid", lambda: os.setresuid(0, 0, 0)),
                   ("setgid", lambda: os.setgid(0)), ("setgroups", lambda: os.setgroups([0])),
                   ("seteuid", lambda: os.seteuid(0)), ("chroot", lambda: os.chroot("/tmp"))):
    try:
        call()
        answer["regained"].append(name)
    except OSError:
        pass
answer["descriptors"] = sorted(os.readlink(f"/proc/self/fd/{n}") for n in os.listdir("/proc/self/fd")
                               if n not in "012" and os.path.exists(f"/proc/self/fd/{n}"))
print(json.dumps(answer))
"""
        for flags in ([], ["-G", "1"]):
            answer = self.python_json("alice", flags, program)
            self.assertEqual(answer["uids"], [2001] * 3)
            self.assertEqual(answer["gids"], [2001] * 3)
            self.assertEqual(answer["groups"], [2001, 2100])
            self.assertEqual(set(answer["capabilities"].values()), {"0" * 16}, answer)
            self.assertEqual(answer["regained"], [])
            self.assertEqual([name for name in answer["descriptors"] if not name.startswith("/proc")], [],
                             "no descriptor of the launcher is inherited")

    def test_environment_is_clean(self):
        dirty = {"LD_PRELOAD": "libm.so.6", "LD_AUDIT": "", "SLURM_JOB_ID": "77", "SLURM_MADE_UP": "yes",
                 "CUDA_VISIBLE_DEVICES": "0,1,2,3", "NVIDIA_VISIBLE_DEVICES": "all", "TRANCHE_JOB_ID": "999",
                 "TRANCHE_MADE_UP": "yes", "CUDA_MPS_PIPE_DIRECTORY": "/tmp/mps", "MY_OWN": "kept", "USER": "root",
                 "HOME": "/root", "LD_LIBRARY_PATH": "/opt/conda/lib"}
        program = "import json, os; print(json.dumps(dict(os.environ)))"
        out, _ = self.server.tranche("alice", "submit", "--parsable", "-G", "1", "-o", "/run/lab/home/alice/env.out",
                                     "--", "python3", "-c", program, env=dirty)
        done = self.server.wait(int(out))[0]
        seen = json.loads(self.log(done).splitlines()[-1])
        for name in ("LD_PRELOAD", "LD_AUDIT", "SLURM_MADE_UP", "TRANCHE_MADE_UP", "CUDA_MPS_PIPE_DIRECTORY"):
            self.assertNotIn(name, seen)
        self.assertEqual(seen["TRANCHE_JOB_ID"], out.strip())
        self.assertEqual(seen["SLURM_JOB_ID"], out.strip(), "Slurm's name of the same fact, not the caller's")
        self.assertEqual(seen["CUDA_VISIBLE_DEVICES"], done["tasks"][0]["gpus"][0])
        self.assertNotEqual(seen["NVIDIA_VISIBLE_DEVICES"], "all")
        self.assertEqual((seen["USER"], seen["HOME"]), ("alice", "/run/lab/home/alice"))
        self.assertEqual((seen["MY_OWN"], seen["LD_LIBRARY_PATH"]), ("kept", "/opt/conda/lib"), "the rest is kept")

    def test_shared_memory_is_private(self):
        first = SHARED + "/first-has-written"
        holder = self.submit("alice", [], ["sh", "-c", f"echo mine >/dev/shm/mine && touch {first} && sleep 600"])
        wait_until(lambda: os.path.exists(first), 20, "the first job's shared memory")
        seen = self.python_json("alice", [], "import json, os; print(json.dumps(os.listdir('/dev/shm')))")
        self.assertEqual(seen, [], "neither another job's nor the host's")
        self.assertEqual(os.listdir("/dev/shm"), [], "the host sees nothing of it")
        self.server.tranche("alice", "cancel", str(holder))
        self.server.wait(holder)

    # --- the end of a job -------------------------------------------------------------------------
    def test_descendants_end_with_the_job(self):
        program = """
import os, sys, time
for _ in range(3):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.setsid()
            os.chdir("/")
            os.execvp("sleep", ["sleep", "86401"])
        os._exit(0)
    os.wait()
while True:
    sleepers = 0
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            sleepers += open(f"/proc/{entry}/cmdline").read() == "sleep\\x0086401\\x00"
        except OSError:
            pass
    if sleepers == 3:
        break
    time.sleep(0.01)
print("three of them live")
"""
        done, text = self.python("alice", [], program)
        self.assertEqual((done["state"], text), ("completed", "three of them live\n"))

        def sleepers():
            found = subprocess.run(["pgrep", "-f", "^sleep 86401$"], capture_output=True, text=True, check=False)
            return found.stdout.split()

        wait_until(lambda: not sleepers(), 10, "the end of detached children")

    # --- the daemon's and the launcher's doors ----------------------------------------------------
    def test_sockets_of_the_launcher(self):
        program = OPEN_NODES + """
import socket
answers = {}
for path in ("/run/tranche/launcher.sock", "/run/tranche/shepherd.sock"):
    for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET, socket.SOCK_DGRAM):
        client = socket.socket(socket.AF_UNIX, kind)
        try:
            client.connect(path)
            answers[path] = "connected"
        except OSError as error:
            answers.setdefault(path, errno.errorcode[error.errno])
print(json.dumps(answers))
"""
        answers = self.python_json("alice", [], program)
        self.assertNotIn("connected", answers.values(), answers)
        for path in ("/run/tranche/launcher.sock", "/run/tranche/shepherd.sock"):
            self.assertTrue(os.path.exists(path))
            with self.assertRaises(OSError) as refusal, acting_as("alice"), \
                    socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
                client.connect(path)
            self.assertIn(refusal.exception.errno, (errno.EACCES, errno.EPERM), path)
        connect("alice").close()  # the control: the API's own is open to her

    def test_root_submits_nothing(self):
        self.refused("root", ["submit", "--", "true"], 3, "root", "user")
        self.refused("root", ["run", "--", "true"], 3, "root", "user")
        reply = request("root", "POST", "/v1/jobs", {"argv": ["true"], "directory": "/"})
        self.assertEqual((reply.status, reply.json["type"]), (403, "denied"))

    def test_an_operator_may_cancel(self):
        job = self.submit("alice", [], ["sleep", "600"])
        self.server.wait_state(job, "running")
        self.server.tranche("root", "cancel", str(job))
        done = self.server.wait(job)[0]
        self.assertEqual(done["state"], "cancelled")
        self.assertEqual(done.get("signal"), signal.SIGTERM, "TERM ends it: no need for KILL")


if __name__ == "__main__":
    scenario.main()
