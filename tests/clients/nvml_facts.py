"""What nvidia-ml-py must hear from each board at each driver level, stated without the emulator.

Which functions a level has is what the vendor's header of its CUDA release declares (.headers, made by ./setup);
for 470, which has no such wheel, that of 11.7 (515) less what nvidia-ml-py bound only after its release for 470.
Which boards support a function is the table NOT_SUPPORTED: the names of a line are not supported on the boards
for which its condition holds, and answered by all others.
"""

import os
import re

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

# The newest CUDA release of each driver level (CUDA toolkit release notes).
HEADER_OF_LEVEL = {535: "12.2", 550: "12.4", 570: "12.8", 580: "13.0", 595: "13.2", 615: "13.4", 620: "13.5"}

# Functions that nvidia-ml-py bound from its release for driver 495 or 510 on, and not for 470.
NEW_AFTER_470 = {
    "nvmlDeviceGetAdaptiveClockInfoStatus", "nvmlDeviceGetBusType", "nvmlDeviceGetComputeRunningProcesses_v3",
    "nvmlDeviceGetGpuInstanceProfileInfoV", "nvmlDeviceGetGraphicsRunningProcesses_v3",
    "nvmlDeviceGetGspFirmwareMode", "nvmlDeviceGetGspFirmwareVersion", "nvmlDeviceGetIrqNum",
    "nvmlDeviceGetMPSComputeRunningProcesses_v3", "nvmlDeviceGetMemoryBusWidth", "nvmlDeviceGetMemoryInfo_v2",
    "nvmlDeviceGetNumFans", "nvmlDeviceGetNumGpuCores", "nvmlDeviceGetPcieLinkMaxSpeed",
    "nvmlDeviceGetPowerSource", "nvmlGpuInstanceGetComputeInstanceProfileInfoV", "nvmlVgpuInstanceGetGpuPciId",
    "nvmlVgpuInstanceGetLicenseInfo_v2", "nvmlVgpuTypeGetCapabilities"}
# Names that nvml.h 11.7 (driver 515) has and neither release of the bindings bound: nothing is claimed of them.
UNKNOWN_AT_470 = {
    "nvmlDeviceGetDefaultEccMode", "nvmlDeviceGetDynamicPstatesInfo", "nvmlDeviceGetGpcClkVfOffset",
    "nvmlDeviceGetMinMaxClockOfPState", "nvmlDeviceGetMinMaxFanSpeed", "nvmlDeviceGetPcieSpeed",
    "nvmlDeviceGetSupportedPerformanceStates", "nvmlDeviceGetThermalSettings", "nvmlDeviceSetDefaultFanSpeed_v2",
    "nvmlDeviceSetFanSpeed_v2", "nvmlDeviceSetGpcClkVfOffset"}


def header_names(version):
    """The functions that a fetched nvml.h declares; None if it is not here."""
    path = os.path.join(ROOT, ".headers", f"nvml-{version}", "nvml.h")
    if not os.path.exists(path):
        return None
    with open(path, encoding="utf-8") as file:
        return set(re.findall(r"DECLDIR\s*(?:char\s*\*)?\s*(nvml\w+)", file.read()))


def functions_of_level(level):
    """(names the level has, names it lacks, names of which nothing is known), or None without headers."""
    newest = header_names("13.5")
    names = header_names("11.7" if level == 470 else HEADER_OF_LEVEL[level])
    if newest is None or names is None:
        return None
    unknown = UNKNOWN_AT_470 if level == 470 else set()
    has = names - NEW_AFTER_470 - unknown if level == 470 else names
    return has, newest - has - unknown, unknown


# Architectures in the order they came.
TURING, AMPERE, ADA, HOPPER, BLACKWELL = range(5)

# key: (architecture, ECC, fan, NVLink, MIG, has a serial number, is GeForce)
BOARD_FACTS = {
    "t4": (TURING, True, False, False, False, True, False),
    "rtx4090": (ADA, False, True, False, False, False, True),
    "l40s": (ADA, True, False, False, False, True, False),
    "a100-40": (AMPERE, True, False, True, True, True, False),
    "a100-80": (AMPERE, True, False, True, True, True, False),
    "h100-80": (HOPPER, True, False, True, True, True, False),
    "h200": (HOPPER, True, False, True, True, True, False),
    "b200": (BLACKWELL, True, False, True, True, True, False),
    "a30": (AMPERE, True, False, False, True, True, False),
    "rtxpro6000": (BLACKWELL, True, False, False, True, True, False),
}


class Facts:
    def __init__(self, key):
        (self.architecture, self.ecc, self.fan, self.nvlink, self.mig, self.serial,
         self.geforce) = BOARD_FACTS[key]


def everywhere(_):
    return True


