#!/usr/bin/env python3
"""Where NVML is not what one would expect: each test is named after the fact that it models, with its place in
enforcement.md (E) or mig-and-telemetry.md (M) of the survey, or the thread there."""

import contextlib
import ctypes
import os
import subprocess
import sys
import time
import unittest

import nvitop
import pynvml

from emulated_server import FOLDER, MIB, boards_of_this_server, holders, wait_until

BOARDS = boards_of_this_server()
OPTIONS = os.environ["TRANCHE_TEST_OPTIONS"]
CGROUP2 = "/sys/fs/cgroup/unified" if os.path.isdir("/sys/fs/cgroup/unified") else "/sys/fs/cgroup"
PERIOD_SECONDS = 1 / 6
INSTANT, AVERAGE = pynvml.NVML_FI_DEV_POWER_INSTANT, pynvml.NVML_FI_DEV_POWER_AVERAGE


def board(key):
    """NVML's handle of the first board of a kind."""
    return pynvml.nvmlDeviceGetHandleByIndex([board.key for board in BOARDS].index(key))


def index_of(key):
    return [board.key for board in BOARDS].index(key)


class SetMemoryLimits(ctypes.Structure):
    _fields_ = [("cgroup", ctypes.c_char_p), ("soft", ctypes.c_uint64), ("hard", ctypes.c_uint64)]


class GetMemoryLimits(ctypes.Structure):
    _fields_ = SetMemoryLimits._fields_ + [("used", ctypes.c_uint64)]


class Ugliness(unittest.TestCase):
    def setUp(self):
        pynvml.nvmlInit()
        self.addCleanup(pynvml.nvmlShutdown)


UNDER_MPS = "--sharing mps" in OPTIONS


