#!/usr/bin/env python3
"""Every nvmlDeviceGet* of nvidia-ml-py, unchanged, on every board of the server, at the driver level of the
server: an answer, or the error that nvml_facts.py says is the right one. And the library has exactly the
functions that the vendor's header of that level declares.

TRANCHE_TEST_OPTIONS holds the emulator's options, e.g. "--driver 570".
"""

import ctypes
import inspect
import os
import sys
import unittest

import pynvml

import nvml_facts
from emulated_server import boards_of_this_server

BOARDS = boards_of_this_server()
LEVEL = int(os.environ["TRANCHE_TEST_OPTIONS"].split("--driver ")[1][:3])
FUNCTIONS = nvml_facts.functions_of_level(LEVEL)


def versioned(structure, version=1):
    """A structure that says its version, as NVML wants it."""
    made = structure()
    made.version = ctypes.sizeof(structure) | version << 24
    return made


# What a function takes after the handle; the others take what the bindings' defaults say.
ARGUMENTS = {
    "APIRestriction": (0,), "AccountingStats": (1,), "AccountingStats_v2": (1,), "ApplicationsClock": (0,),
    "Clock": (0, 0), "ClockInfo": (0,), "CpuAffinity": (4,), "CpuAffinityWithinScope": (4, 0),
    "DefaultApplicationsClock": (0,), "DetailedEccErrors": (0, 0), "EncoderCapacity": (0,), "FanSpeed_v2": (0,),
    "FanControlPolicy_v2": (0,), "FieldValues": ([83],), "InforomVersion": (0,), "MaxClockInfo": (0,),
    "MaxCustomerBoostClock": (0,), "MemoryAffinity": (4, 0), "MemoryErrorCounter": (0, 0, 2),
    "MigDeviceHandleByIndex": (0,), "MinMaxClockOfPState": (0, 0), "NvLinkCapability": (0, 0),
    "NvLinkErrorCounter": (0, 0), "NvLinkRemoteDeviceType": (0,), "NvLinkRemotePciInfo": (0,), "NvLinkState": (0,),
    "NvLinkUtilizationControl": (0, 0), "NvLinkUtilizationCounter": (0, 0), "NvLinkVersion": (0,),
    "PcieThroughput": (0,), "ProcessUtilization": (0,), "ProcessesUtilizationInfo": (0,), "RetiredPages": (0,),
    "RetiredPages_v2": (0,), "Samples": (1, 0), "SupportedGraphicsClocks": None, "TargetFanSpeed": (0,),
    "Temperature": (0,), "TemperatureThreshold": (1,), "TemperatureV": (0,), "TemperatureV1": (0,),
    "ThermalSettings": (0,), "TopologyNearestGpus": (50,), "TotalEccErrors": (0, 0),
    "RunningProcessDetailList": (pynvml.nvmlProcessDetailList_v1, 0), "VgpuCapabilities": (0,),
    "VgpuInstancesUtilizationInfo": (0,), "VgpuProcessUtilization": (0,), "VgpuProcessesUtilizationInfo": (0,),
    "VgpuTypeCreatablePlacements": (1,), "VgpuTypeSupportedPlacements": (1,), "VgpuUtilization": (0,),
    "ViolationStatus": (0,),
    "ConfComputeGpuAttestationReport": ((ctypes.c_uint8 * 32)(),),
    "PciInfoExt": lambda: (ctypes.byref(versioned(pynvml.nvmlPciInfoExt_v1_t)),),
    "GpuFabricInfo": lambda: (ctypes.byref(pynvml.c_nvmlGpuFabricInfo_t()),),
    "GpuFabricInfoV": lambda: (ctypes.byref(versioned(pynvml.c_nvmlGpuFabricInfo_v2_t, 2)),),
    "Capabilities": lambda: (ctypes.byref(versioned(pynvml.c_nvmlDeviceCapabilities_v1_t)),),
}
# A structure of any kind: these answer "not supported" before they look into it.
ANY = ("AdaptiveTgpModeInfo_v1 BankRemapperStatus_v1 ClockOffsets GpuFabricInfo_v4 NvLinkInfo "
       "NvLinkTelemetrySamples_v1 NvlinkBwMode NvlinkSupportedBwModes PlatformInfo PowerMizerMode_v1 RemappedRows_v2 "
       "SramEccErrorStatus SramUniqueUncorrectedEccErrorCounts VgpuSchedulerLog_v2 VgpuSchedulerState_v2").split()

