#!/usr/bin/env python3
"""nvidia-ml-py from PyPI, unchanged, on the emulated server."""

import unittest

import pynvml

from emulated_server import (MIB, boards_of_this_server, context_mib, expected_memory, holders, plan_for,
                             wait_until)

BOARDS = boards_of_this_server()


def processes(gpu):
    handle = pynvml.nvmlDeviceGetHandleByIndex(gpu)
    return {entry.pid: entry.usedGpuMemory // MIB for entry in pynvml.nvmlDeviceGetComputeRunningProcesses(handle)}


def shown():
    return {(pid, gpu): mib for gpu in range(len(BOARDS)) for pid, mib in processes(gpu).items()}


class NvidiaMlPy(unittest.TestCase):
    def setUp(self):
        pynvml.nvmlInit()
        self.addCleanup(pynvml.nvmlShutdown)

    def test_shows_the_boards(self):
        self.assertEqual(pynvml.nvmlDeviceGetCount(), len(BOARDS))
        seen = set()
        for gpu, board in enumerate(BOARDS):
            handle = pynvml.nvmlDeviceGetHandleByIndex(gpu)
            memory = pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)
            self.assertEqual(pynvml.nvmlDeviceGetName(handle), board.name)
            self.assertEqual(pynvml.nvmlDeviceGetIndex(handle), gpu)
            self.assertEqual(memory.total, board.total_mib * MIB)
            self.assertEqual(memory.reserved, board.reserved_mib * MIB)
            self.assertEqual(memory.total, memory.reserved + memory.used + memory.free)
            seen.add(pynvml.nvmlDeviceGetUUID(handle))
        self.assertEqual(len(seen), len(BOARDS))

    def test_finds_a_gpu_by_every_name_it_has(self):
        for gpu in range(len(BOARDS)):
            handle = pynvml.nvmlDeviceGetHandleByIndex(gpu)
            uuid = pynvml.nvmlDeviceGetUUID(handle)
            bus = pynvml.nvmlDeviceGetPciInfo(handle).busId
            for found in (pynvml.nvmlDeviceGetHandleByUUID(uuid), pynvml.nvmlDeviceGetHandleByPciBusId(bus)):
                self.assertEqual(pynvml.nvmlDeviceGetIndex(found), gpu)

    def test_shows_each_process_with_its_memory(self):
        with holders(*plan_for(len(BOARDS))) as started:
            seen = shown()
            context_mib(seen, expected_memory(started))
            for gpu in range(len(BOARDS)):
                handle = pynvml.nvmlDeviceGetHandleByIndex(gpu)
                memory = pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)
                self.assertEqual(memory.used // MIB, sum(mib for (_, on), mib in seen.items() if on == gpu))
                self.assertEqual(pynvml.nvmlDeviceGetMemoryInfo(handle).used, memory.used + memory.reserved)

    def test_every_layout_of_the_process_list_agrees(self):
        with holders({0: 640}) as started:
            handle = pynvml.nvmlDeviceGetHandleByIndex(0)
            expected = [(started[0].pid, processes(0)[started[0].pid] * MIB)]
            for list_processes in (pynvml.nvmlDeviceGetComputeRunningProcesses_v2,
                                   pynvml.nvmlDeviceGetComputeRunningProcesses_v3):
                self.assertEqual([(entry.pid, entry.usedGpuMemory) for entry in list_processes(handle)], expected)
            details = pynvml.nvmlDeviceGetRunningProcessDetailList(
                handle, pynvml.nvmlProcessDetailList_v1, pynvml.NVML_PROCESS_MODE_COMPUTE)
            self.assertEqual([(entry.pid, entry.usedGpuMemory) for entry in details], expected)
            self.assertEqual(pynvml.nvmlDeviceGetGraphicsRunningProcesses(handle), [])
            self.assertEqual(pynvml.nvmlDeviceGetMPSComputeRunningProcesses(handle), [])

    def test_a_killed_process_gives_its_memory_back(self):
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        before = pynvml.nvmlDeviceGetMemoryInfo(handle).used
        with holders({0: 1024}, {0: 256}) as (killed, survivor):
            killed.kill()
            wait_until(lambda: killed.pid not in processes(0), "the killed process leaves the list")
            self.assertEqual(set(processes(0)), {survivor.pid})
            self.assertEqual(pynvml.nvmlDeviceGetMemoryInfo(handle).used, before + processes(0)[survivor.pid] * MIB)
            survivor.end()
            self.assertEqual(pynvml.nvmlDeviceGetMemoryInfo(handle).used, before)

    def test_work_shows_as_utilisation_of_its_gpu_and_its_processes(self):
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        energy = pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)
        with holders({0: 512}, {0: 512}, busy=True) as started:
            pids = {holder.pid for holder in started}

            def shares():
                try:
                    samples = pynvml.nvmlDeviceGetProcessUtilization(handle, 0)
                except pynvml.NVMLError_NotFound:  # nobody was busy in a complete sample period yet
                    return {}
                return {sample.pid: sample.smUtil for sample in samples}

            # The switch from one process to the other costs time in which nothing runs.
            wait_until(lambda: pynvml.nvmlDeviceGetUtilizationRates(handle).gpu >= 98, "the GPU is busy")
            wait_until(lambda: shares().keys() == pids and all(48 <= part <= 52 for part in shares().values()),
                       "two busy processes have half of it each")
            self.assertEqual(pynvml.nvmlDeviceGetPerformanceState(handle), 0)
            self.assertEqual(pynvml.nvmlDeviceGetCurrentClocksEventReasons(handle), 0)
            self.assertGreater(pynvml.nvmlDeviceGetTotalEnergyConsumption(handle), energy)
        wait_until(lambda: pynvml.nvmlDeviceGetUtilizationRates(handle).gpu == 0, "the GPU is idle again")

    def test_boards_differ_in_what_they_support(self):
        for gpu, board in enumerate(BOARDS):
            handle = pynvml.nvmlDeviceGetHandleByIndex(gpu)
            self.assert_supported(board.fan, pynvml.nvmlDeviceGetFanSpeed, handle)
            self.assert_supported(board.nvlink, pynvml.nvmlDeviceGetNvLinkState, handle, 0)
            self.assert_supported(board.mig, pynvml.nvmlDeviceGetMigMode, handle)
            self.assertEqual(pynvml.nvmlDeviceGetMaxMigDeviceCount(handle), 0)

    def assert_supported(self, expected, function, *arguments):
        try:
            function(*arguments)
        except pynvml.NVMLError_NotSupported:
            self.assertFalse(expected, function.__name__)
        else:
            self.assertTrue(expected, function.__name__)

    def test_functions_of_newer_drivers_are_absent(self):
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        with self.assertRaises(pynvml.NVMLError_FunctionNotFound):
            pynvml.nvmlDeviceGetTemperatureV(handle, pynvml.NVML_TEMPERATURE_GPU)


if __name__ == "__main__":
    unittest.main()