@unittest.skipUnless("--driver 615" in OPTIONS and not UNDER_MPS, "for the server of release 615")
class Release615(Ugliness):
    def test_M42_a_kernel_of_one_thread_reads_as_100_percent(self):
        with holders({index_of("h100-80"): 64}, busy=True):
            wait_until(lambda: pynvml.nvmlDeviceGetUtilizationRates(board("h100-80")).gpu == 100, "100 %")

    def test_E53_utilisation_lags_by_up_to_a_sample_period(self):
        handle = board("h100-80")

        def told_of_the_dead():
            """What is told just after the only process has gone; 0 where this test was too slow to see it."""
            with holders({index_of("h100-80"): 64}, busy=True):
                wait_until(lambda: pynvml.nvmlDeviceGetUtilizationRates(handle).gpu > 0, "it shows")
            self.assertEqual(pynvml.nvmlDeviceGetComputeRunningProcesses(handle), [])
            return pynvml.nvmlDeviceGetUtilizationRates(handle).gpu

        self.assertTrue(any(told_of_the_dead() > 0 for _ in range(20)))
        wait_until(lambda: pynvml.nvmlDeviceGetUtilizationRates(handle).gpu == 0, "it is forgotten")

    def test_E53_samples_are_whole_percents_of_sixths_of_a_second(self):
        handle = board("h100-80")
        with holders({index_of("h100-80"): 64}, busy=True):
            wait_until(lambda: pynvml.nvmlDeviceGetUtilizationRates(handle).gpu == 100, "100 %")
            _, samples = pynvml.nvmlDeviceGetSamples(handle, pynvml.NVML_GPU_UTILIZATION_SAMPLES, 0)
        stamps = [sample.timeStamp for sample in samples]
        for earlier, later in zip(stamps, stamps[1:]):
            self.assertAlmostEqual((later - earlier) / 1e6, PERIOD_SECONDS, places=5)

    def test_M42_process_utilisation_tells_only_what_is_newer_than_last_seen(self):
        handle = board("h100-80")
        with holders({index_of("h100-80"): 64}, busy=True) as (busy,):
            def sample():
                try:
                    return pynvml.nvmlDeviceGetProcessUtilization(handle, 0)
                except pynvml.NVMLError_NotFound:
                    return []
            wait_until(lambda: [entry.pid for entry in sample()] == [busy.pid], "the busy process")
            seen = sample()[0].timeStamp
            with self.assertRaises(pynvml.NVMLError_NotFound):
                pynvml.nvmlDeviceGetProcessUtilization(handle, seen + 10_000_000)  # a time to come

    def power_is(self, key, kind):
        """Whether the power of the board is that field's, at a moment when the two fields differ; None if they
        did not differ while this test looked. Power rises for a second when work begins."""
        def fields():
            values = pynvml.nvmlDeviceGetFieldValues(board(key), [INSTANT, AVERAGE])
            return {value.fieldId: value.value.uiVal for value in values}

        with holders({index_of(key): 64}, busy=True):
            end = time.monotonic() + 1.5
            while time.monotonic() < end:
                before, usage, after = fields(), pynvml.nvmlDeviceGetPowerUsage(board(key)), fields()
                if before == after and before[INSTANT] != before[AVERAGE]:
                    return usage == before[kind]
        return None

    def test_M42_an_A100_tells_power_of_the_moment_and_an_H100_averages_a_second(self):
        for key, kind in (("a100-80", INSTANT), ("h100-80", AVERAGE)):
            answers = (self.power_is(key, kind) for _ in range(20))
            self.assertIs(next((answer for answer in answers if answer is not None), None), True, key)

    def test_M42_memory_used_of_the_first_form_has_the_reserve_in_it(self):
        for board_, handle in ((b, pynvml.nvmlDeviceGetHandleByIndex(i)) for i, b in enumerate(BOARDS)):
            first = pynvml.nvmlDeviceGetMemoryInfo(handle)
            second = pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)
            self.assertEqual(first.used, board_.reserved_mib * MIB)
            self.assertEqual(second.used, 0)

    def test_accounting_tells_the_dead_and_a_running_process_has_no_time(self):
        handle = board("h100-80")
        with self.assertRaises(pynvml.NVMLError_NotSupported):
            pynvml.nvmlDeviceGetAccountingPids(handle)
        pynvml.nvmlDeviceSetAccountingMode(handle, pynvml.NVML_FEATURE_ENABLED)
        with holders({index_of("h100-80"): 512}) as (holder,):
            self.assertEqual(pynvml.nvmlDeviceGetAccountingStats(handle, holder.pid).isRunning, 1)
            self.assertEqual(pynvml.nvmlDeviceGetAccountingStats(handle, holder.pid).time, 0)
            pid = holder.pid
            holder.kill()
        ended = pynvml.nvmlDeviceGetAccountingStats(handle, pid)
        self.assertEqual(ended.isRunning, 0)
        self.assertGreater(ended.maxMemoryUsage, 512 * MIB)
        self.assertGreater(ended.time, 0)
        self.assertIn(pid, pynvml.nvmlDeviceGetAccountingPids(handle))
        pynvml.nvmlDeviceClearAccountingPids(handle)
        self.assertNotIn(pid, pynvml.nvmlDeviceGetAccountingPids(handle))

    def test_settings_are_rooted_bounded_and_seen_by_all(self):
        handle = board("h100-80")
        least, most = pynvml.nvmlDeviceGetPowerManagementLimitConstraints(handle)
        with self.assertRaises(pynvml.NVMLError_InvalidArgument):
            pynvml.nvmlDeviceSetPowerManagementLimit(handle, most + 1)
        pynvml.nvmlDeviceSetPowerManagementLimit(handle, least)
        self.addCleanup(pynvml.nvmlDeviceSetPowerManagementLimit, handle, most)
        question = ("import pynvml as n; n.nvmlInit(); gpu = n.nvmlDeviceGetHandleByIndex("
                    f"{index_of('h100-80')}); print(n.nvmlDeviceGetEnforcedPowerLimit(gpu))")
        shown = subprocess.run([sys.executable, "-c", question], stdout=subprocess.PIPE, text=True,
                               check=True).stdout
        self.assertEqual(int(shown), least)

    def test_changes_take_root(self):
        handle = board("h100-80")
        changes = [lambda: pynvml.nvmlDeviceSetComputeMode(handle, pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS),
                   lambda: pynvml.nvmlDeviceSetPersistenceMode(handle, 0),
                   lambda: pynvml.nvmlDeviceSetPowerManagementLimit(handle, 300_000),
                   lambda: pynvml.nvmlDeviceSetGpuLockedClocks(handle, 300, 900),
                   lambda: pynvml.nvmlDeviceSetAccountingMode(handle, 1),
                   lambda: pynvml.nvmlDeviceSetEccMode(handle, 0)]
        child = os.fork()
        if child == 0:
            os.setuid(65534)
            refused = 0
            for change in changes:
                try:
                    change()
                except pynvml.NVMLError_NoPermission:
                    refused += 1
            os._exit(refused)  # pylint: disable=protected-access
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), len(changes))
        changes[0]()
        self.assertEqual(pynvml.nvmlDeviceGetComputeMode(handle), pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS)
        pynvml.nvmlDeviceSetComputeMode(handle, pynvml.NVML_COMPUTEMODE_DEFAULT)
        changes[3]()
        self.assertEqual(pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM), 345)  # its idle clock
        with holders({index_of("h100-80"): 64}):
            self.assertEqual(pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM), 900)
        pynvml.nvmlDeviceResetGpuLockedClocks(handle)

    def throughput(self, counter):
        return pynvml.nvmlDeviceGetPcieThroughput(board("h100-80"), counter) / 1000  # MB/s

    def test_E54_pcie_throughput_is_what_copies_move_and_the_call_waits_for_20_ms(self):
        sent, received = pynvml.NVML_PCIE_UTIL_TX_BYTES, pynvml.NVML_PCIE_UTIL_RX_BYTES
        began = time.monotonic()
        self.assertEqual(self.throughput(received), 0)
        self.assertGreaterEqual(time.monotonic() - began, 0.02)
        with holders({index_of("h100-80"): 1024}, copy=True):
            wait_until(lambda: self.throughput(received) > 10_000, "copies to the GPU")
            self.assertLess(self.throughput(received), 64_000, "no faster than 16 lanes of generation 5")
            self.assertEqual(self.throughput(sent), 0)
            self.assertEqual(pynvml.nvmlDeviceGetUtilizationRates(board("h100-80")).gpu, 0, "copy engines copy")
        wait_until(lambda: self.throughput(received) == 0, "nothing moves any more")

    def test_M42_throttling_is_a_snapshot_in_bits_and_the_truth_in_nanoseconds(self):
        handle = board("h100-80")
        power, thermal = pynvml.NVML_PERF_POLICY_POWER, pynvml.NVML_PERF_POLICY_THERMAL
        emulator = os.environ["TRANCHE_EMULATOR_PROGRAM"]
        had = {policy: pynvml.nvmlDeviceGetViolationStatus(handle, policy).violationTime for policy in (power, thermal)}
        subprocess.run([emulator, "fault", "thermal", "--gpu", str(index_of("h100-80"))], check=True)
        self.assertEqual(pynvml.nvmlDeviceGetCurrentClocksEventReasons(handle) & 0x40, 0x40)
        subprocess.run([emulator, "fault", "clear", "--gpu", str(index_of("h100-80"))], check=True)
        self.assertEqual(pynvml.nvmlDeviceGetCurrentClocksEventReasons(handle) & 0x40, 0)
        self.assertGreater(pynvml.nvmlDeviceGetViolationStatus(handle, thermal).violationTime, had[thermal])
        self.assertEqual(pynvml.nvmlDeviceGetViolationStatus(handle, power).violationTime, had[power])
        told = pynvml.nvmlDeviceGetFieldValues(handle, [pynvml.NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN])[0]
        self.assertGreater(told.value.ullVal, 0)

    def test_M42_remapped_rows_are_not_told_while_instances_exist(self):
        handle, gpu = board("h100-80"), str(index_of("h100-80"))
        emulator = os.environ["TRANCHE_EMULATOR_PROGRAM"]
        self.assertEqual(pynvml.nvmlDeviceGetRemappedRows(handle), (0, 0, 0, 0))
        for order in (["on"], ["create", "1g.10gb"]):
            subprocess.run([emulator, "mig", *order, "--gpu", gpu], check=True, stdout=subprocess.DEVNULL)
        with self.assertRaises(pynvml.NVMLError_NotSupported):
            pynvml.nvmlDeviceGetRemappedRows(handle)
        for order in (["destroy", "all"], ["off"]):
            subprocess.run([emulator, "mig", *order, "--gpu", gpu], check=True, stdout=subprocess.DEVNULL)
        self.assertEqual(pynvml.nvmlDeviceGetRemappedRows(handle), (0, 0, 0, 0))

    def test_gpm_counts_the_time_between_two_samples_on_hopper_only(self):
        handle = board("h100-80")
        self.assertEqual(pynvml.nvmlGpmQueryDeviceSupport(board("a100-80")).isSupportedDevice, 0)
        self.assertEqual(pynvml.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice, 1)
        first, second = pynvml.nvmlGpmSampleAlloc(), pynvml.nvmlGpmSampleAlloc()
        with holders({index_of("h100-80"): 64}, busy=True):
            pynvml.nvmlGpmSampleGet(handle, first)
            pynvml.nvmlGpmSampleGet(handle, second)
        request = pynvml.c_nvmlGpmMetricsGet_t()
        request.version, request.numMetrics = pynvml.NVML_GPM_METRICS_GET_VERSION, 2
        request.sample1, request.sample2 = first, second
        request.metrics[0].metricId = pynvml.NVML_GPM_METRIC_GRAPHICS_UTIL
        request.metrics[1].metricId = pynvml.NVML_GPM_METRIC_FP16_UTIL
        pynvml.nvmlGpmMetricsGet(request)
        self.assertEqual(request.metrics[0].nvmlReturn, pynvml.NVML_SUCCESS)
        self.assertAlmostEqual(request.metrics[0].value, 100, delta=0.001)
        self.assertEqual(request.metrics[1].nvmlReturn, pynvml.NVML_ERROR_NOT_SUPPORTED)


