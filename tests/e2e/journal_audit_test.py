"""The auditor must find what it is there to find: each fault made by hand, and a clean history passed."""

import unittest

from journal_audit import audit

GPU = {"gpu": {"id": 1, "memory_usable_mib": 80000}}


def submitted(job, tasks_min=1):
    return ("job_submitted", {"job": job, "spec": {"tasks_min": tasks_min, "tasks_max": tasks_min}})


def start(job, kind="whole", compute=1000, memory=80000, rank=0):
    return {"kind": "start", "task": {"job": job, "rank": rank, "attempt": 1}, "node": 1,
            "slices": [{"gpu": 1, "kind": kind, "compute_milli": compute, "memory_mib": memory}]}


def task(job, rank=0):
    return {"task": {"job": job, "rank": rank, "attempt": 1}}


def end(job):
    return {"kind": "end", "job": job, "state": "completed"}


def history(*steps):
    rows = [(1, 10, "gpu_added", GPU, [])]
    for (kind, event), *decisions in steps:
        rows.append((len(rows) + 1, rows[-1][1] + 1, kind, event, decisions))
    return audit(rows).faults


def ended(job, rank=0):
    return [[("task_exited", task(job, rank)), end(job)], [("slice_released", {**task(job, rank), "gpu": 1})]]


class JournalAudit(unittest.TestCase):
    def assert_fault(self, faults, text):
        self.assertTrue(any(text in fault for fault in faults), f"no fault with {text!r} in {faults}")

    def test_clean_history_passes(self):
        self.assertEqual(history([submitted(1), start(1)], [("task_started", task(1))], *ended(1)), [])

    def test_over_commit(self):
        self.assert_fault(history([submitted(1), start(1)], [submitted(2), start(2)]), "over-committed")
        self.assert_fault(history([submitted(1), start(1, "fraction", 600, 10)],
                                  [submitted(2), start(2, "fraction", 600, 10)]), "over-committed")
        self.assert_fault(history([submitted(1), start(1, "fraction", 100, 50000)],
                                  [submitted(2), start(2, "fraction", 100, 50000)]), "over-committed")

    def test_start_before_the_release(self):
        self.assert_fault(history([submitted(1), start(1)], [("task_exited", task(1)), end(1)],
                                  [submitted(2), start(2)]), "over-committed")

    def test_gang_in_part(self):
        self.assert_fault(history([submitted(1, tasks_min=2), start(1, "fraction", 100, 10)]), "started 1 of 2")

    def test_job_twice(self):
        self.assert_fault(history([submitted(1), start(1)], *ended(1), [submitted(2), start(1)]), "started twice")
        self.assert_fault(history([submitted(1), start(1)], [("task_started", task(1))], [("task_started", task(1))]),
                          "ran twice")

    def test_lost_job(self):
        self.assert_fault(history([submitted(1)]), "never ended")

    def test_release_of_what_is_not_held(self):
        self.assert_fault(history([submitted(1), start(1)], *ended(1), ended(1)[1]), "did not hold it")


if __name__ == "__main__":
    unittest.main()
