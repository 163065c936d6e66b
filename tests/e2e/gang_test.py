"""Gangs whose tasks find each other over TCP by their environment alone, as torch.distributed and TensorFlow do."""

import json
import os
import socket

import scenario
from scenario import SHARED, wait_until

# All ranks meet at MASTER_ADDR:MASTER_PORT; rank 0 hears everybody's rank and GPUs and tells everybody the whole of it.
# Then each rank listens at its own place of TF_CONFIG and hears from every other one.
MEET = """
import json, os, socket, sys, threading, time
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
def listen(address):
    listener = socket.socket()
    listener.bind(address)
    listener.listen(size)
    listener.settimeout(30)
    return listener
def call(address):
    end = time.monotonic() + 30
    while True:
        try:
            return socket.create_connection(address, timeout=30)
        except ConnectionRefusedError:
            if time.monotonic() > end:
                raise
            time.sleep(0.02)
def say(connection, value):
    connection.sendall((json.dumps(value) + "\\n").encode())
def hear(connection):
    return json.loads(connection.makefile().readline())
me = {"rank": rank, "job": os.environ["TRANCHE_JOB_ID"], "gpus": os.environ["CUDA_VISIBLE_DEVICES"],
      "local": os.environ["LOCAL_RANK"]}
master = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
if rank == 0:
    listener = listen(master)
    peers = [listener.accept()[0] for _ in range(size - 1)]
    everybody = sorted([me, *map(hear, peers)], key=lambda one: one["rank"])
    for peer in peers:
        say(peer, everybody)
else:
    connection = call(master)
    say(connection, me)
    everybody = hear(connection)
config = json.loads(os.environ["TF_CONFIG"])
workers = [(host, int(port)) for host, port in (worker.split(":") for worker in config["cluster"]["worker"])]
listener = listen(workers[config["task"]["index"]])
for other, worker in enumerate(workers):
    if other != rank:
        say(call(worker), rank)
heard = sorted(hear(listener.accept()[0]) for _ in range(size - 1))
with open(f"{sys.argv[1]}/{me['job']}-{rank}", "w") as file:
    json.dump({"everybody": everybody, "heard": heard, "port": master[1]}, file)
"""


class Gangs(scenario.Scenario):
    folders = 0

    def folder(self):
        Gangs.folders += 1
        path = f"{SHARED}/gang-{Gangs.folders}"
        os.mkdir(path)
        os.chmod(path, 0o777)
        return path

    def meet(self, flags, folder):
        return self.submit("alice", ["-o", "/dev/null", *flags], ["python3", "-c", MEET, folder])

    def told(self, folder, job, tasks):
        done = self.server.wait(job)[0]
        self.assertEqual(done["state"], "completed", done)
        results = []
        for rank in range(tasks):
            with open(f"{folder}/{job}-{rank}", encoding="ascii") as file:
                results.append(json.load(file))
        for rank, result in enumerate(results):
            self.assertEqual([one["rank"] for one in result["everybody"]], list(range(tasks)))
            self.assertEqual({one["job"] for one in result["everybody"]}, {str(job)}, "nobody of another gang")
            self.assertEqual(result["heard"], [other for other in range(tasks) if other != rank])
            self.assertEqual(result["port"], results[0]["port"])
        return results[0]

    def test_two_gangs_at_once_meet_each_its_own(self):
        folder = self.folder()
        jobs = [self.meet(["-n", "2", "-G", "1"], folder) for _ in range(2)]
        results = [self.told(folder, job, 2) for job in jobs]
        self.assertNotEqual(results[0]["port"], results[1]["port"])
        gpus = [one["gpus"] for result in results for one in result["everybody"]]
        self.assertEqual(len(set(gpus)), 4, "a GPU for each task, and no two the same")
        self.assertEqual({one["local"] for result in results for one in result["everybody"]}, {"0"})

    def test_a_gang_of_eight_without_gpus(self):
        folder = self.folder()
        self.told(folder, self.meet(["-n", "8"], folder), 8)

    def test_a_port_in_use_gives_the_gang_others(self):
        folder = self.folder()
        # Where a gang of two would meet follows from its id: a listener sits there before it comes.
        job = self.submit("alice", ["-o", "/dev/null", "-H", "-n", "2"], ["python3", "-c", MEET, folder])
        probe = self.submit("alice", ["-n", "2", "-o", f"{folder}/%t"],
                            ["sh", "-c", "echo $MASTER_PORT"], wait=True)
        with open(f"{folder}/0", encoding="ascii") as file:
            port = int(file.read()) - 17 * (probe["job"] - job)
        with socket.create_server(("", port)):
            self.server.tranche("alice", "release", str(job))
            result = self.told(folder, job, 2)
        self.assertNotEqual(result["port"], port)
        self.assertEqual(self.server.job(job)["attempt"], 2)

    def test_one_of_them_failing_ends_them_all(self):
        folder = self.folder()
        job = self.submit("alice", ["-o", "/dev/null", "-n", "3"],
                          ["sh", "-c", f"touch {folder}/$RANK; [ $RANK = 1 ] || exec sleep 600; "
                                       f"until [ -e {folder}/0 -a -e {folder}/2 ]; do sleep 0.02; done; exit 9"])
        done = self.server.wait(job)[0]
        self.assertEqual((done["state"], done["exit_code"]), ("failed", 9), done)
        wait_until(lambda: all(os.path.exists(f"{folder}/{rank}") for rank in range(3)), 5, "all three ran")


if __name__ == "__main__":
    scenario.main(board="h100-80:4")
