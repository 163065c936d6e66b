"""Audits a recorded journal without any code of the scheduler.

Keeps a ledger of its own from the rows' events and decisions: who holds what of which GPU, from Start to
SliceReleased (or to TaskStartFailed). Reports every moment at which a GPU was promised beyond what it has, a
gang that started in part, a task started twice in one attempt, or a job without an end.
"""

from collections import defaultdict

WHOLE = 1000  # milli-GPU


class Audit:
    def __init__(self):
        self.faults = []
        self.memory = {}                      # gpu -> usable MiB
        self.held = defaultdict(dict)         # gpu -> {(job, rank, attempt): (compute, memory, kind)}
        self.specs = {}                       # job -> (spec, tasks_min)
        self.starts = defaultdict(set)        # (job, attempt) -> ranks
        self.live = defaultdict(set)          # job -> keys of its tasks that have not ended
        self.ends = {}                        # job -> state
        self.executed = defaultdict(int)      # (job, rank, attempt) -> times started
        self.exited = set()
        self.peak = defaultdict(int)          # gpu -> most compute promised at once
        self.jobs_at_once = 0

    def fault(self, seq, text):
        self.faults.append(f"row {seq}: {text}")

    @staticmethod
    def key(task):
        return task["job"], task.get("rank", 0), task.get("attempt", 1)

    def take(self, seq, kind, event, decisions):
        if kind == "gpu_added":
            gpu = event["gpu"]
            self.memory[gpu["id"]] = gpu["memory_usable_mib"]
        elif kind == "job_submitted":
            count = len(event.get("array", {}).get("indices", [])) or 1
            for job in range(event["job"], event["job"] + count):
                if job in self.specs:
                    self.fault(seq, f"job {job} was accepted twice")
                self.specs[job] = event["spec"]
        elif kind == "task_started":
            key = self.key(event["task"])
            self.executed[key] += 1
            if self.executed[key] > 1:
                self.fault(seq, f"task {key} ran twice")
        elif kind == "task_exited":
            self.exited.add(self.key(event["task"]))
            self.live[event["task"]["job"]].discard(self.key(event["task"]))
        elif kind == "task_start_failed":
            self.live[event["task"]["job"]].discard(self.key(event["task"]))
            for holders in self.held.values():
                holders.pop(self.key(event["task"]), None)
        elif kind == "slice_released":
            key = self.key(event["task"])
            if self.held[event["gpu"]].pop(key, None) is None:
                self.fault(seq, f"GPU {event['gpu']} was released by {key}, which did not hold it")
            if key not in self.exited:
                self.fault(seq, f"GPU {event['gpu']} was released before {key} had ended")

        started_now = defaultdict(set)
        for decision in decisions:
            name = decision["kind"]
            if name == "start":
                started_now[self.start(seq, decision)].add(decision["task"].get("rank", 0))
            elif name == "end":
                if decision["job"] in self.ends:
                    self.fault(seq, f"job {decision['job']} ended twice")
                self.ends[decision["job"]] = decision["state"]
        for (job, attempt), ranks in started_now.items():
            wanted = self.specs[job].get("tasks_min", 1)
            # What joins an elastic job that runs comes task by task.
            there = len(self.live[job]) if self.specs[job].get("elastic") else len(ranks)
            if there < wanted:
                self.fault(seq, f"gang of job {job} started {there} of {wanted} tasks")
        self.jobs_at_once = max(self.jobs_at_once,
                                len({key[0] for holders in self.held.values() for key in holders}))

    def start(self, seq, decision):
        key = self.key(decision["task"])
        job, rank, attempt = key
        if job not in self.specs:
            self.fault(seq, f"job {job} started without having been submitted")
        if rank in self.starts[job, attempt]:
            self.fault(seq, f"task {key} was started twice")
        self.starts[job, attempt].add(rank)
        if any(other[1] == rank for other in self.live[job]):
            self.fault(seq, f"job {job} was given task {rank} while it had one")
        self.live[job].add(key)
        if job in self.ends:
            self.fault(seq, f"job {job} started after its end")
        for piece in decision.get("slices", []):
            self.hold(seq, key, piece["gpu"], piece.get("compute_milli", 0), piece.get("memory_mib", 0),
                      piece["kind"])
        return job, attempt

    def hold(self, seq, key, gpu, compute, memory, kind):
        holders = self.held[gpu]
        if kind == "whole":
            compute, memory = WHOLE, self.memory[gpu]
        holders[key] = (compute, memory, kind)
        total_compute = sum(h[0] for h in holders.values())
        total_memory = sum(h[1] for h in holders.values())
        self.peak[gpu] = max(self.peak[gpu], total_compute)
        if total_compute > WHOLE or total_memory > self.memory[gpu]:
            self.fault(seq, f"GPU {gpu} is over-committed: {total_compute} milli-GPU and {total_memory} MiB of "
                            f"{self.memory[gpu]} for {sorted(holders)}")
        if len(holders) > 1 and any(h[2] == "whole" for h in holders.values()):
            self.fault(seq, f"GPU {gpu} is held whole and in part: {sorted(holders)}")

    def finish(self):
        """Call when all jobs have ended."""
        for job in self.specs:
            if job not in self.ends:
                self.faults.append(f"job {job} was accepted and never ended")
        for gpu, holders in self.held.items():
            if holders:
                self.faults.append(f"GPU {gpu} is still held by {sorted(holders)}")
        return self.faults


def audit(rows):
    """`rows` of Server.journal(); returns the finished Audit."""
    result = Audit()
    last = 0
    last_time = 0
    for seq, when, kind, event, decisions in rows:
        if seq != last + 1:
            result.fault(seq, f"follows row {last}")
        if when <= last_time:
            result.fault(seq, "is not later than the row before")
        last, last_time = seq, when
        result.take(seq, kind, event, decisions)
    result.finish()
    return result
