#!/usr/bin/env python3
"""What clients that cannot run here look for when they start (enforcement.md 5.4): the Kubernetes device plugin,
through go-nvml, and DCGM. The lists are the survey's, read in those projects' sources."""

import ctypes
import unittest

import pynvml

from emulated_server import boards_of_this_server

BOARDS = boards_of_this_server()

# go-nvml's Init takes the newest form of each of these that it finds.
GO_NVML_PROBES = """
nvmlInit_v2 nvmlDeviceGetPciInfo_v2 nvmlDeviceGetPciInfo_v3 nvmlDeviceGetCount_v2 nvmlDeviceGetHandleByIndex_v2
nvmlDeviceGetHandleByPciBusId_v2 nvmlDeviceGetNvLinkRemotePciInfo_v2 nvmlDeviceRemoveGpu_v2
nvmlDeviceGetGridLicensableFeatures_v2 nvmlDeviceGetGridLicensableFeatures_v3 nvmlDeviceGetGridLicensableFeatures_v4
nvmlEventSetWait_v2 nvmlDeviceGetAttributes_v2 nvmlComputeInstanceGetInfo_v2 nvmlDeviceGetComputeRunningProcesses_v2
nvmlDeviceGetComputeRunningProcesses_v3 nvmlDeviceGetGraphicsRunningProcesses_v2
nvmlDeviceGetGraphicsRunningProcesses_v3 nvmlDeviceGetMPSComputeRunningProcesses_v2
nvmlDeviceGetMPSComputeRunningProcesses_v3 nvmlDeviceGetGpuInstancePossiblePlacements_v2
nvmlVgpuInstanceGetLicenseInfo_v2 nvmlDeviceGetDriverModel_v2
""".split()

INIT_FLAG_NO_GPUS, INIT_FLAG_NO_ATTACH = 1, 2


class DevicePlugin(unittest.TestCase):
    def setUp(self):
        pynvml.nvmlInit()
        self.addCleanup(pynvml.nvmlShutdown)

    def test_go_nvml_finds_the_newest_form_of_everything(self):
        library = ctypes.CDLL("libnvidia-ml.so.1")
        self.assertEqual([name for name in GO_NVML_PROBES if not hasattr(library, name)], [])

    def test_what_it_asks_of_each_gpu_at_start(self):
        self.assertRegex(pynvml.nvmlSystemGetDriverVersion(), r"^\d{3}\.\d+")
        self.assertGreaterEqual(pynvml.nvmlSystemGetCudaDriverVersion(), 11000)
        handles = [pynvml.nvmlDeviceGetHandleByIndex(gpu) for gpu in range(pynvml.nvmlDeviceGetCount())]
        self.assertEqual(len(handles), len(BOARDS))
        for gpu, handle in enumerate(handles):
            uuid = pynvml.nvmlDeviceGetUUID(handle)
            self.assertEqual(pynvml.nvmlDeviceGetIndex(pynvml.nvmlDeviceGetHandleByUUID(uuid)), gpu)
            self.assertEqual(pynvml.nvmlDeviceGetName(handle), BOARDS[gpu].name)
            self.assertEqual(pynvml.nvmlDeviceGetMinorNumber(handle), gpu)
            self.assertEqual(len(pynvml.nvmlDeviceGetPciInfo(handle).busId), 16)
            self.assertEqual(pynvml.nvmlDeviceGetMemoryInfo(handle).total >> 20, BOARDS[gpu].total_mib)
            self.assertEqual(pynvml.nvmlDeviceGetMigMode(handle)[0], 0)
            self.assertEqual(pynvml.nvmlDeviceGetCudaComputeCapability(handle), (9, 0))
            self.assertEqual(pynvml.nvmlDeviceGetArchitecture(handle), pynvml.NVML_DEVICE_ARCH_HOPPER)
            self.assertEqual(pynvml.nvmlDeviceGetBrand(handle), pynvml.NVML_BRAND_NVIDIA)
            self.assertEqual(pynvml.nvmlDeviceGetNvLinkState(handle, 0), 1)
            self.assertTrue(pynvml.nvmlDeviceGetNvLinkRemotePciInfo(handle, 0).busId)
            fabric = pynvml.c_nvmlGpuFabricInfo_v2_t()
            fabric.version = ctypes.sizeof(fabric) | 2 << 24
            pynvml.nvmlDeviceGetGpuFabricInfoV(handle, ctypes.byref(fabric))
            self.assertEqual(fabric.state, pynvml.NVML_GPU_FABRIC_STATE_COMPLETED)
            self.assertEqual(pynvml.nvmlDeviceGetAddressingMode(handle), 0)
        self.assertNotEqual(pynvml.nvmlDeviceGetTopologyCommonAncestor(handles[0], handles[1]), 0)

    def test_its_health_check_waits_for_events_and_times_out(self):
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        events = pynvml.nvmlEventSetCreate()
        supported = pynvml.nvmlDeviceGetSupportedEventTypes(handle)
        self.assertTrue(supported & pynvml.nvmlEventTypeXidCriticalError)
        pynvml.nvmlDeviceRegisterEvents(handle, pynvml.nvmlEventTypeXidCriticalError, events)
        with self.assertRaises(pynvml.NVMLError_Timeout):
            pynvml.nvmlEventSetWait_v2(events, 20)
        pynvml.nvmlEventSetFree(events)


class Dcgm(unittest.TestCase):
    def test_it_begins_without_attaching_to_any_gpu(self):
        pynvml.nvmlInitWithFlags(INIT_FLAG_NO_GPUS | INIT_FLAG_NO_ATTACH)
        self.addCleanup(pynvml.nvmlShutdown)
        self.assertEqual(pynvml.nvmlDeviceGetCount(), len(BOARDS))


if __name__ == "__main__":
    unittest.main()