class LimitedCgroups(Ugliness):
    """Limits of cgroups, E section 1.2."""

    def setUp(self):
        super().setUp()
        self.gpu = index_of("h100-80")
        self.handle = board("h100-80")
        self.parent = f"{CGROUP2}/nvml-limits-{os.getpid()}"
        self.leaf, self.other = self.parent + "/leaf", self.parent + "/other"
        try:
            os.mkdir(self.parent)
            os.mkdir(self.leaf)
            os.mkdir(self.other)
        except OSError as error:
            self.skipTest(f"no cgroup2 can be made here: {error}")
        self.addCleanup(self.remove)

    def remove(self):
        for folder in (self.leaf, self.other, self.parent):
            self.set_limits(folder, 0, 2**64 - 1)
            wait_until(lambda f=folder: self.try_rmdir(f), "the cgroup is empty")

    @staticmethod
    def try_rmdir(folder):
        try:
            os.rmdir(folder)
        except OSError:
            return not os.path.exists(folder)
        return True

    def set_limits(self, folder, soft, hard):
        limits = SetMemoryLimits(folder.encode(), soft, hard)
        function = pynvml._nvmlGetFunctionPointer("nvmlDeviceSetMemoryLimits_v1")  # pylint: disable=protected-access
        return function(self.handle, ctypes.byref(limits))

    def get_limits(self, folder):
        limits = GetMemoryLimits(folder.encode())
        function = pynvml._nvmlGetFunctionPointer("nvmlDeviceGetMemoryLimits_v1")  # pylint: disable=protected-access
        return function(self.handle, ctypes.byref(limits)), limits

    @contextlib.contextmanager
    def holder(self, mib, *command, cgroup=None):
        """A process in the leaf that holds memory; gives what it printed first."""
        script = f"echo $$ > {cgroup or self.leaf}/cgroup.procs; exec " + " ".join(
            command or (sys.executable, os.path.join(FOLDER, "holder.py"), f"{self.gpu}={mib}"))
        with subprocess.Popen(["sh", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True,
                              env=dict(os.environ, CUDA_DEVICE_ORDER="PCI_BUS_ID")) as process:
            yield process.stdout.readline().strip()
            process.kill()


@unittest.skipUnless("--driver 615" in OPTIONS and not UNDER_MPS, "for the server of release 615")
class MemoryLimits(LimitedCgroups):
    def test_a_hard_limit_counts_contexts_and_answers_out_of_memory(self):
        self.assertEqual(self.set_limits(self.leaf, 0, 3000 * MIB), pynvml.NVML_SUCCESS)
        with self.holder(2400) as said:
            self.assertEqual(said, "ready")
            code, limits = self.get_limits(self.leaf)
            self.assertEqual((code, limits.hard), (pynvml.NVML_SUCCESS, 3000 * MIB))
            self.assertGreater(limits.used, 2400 * MIB)
        with self.holder(2900) as said:
            self.assertEqual(said, "cuMemAlloc_v2 failed with CUDA error 2")
        with self.holder(2400):
            with self.holder(2400) as said:
                self.assertIn("failed with CUDA error 2", said)

    def shown_total(self):
        question = (f"import pynvml as n; n.nvmlInit(); gpu = n.nvmlDeviceGetHandleByIndex({self.gpu}); "
                    "print(n.nvmlDeviceGetMemoryInfo(gpu, n.nvmlMemory_v2).total)")
        with self.holder(0, sys.executable, "-c", f"'{question}'") as said:
            return int(said) // MIB

    def told_by_cuda(self):
        """Free and total MiB of a process with a context and 2 MiB of memory."""
        with self.holder(2, sys.executable, os.path.join(FOLDER, "holder.py"), f"{self.gpu}=2", "--info") as said:
            return [int(word) for word in said.split()]

    def allocatable_mib(self):
        """The most that a process with 2 MiB can take on top."""
        free = self.told_by_cuda()[0]
        with self.holder(free + 2) as said:
            self.assertEqual(said, "ready")
        with self.holder(free + 4) as said:
            self.assertIn("failed with CUDA error 2", said)
        return free

    def test_a_leaf_limit_is_the_total_that_is_shown_and_a_parent_limit_is_not(self):
        self.set_limits(self.leaf, 0, 30000 * MIB)
        self.assertEqual(self.shown_total(), 30000)
        self.assertEqual(self.told_by_cuda()[1], 30000)
        self.assertEqual(self.allocatable_mib(), self.told_by_cuda()[0])
        self.set_limits(self.leaf, 0, 2**64 - 1)
        self.set_limits(self.parent, 0, 48943 * MIB)
        self.assertEqual(self.shown_total(), BOARDS[self.gpu].total_mib)
        usable = BOARDS[self.gpu].total_mib - BOARDS[self.gpu].reserved_mib
        self.assertEqual(self.told_by_cuda()[1], usable)
        self.assertLess(self.told_by_cuda()[0], 48943, "what is free knows the parent")
        with self.holder(49000) as said:
            self.assertIn("failed with CUDA error 2", said)

    def test_a_soft_limit_is_kept_free_for_its_cgroup(self):
        usable = BOARDS[self.gpu].total_mib - BOARDS[self.gpu].reserved_mib
        self.set_limits(self.leaf, 40000 * MIB, 2**64 - 1)
        script = [sys.executable, os.path.join(FOLDER, "holder.py"), f"{self.gpu}={usable - 39000}"]
        outside = subprocess.run(script, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
                                 stdin=subprocess.DEVNULL, env=dict(os.environ, CUDA_DEVICE_ORDER="PCI_BUS_ID"))
        self.assertIn("failed with CUDA error 2", outside.stdout)
        with self.holder(usable - 39000) as said:
            self.assertEqual(said, "ready")

    def test_bad_limits_are_refused(self):
        total = BOARDS[self.gpu].total_mib * MIB
        self.assertEqual(self.set_limits(self.leaf, 2 * MIB, MIB), pynvml.NVML_ERROR_INVALID_ARGUMENT)
        self.assertEqual(self.set_limits(self.leaf, 0, total + 1), pynvml.NVML_ERROR_INVALID_ARGUMENT)
        self.assertEqual(self.set_limits("/tmp", 0, MIB), pynvml.NVML_ERROR_OPERATING_SYSTEM)
        self.assertEqual(self.get_limits(self.leaf)[0], pynvml.NVML_ERROR_NOT_FOUND)


@unittest.skipUnless("--driver 615" in OPTIONS and UNDER_MPS, "for the server of release 615 under MPS")
class SoftLimitsUnderMps(LimitedCgroups):
    """The vendor's guide to memory partitioning: above a soft limit one borrows, and may be evicted."""

    def test_E12_a_borrower_is_terminated_when_another_needs_what_it_is_guaranteed(self):
        usable = BOARDS[self.gpu].total_mib - BOARDS[self.gpu].reserved_mib
        self.set_limits(self.leaf, 30000 * MIB, 2**64 - 1)
        self.set_limits(self.other, 20000 * MIB, 2**64 - 1)
        with holders({self.gpu: usable - 20000}) as (borrower,), self.holder(15000, cgroup=self.other) as within:
            self.assertEqual(within, "ready")
            with self.holder(31000) as said:
                self.assertIn("failed with CUDA error 2", said, "more than it is guaranteed evicts nobody")
            self.assertEqual(borrower.ask(), 0)
            with self.holder(25000) as said:
                self.assertEqual(said, "ready", "it needs what it is guaranteed")
                listed = pynvml.nvmlDeviceGetComputeRunningProcesses(self.handle)
                self.assertEqual(len(listed), 2, "who is within its own soft limit stays")
                self.assertNotIn(borrower.pid, [process.pid for process in listed])
                self.assertEqual(borrower.ask(), 810, "CUDA_ERROR_MPS_CLIENT_TERMINATED")


@unittest.skipUnless("--guest vgpu" in OPTIONS, "for a vGPU guest")
class VgpuGuest(Ugliness):
    def test_a_guest_has_a_licence_and_its_sensors_are_the_hosts(self):
        handle = board("h100-80")
        self.assertEqual(pynvml.nvmlDeviceGetVirtualizationMode(handle), pynvml.NVML_GPU_VIRTUALIZATION_MODE_VGPU)
        features = pynvml.nvmlDeviceGetGridLicensableFeatures_v4(handle)
        self.assertEqual(features.isGridLicenseSupported, 1)
        self.assertEqual([feature.featureEnabled for feature in
                          features.gridLicensableFeatures[:features.licensableFeaturesCount]],
                         [0 if "unlicensed" in OPTIONS else 1])
        for question in (pynvml.nvmlDeviceGetPowerUsage, pynvml.nvmlDeviceGetEnforcedPowerLimit,
                         lambda gpu: pynvml.nvmlDeviceGetTemperature(gpu, pynvml.NVML_TEMPERATURE_GPU)):
            with self.assertRaises(pynvml.NVMLError_NotSupported):
                question(handle)
        self.assertGreater(pynvml.nvmlDeviceGetMemoryInfo(handle).total, 0)


@unittest.skipUnless("--driver 535.54" in OPTIONS, "for the server of release 535.54")
class Release535(Ugliness):
    def test_nvitop75_gpustat157_bindings_of_another_release_see_scrambled_pids(self):
        with holders({0: 512}, {0: 512}) as started:
            pids = {holder.pid for holder in started}
            seen = {entry.pid for entry in pynvml.nvmlDeviceGetComputeRunningProcesses_v3(board("h100-80"))}
            self.assertNotEqual(seen, pids)
            self.assertEqual(len(seen & pids), 1, "the first entry is whole, the second begins 8 bytes late")
            # nvitop looks for functions that came and had not come yet, and takes the wider structure.
            self.assertEqual(set(nvitop.Device(0).processes()), pids)


@unittest.skipUnless("--driver 470" in OPTIONS, "for the server of release 470")
class Release470(Ugliness):
    def test_gpustat141_memory_used_had_no_reserve_before_510(self):
        self.assertEqual(pynvml.nvmlDeviceGetMemoryInfo(board("h100-80")).used, 0)


if __name__ == "__main__":
    unittest.main()
