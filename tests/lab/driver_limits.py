"""How many limits of device memory the driver has room for: one that outlives its cgroup takes a place for good."""

import ctypes
import os

PLACES = 256  # of one GPU
NO_LIMIT = (1 << 64) - 1


class Limits(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("soft", ctypes.c_uint64), ("hard", ctypes.c_uint64)]


def unified_mount():
    with open("/proc/self/mounts", encoding="utf-8") as mounts:
        return next(line.split()[1] for line in mounts if " cgroup2 " in line)


def free_places(server, gpu):
    """Takes all places that are free on GPU number `gpu` of an emulated server, counts them, and gives them back."""
    nvml = ctypes.CDLL(server.library_dir + "/libnvidia-ml.so.1")
    assert nvml.nvmlInit_v2() == 0
    device = ctypes.c_void_p()
    assert nvml.nvmlDeviceGetHandleByIndex_v2(gpu, ctypes.byref(device)) == 0
    taken = []
    try:
        for number in range(PLACES):
            folder = f"{unified_mount()}/{server.cgroup_root}/count-{number}"
            os.mkdir(folder)
            taken.append(folder)
            limits = Limits(folder.encode(), 0, 1 << 30)
            if nvml.nvmlDeviceSetMemoryLimits_v1(device, ctypes.byref(limits)) != 0:
                return number
        return PLACES
    finally:
        for folder in taken:
            limits = Limits(folder.encode(), 0, NO_LIMIT)
            nvml.nvmlDeviceSetMemoryLimits_v1(device, ctypes.byref(limits))
            os.rmdir(folder)
        nvml.nvmlShutdown()