# condition, why (the reference's or NVML's own word for it), names without "nvmlDeviceGet".
NOT_SUPPORTED = [
    (lambda b: not b.fan, "boards cooled by the server's air have no fan of their own",
     "FanSpeed FanSpeed_v2 FanSpeedRPM TargetFanSpeed MinMaxFanSpeed"),
    (lambda b: not b.ecc, "GeForce boards have no ECC that NVML reads",
     "EccMode CurrentEccMode PendingEccMode DefaultEccMode TotalEccErrors DetailedEccErrors MemoryErrorCounter"),
    (lambda b: not b.serial, "GeForce boards tell no serial number", "Serial"),
    (lambda b: not b.ecc or b.architecture != TURING, "pages are retired before Ampere, rows remapped since",
     "RetiredPages RetiredPages_v2 RetiredPagesPendingStatus"),
    (lambda b: not b.ecc or b.architecture == TURING, "rows are remapped from Ampere on",
     "RemappedRows RowRemapperHistogram RepairStatus"),
    (lambda b: not b.nvlink, "the board has no NVLink",
     "NvLinkState NvLinkVersion NvLinkCapability NvLinkRemotePciInfo NvLinkErrorCounter NvLinkRemoteDeviceType "
     "ModuleId"),
    (lambda b: not b.mig, "the board cannot do MIG", "MigMode MigDeviceHandleByIndex"),
    (lambda b: b.architecture < AMPERE, "engines that NVML reads from Ampere on",
     "JpgUtilization OfaUtilization"),
    (lambda b: b.architecture < ADA, "temperature margins come with Ada", "MarginTemperature"),
    (lambda b: b.architecture < HOPPER, "confidential computing comes with Hopper", "ConfComputeMemSizeInfo"),
    (lambda b: b.architecture < HOPPER or not b.nvlink, "a fabric of NVSwitches comes with Hopper",
     "GpuFabricInfo GpuFabricInfoV"),
    (everywhere, "only Windows has driver models",
     "DriverModel DriverModel_v1 DriverModel_v2 CurrentDriverModel PendingDriverModel"),
    (everywhere, "the server is not a vGPU host",
     "ActiveVgpus CreatableVgpus SupportedVgpus HostVgpuMode VgpuCapabilities VgpuHeterogeneousMode "
     "VgpuInstancesUtilizationInfo VgpuMetadata VgpuProcessUtilization VgpuProcessesUtilizationInfo "
     "VgpuSchedulerCapabilities VgpuSchedulerLog VgpuSchedulerLog_v2 VgpuSchedulerState VgpuSchedulerState_v2 "
     "VgpuTypeCreatablePlacements VgpuTypeSupportedPlacements VgpuUtilization PgpuMetadataString"),
    (everywhere, "accounting is off until root switches it on",
     "AccountingPids AccountingStats AccountingStats_v2"),
    (everywhere, "confidential computing is off",
     "ConfComputeGpuAttestationReport ConfComputeGpuCertificate ConfComputeProtectedMemoryUsage"),
    (everywhere, "not a board of two GPUs behind a bridge", "BridgeChipInfo"),
    (everywhere, "operation modes were Kepler's",
     "GpuOperationMode CurrentGpuOperationMode PendingGpuOperationMode"),
    (everywhere, "the host's memory is not one with the GPU's", "NumaNodeId"),
]

# Functions of features that docs/emulator.md names as not modelled: they answer "not supported" everywhere. Why, and
# which.
NOT_MODELLED_BECAUSE = {
    "clocks of applications and automatic boost are deprecated, and no board here lets them be set":
        "APIRestriction ApplicationsClock AutoBoostedClocksEnabled DefaultApplicationsClock MaxCustomerBoostClock",
    "a clock here is what the model says, with no offset, no voltage and no monitor of its quality":
        "AdaptiveClockInfoStatus ClkMonStatus ClockOffsets GpcClkMinMaxVfOffset GpcClkVfOffset MemClkMinMaxVfOffset "
        "MemClkVfOffset PowerMizerMode_v1",
    "of notebooks": "AdaptiveTgpModeInfo_v1",
    "the fan follows the temperature, and nobody can hold it": "CoolerInfo FanControlPolicy_v2",
    "what the InfoROM and its black box hold differs by board and is published for none":
        "BBXTimeData_v1 BoardPartNumber InforomConfigurationChecksum InforomVersion LastBBXFlushTime",
    "memory errors are counted for the board, not by bank, SRAM or cause; rows as the first form tells them":
        "BankRemapperStatus_v1 RemappedRows_v2 SramEccErrorStatus SramUniqueUncorrectedEccErrorCounts "
        "UnrepairableMemoryFlag_v1",
    "no board here is one with a Grace CPU": "C2cModeInfoV C2cModeInfoV1",
    "confidential computing is off": "CurrentDramEncryptionMode DramEncryptionMode PendingDramEncryptionMode",
    "media engines exist and are idle: what they could do depends on codec and resolution": "EncoderCapacity",
    "copies between GPUs take the time of memory and are not counted by link; the counters of old links were "
    "withdrawn by the driver itself": "NvLinkUtilizationControl NvLinkUtilizationCounter",
    "links have a speed and a state, and no modes of power, bandwidth or telemetry":
        "GpuFabricInfo_v4 NvLinkInfo NvLinkTelemetrySamples_v1 NvlinkBwMode NvlinkSupportedBwModes",
    "what a chassis or a hypervisor tells the board": "Hostname_v1 PlatformInfo",
}
NOT_MODELLED = " ".join(NOT_MODELLED_BECAUSE.values()).split()

# Their rules are MIG's, which has a test of its own.
OF_MIG = """
Attributes Attributes_v2 ComputeInstanceId DeviceHandleFromMigDeviceHandle GpuInstanceById GpuInstanceId
GpuInstancePossiblePlacements GpuInstanceProfileInfo GpuInstanceProfileInfoById GpuInstanceProfileInfoByIdV
GpuInstanceProfileInfoV GpuInstanceRemainingCapacity GpuInstances
""".split()


def expected_error(name, facts, level):
    """Why this board must answer "not supported", or None if it must answer. `name` without nvmlDeviceGet."""
    for why, names in NOT_MODELLED_BECAUSE.items():
        if name in names.split():
            return why
    if name == "GspFirmwareVersion" and facts.geforce and level < 570:
        return "GeForce boards run without the GSP until the open kernel modules are the rule"
    for condition, why, names in NOT_SUPPORTED:
        if name in names.split() and condition(facts):
            return why
    return None
