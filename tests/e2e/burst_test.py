"""`--gpu-mem 10G..20G`: guaranteed, lent while it is free, called in when another job's guarantee needs it."""

import json
import os

import scenario
from server import wait_until
from shares_test import CUDA, MIB, NVML

GIB = 1 << 30
# Fills up to its limit, and gives back what it borrowed when it is told and a file is there.
BORROWER = CUDA + """
import signal
told = []
signal.signal(signal.SIGURG, lambda *_: told.append(1))
gpu = Gpu()
result, blocks = gpu.fill(1 << 30)
open(sys.argv[1] + ".full", "w").write(str(len(blocks)))
while not told: time.sleep(0.05)
open(sys.argv[1] + ".told", "w").close()
while not os.path.exists(sys.argv[1] + ".go"): time.sleep(0.05)
refused = gpu.allocate(1 << 30)[0]
while len(blocks) > 8: gpu.free(blocks.pop())
open(sys.argv[1] + ".done", "w").write(str(refused))
while True: time.sleep(1)
"""
OWNER = CUDA + """
gpu = Gpu()
result, blocks = 0, []
for _ in range(58):
    result, block = gpu.allocate(1 << 30)
    if result != 0: break
print(json.dumps({"result": result}))
"""


class Burst(scenario.Scenario):
    def configure(self, **keys):
        text = "".join(f"{key} = {json.dumps(value)}\n" for key, value in keys.items())
        self.server.write_config("[share]\n" + text)
        self.server.tranche("root", "config", "reload")

    def borrower(self, name):
        word = os.path.join(scenario.SHARED, name)
        job = self.submit("alice", ["--gpu-mem", "10G..72G", "--grace", "1s"], ["python3", "-c", BORROWER, word])
        wait_until(lambda: os.path.exists(word + ".full"), 30, "the borrower has filled what it may")
        wait_until(lambda: os.stat(word + ".full").st_size > 0, 10, "its count is written")
        with open(word + ".full", encoding="ascii") as file:
            self.assertGreater(int(file.read()), 65)
        return job, word

    def test_the_limit_is_the_total_and_beyond_the_guarantee_it_is_lent(self):
        seen = self.python_json("alice", ["--gpu-mem", "1G..3G"], CUDA + NVML + """
gpu = Gpu()
nvml = Nvml()
before = gpu.info()
result, blocks = gpu.fill(100 * MIB)
managed = ctypes.c_uint64()
refused = cuda.cuMemAllocManaged(ctypes.byref(managed), ctypes.c_size_t(100 * MIB), 1)
print(json.dumps({"before": before, "total": gpu.total(), "blocks": len(blocks), "result": result, "managed": refused,
                  "after": gpu.info(), "nvml": nvml.memory()}))
""")
        self.assertEqual((seen["total"], seen["before"][1], seen["nvml"][0]), (3072 * MIB,) * 3)
        self.assertGreater(seen["blocks"] * 100, 2048, "more than the guarantee")
        self.assertEqual((seen["result"], seen["managed"]), (2, 2), "managed memory counts in full: no over-subscription")
        self.assertLess(seen["after"][0], 100 * MIB)
        self.assertEqual(seen["nvml"][1], seen["after"][0])

    def test_what_a_pool_keeps_in_reserve_comes_back_when_another_process_needs_it(self):
        seen = self.python_json("alice", ["--gpu-mem", "1536M"], CUDA + '''
gpu = Gpu()
if os.fork() == 0: os.execv(sys.executable, [sys.executable, "-c", sys.argv[1], sys.argv[2]])
while not os.path.exists(sys.argv[2]): time.sleep(0.02)
first = gpu.allocate(400 * MIB)[0]
tries, result = 1, first
while result != 0 and tries < 200:
    time.sleep(0.05)
    result, tries = gpu.allocate(400 * MIB)[0], tries + 1
open(sys.argv[2] + ".done", "w").close()
os.wait()
print(json.dumps({"first": first, "result": result}))
''', CUDA + '''
gpu = Gpu()
pool, address, most = ctypes.c_void_p(), ctypes.c_uint64(), ctypes.c_uint64((1 << 64) - 1)
check(cuda.cuDeviceGetDefaultMemPool(ctypes.byref(pool), gpu.device), "pool")
check(cuda.cuMemPoolSetAttribute(pool, 4, ctypes.byref(most)), "it keeps everything")
check(cuda.cuMemAllocAsync(ctypes.byref(address), ctypes.c_size_t(300 * MIB), None), "allocate")
check(cuda.cuMemFreeAsync(address, None), "free")
check(cuda.cuStreamSynchronize(None), "synchronise")
open(sys.argv[1], "w").close()
while not os.path.exists(sys.argv[1] + ".done"):
    time.sleep(0.05)
    result, block = gpu.allocate(2 * MIB)
    if result == 0: gpu.free(block)
''', os.path.join(scenario.SHARED, "pool"))
        self.assertEqual(seen, {"first": 2, "result": 0})

    def test_a_guarantee_is_called_in_and_the_start_waits_for_it(self):
        self.configure(recall_grace="10m")
        lender, word = self.borrower("burst-a")
        owner = self.submit("alice", ["--gpu-mem", "60G"], ["python3", "-c", OWNER])
        wait_until(lambda: os.path.exists(word + ".told"), 20, "the borrower is told by a signal")
        job = self.server.wait_state(owner, "starting")
        self.assertIn(f"job {lender} of alice gives back", job["reason"])
        why, _ = self.server.tranche("alice", "why", str(owner))
        self.assertRegex(why, r"that it borrows \(that job is stopped in \w+ otherwise\)")
        shown = self.server.job(lender)
        self.assertIn("it has to give them back", shown["reason"])
        share = shown["shares"][0]
        self.assertEqual((share["guarantee_mib"], share["limit_mib"]), (10 * 1024, 72 * 1024))
        self.assertGreater(share["owed_mib"], 40 * 1024)
        text, _ = self.server.tranche("alice", "show", str(lender))
        self.assertIn("10G guaranteed", text)
        text, _ = self.server.tranche("alice", "ls")
        self.assertIn("10G..72G", text)
        open(word + ".go", "w", encoding="ascii").close()
        done = self.server.wait(owner)[0]
        self.assertEqual(json.loads(self.log(done).splitlines()[-1])["result"], 0, "never out of memory for a borrower's sake")
        with open(word + ".done", encoding="ascii") as file:
            self.assertEqual(file.read(), "2", "the borrower is denied first")
        self.assertEqual(self.server.job(lender)["state"], "running", "it gave back in time")

    def test_a_new_arbiter_opens_no_start_before_it_knows_what_is_lent(self):
        self.configure(recall_grace="10m")
        lender, word = self.borrower("burst-c")
        owner = self.submit("alice", ["--gpu-mem", "60G"], ["python3", "-c", OWNER])
        wait_until(lambda: os.path.exists(word + ".told"), 20, "the borrower is told by a signal")
        self.server.wait_state(owner, "starting")
        with open("/run/tranche-up/arbiter.pid", encoding="ascii") as file:
            os.kill(int(file.read()), 9)
        self.server.up()
        wait_until(lambda: [share["owed_mib"] for share in self.server.job(lender).get("shares", [])] not in ([], [0]), 20,
                   "the new arbiter says what is owed")
        self.assertEqual(self.server.job(owner)["state"], "starting", "its guarantee is not free")
        open(word + ".go", "w", encoding="ascii").close()
        done = self.server.wait(owner)[0]
        self.assertEqual(json.loads(self.log(done).splitlines()[-1])["result"], 0)
        self.assertEqual(self.server.job(lender)["state"], "running")

    def test_a_borrower_that_keeps_it_is_stopped_after_the_grace_and_waits_again(self):
        self.configure(recall_grace="1s")
        lender, _ = self.borrower("burst-b")
        owner = self.submit("alice", ["--gpu-mem", "60G"], ["python3", "-c", OWNER])
        done = self.server.wait(owner)[0]
        self.assertEqual(json.loads(self.log(done).splitlines()[-1])["result"], 0)
        history = [(entry["state"], entry["reason"]) for entry in self.server.job(lender)["history"]]
        self.assertEqual([state for state, reason in history if "did not give back" in reason], ["stopping", "pending"],
                         history)
        self.assertFalse([reason for _, reason in history if "was asked for" in reason], history)
        self.assertEqual(self.server.job(lender)["attempt"], 2)


if __name__ == "__main__":
    scenario.main(board="h100-80:1")