# Not a question to one GPU, or tested with what it needs elsewhere, or, like the
# first two, a function whose result the bindings do not look at.
LEFT_OUT = {"ClockOffsets", "PowerMizerMode_v1", "Count", "HandleByIndex", "HandleByPciBusId", "HandleBySerial",
            "HandleByUUID", "HandleByUUIDV", "P2PStatus", "TopologyCommonAncestor",
            "MemoryLimits_v1"} | set(nvml_facts.OF_MIG)

# "Not found" is the answer of an idle GPU.
MAY_FIND_NOTHING = {"ProcessUtilization", "ProcessesUtilizationInfo", "Samples", "MigDeviceHandleByIndex"}


def arguments_of(name, function, handle):
    given = ARGUMENTS.get(name)
    if name == "SupportedGraphicsClocks":
        return (pynvml.nvmlDeviceGetMaxClockInfo(handle, pynvml.NVML_CLOCK_MEM),)
    if name in ANY:
        return ((ctypes.c_uint64 * 4096)(),)
    if callable(given):
        return given()
    wanted = [p for p in inspect.signature(function).parameters.values() if p.default is p.empty]
    assert len(wanted) - 1 == len(given or ()), f"say in ARGUMENTS what {name} takes: {wanted}"
    return given or ()


class Sweep(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        pynvml.nvmlInit()
        self.addCleanup(pynvml.nvmlShutdown)
        self.asked = []
        real = pynvml._nvmlGetFunctionPointer  # pylint: disable=protected-access

        def remembering(name):
            self.asked.append(name)
            return real(name)

        pynvml._nvmlGetFunctionPointer = remembering  # pylint: disable=protected-access
        self.addCleanup(setattr, pynvml, "_nvmlGetFunctionPointer", real)

    def test_the_library_has_the_functions_of_its_release(self):
        library = ctypes.CDLL("libnvidia-ml.so.1")
        has, lacks, _ = FUNCTIONS
        self.assertEqual([name for name in sorted(has) if not hasattr(library, name)], [], "are missing")
        self.assertEqual([name for name in sorted(lacks) if hasattr(library, name)], [], "are of a later release")
        print(f"driver {LEVEL}: {len(has)} functions there, {len(lacks)} absent")

    def outcome(self, function, *arguments):
        self.asked.clear()
        try:
            function(*arguments)
        except pynvml.NVMLError as error:
            return type(error).__name__.removeprefix("NVMLError_")
        except pynvml.NVMLLibraryMismatchError:  # what the bindings make of it for the lists of processes
            return "FunctionNotFound"
        except AttributeError as error:  # the bindings look into what they did not get
            return str(error)
        return "answer"

    def wanted(self, name, facts):
        """The outcomes that are right."""
        if any(function in FUNCTIONS[1] for function in self.asked):
            return {"FunctionNotFound"}
        if any(function in FUNCTIONS[2] for function in self.asked):
            return {"FunctionNotFound", "NotSupported", "answer"}
        if nvml_facts.expected_error(name, facts, LEVEL):
            return {"NotSupported"}
        return {"answer", "NotFound"} if name in MAY_FIND_NOTHING else {"answer"}

    def test_every_question_gets_an_answer_or_the_right_error(self):
        questions = sorted(name.removeprefix("nvmlDeviceGet") for name in vars(pynvml)
                           if name.startswith("nvmlDeviceGet") and callable(getattr(pynvml, name)))
        wrong, count = [], 0
        for gpu, board in enumerate(BOARDS):
            handle = pynvml.nvmlDeviceGetHandleByIndex(gpu)
            facts = nvml_facts.Facts(board.key)
            for name in questions:
                if name in LEFT_OUT:
                    continue
                function = getattr(pynvml, "nvmlDeviceGet" + name)
                outcome = self.outcome(function, handle, *arguments_of(name, function, handle))
                count += 1
                if outcome not in self.wanted(name, facts):
                    wrong.append(f"{board.key} {name}: {outcome}, not {self.wanted(name, facts)}")
        self.assertEqual(wrong, [])
        print(f"driver {LEVEL}: {count} questions on {len(BOARDS)} boards")


if __name__ == "__main__":
    if FUNCTIONS is None:
        print("skipped: the vendor's headers are not here; ./setup fetches them")
        sys.exit(77)
    unittest.main()
