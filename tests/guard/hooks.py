"""One check for each name that the guard has in the driver's place: hooks.py NAME... runs them under the guard and
prints {name: "held" | "absent" | why it was not held}. A guard that lacks the name must not be "held": hooks_test.py.

Each check leaves its process unusable for the next, so one process runs one name.
"""

import ctypes
import json
import os
import sys
import time

MIB = 1 << 20
LIMIT = int(os.environ.get("LIMIT_MIB", "1600")) * MIB  # told, so that the views are held against something
OUT_OF_MEMORY = 2
CHECKS = {}

os.environ["CUDA_MODULE_LOADING"] = "EAGER"  # code takes its memory when it is loaded
cuda = ctypes.CDLL("libcuda.so.1")
nvml = ctypes.CDLL("libnvidia-ml.so.1")
size_t, u64, pointer, ref = ctypes.c_size_t, ctypes.c_uint64, ctypes.c_void_p, ctypes.byref


class NotHeld(Exception):
    pass


def check(*names):
    def keep(function):
        for name in names:
            CHECKS[name] = function
        return function
    return keep


def hold(condition, what):
    if not condition:
        raise NotHeld(what)


def call(name, *arguments):
    result = getattr(cuda, name)(*arguments)
    hold(result == 0, f"{name}: error {result}")


def start(create="cuCtxCreate_v2"):
    call("cuInit", 0)
    context = pointer()
    if create in ("cuCtxCreate", "cuCtxCreate_v2"):
        call(create, ref(context), 0, 0)
    elif create == "cuCtxCreate_v3":
        call(create, ref(context), None, 0, 0, 0)
    else:
        call(create, ref(context), None, 0, 0)
    return context


def info():
    free, total = size_t(), size_t()
    call("cuMemGetInfo_v2", ref(free), ref(total))
    return free.value, total.value


class Memory(ctypes.Structure):
    _fields_ = [("total", u64), ("free", u64), ("used", u64)]


def charged():
    """What is charged now: not by cuMemGetInfo, which first counts what came without a call of the guard's."""
    memory = Memory()
    hold(nvml.nvmlDeviceGetMemoryInfo(device(), ref(memory)) == 0, "no answer")
    return memory.used


def limited(take, size=100 * MIB):
    """`take(size)` returns CUDA's result; it must be refused at the limit."""
    taken = 0
    while taken <= LIMIT:
        result = take(size)
        if result != 0:
            hold(result == OUT_OF_MEMORY, f"error {result} after {taken >> 20} MiB")
            hold(taken > 0, "refused at once")
            return
        taken += size
    raise NotHeld(f"{taken >> 20} MiB were given under a limit of {LIMIT >> 20}")


def released(take, give):
    before = charged()
    what = take(100 * MIB)
    hold(charged() - before >= 100 * MIB, "it was not charged")
    give(what)
    hold(charged() == before, f"{(charged() - before) >> 20} MiB are still charged")


def told_at_once(give, size=100 * MIB):
    """`give` lets the driver take back `size`; it must be in the ledger without a further question."""
    before = charged()
    give()
    hold(before - charged() >= size, f"{(charged() - before) >> 20} MiB more are charged")


# --- memory by address ------------------------------------------------------------------------------------------------

def allocate(size, name="cuMemAlloc_v2", *more):
    address = u64()
    return getattr(cuda, name)(ref(address), size_t(size), *more), address


def own(size, name="cuMemAlloc_v2", *more):
    result, address = allocate(size, name, *more)
    hold(result == 0, f"{name}: error {result}")
    return address


@check("cuMemAlloc_v2")
def memory(name):
    start()
    limited(lambda size: allocate(size, name)[0])


@check("cuMemAllocManaged")
def managed(name):
    start()
    limited(lambda size: allocate(size, name, 1)[0])


@check("cuMemAllocAsync", "cuMemAllocAsync_ptsz")
def in_order(name):
    start()
    limited(lambda size: allocate(size, name, None)[0])


def default_pool():
    pool = pointer()
    call("cuDeviceGetDefaultMemPool", ref(pool), 0)
    return pool


@check("cuMemAllocFromPoolAsync", "cuMemAllocFromPoolAsync_ptsz")
def from_pool(name):
    start()
    pool = default_pool()
    limited(lambda size: allocate(size, name, pool, None)[0])


@check("cuMemAllocPitch_v2")
def pitch(name):
    start()
    limited(lambda size: cuda.cuMemAllocPitch_v2(ref(u64()), ref(size_t()), size_t(MIB), size_t(size // MIB), 4))


@check("cuMemFree_v2")
def free(name):
    start()
    released(own, lambda address: call(name, address))


@check("cuMemFreeAsync", "cuMemFreeAsync_ptsz")
def free_in_order(name):
    """Where pools do not tell what they keep; where they do, that is charged, and read anew at every question."""
    start()
    released(lambda size: own(size, "cuMemAllocAsync", None), lambda address: call(name, address, None))


class PoolProperties(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("handles", ctypes.c_int), ("location", ctypes.c_int * 2), ("win32", pointer),
                ("max", size_t), ("usage", ctypes.c_uint16), ("reserved", ctypes.c_uint8 * 54)]


def keeping_pool():
    pool, keep = pointer(), u64(1 << 60)
    properties = PoolProperties(type=1)
    properties.location[0] = 1
    call("cuMemPoolCreate", ref(pool), ref(properties))
    call("cuMemPoolSetAttribute", pool, 4, ref(keep))
    call("cuMemFreeAsync", own(100 * MIB, "cuMemAllocFromPoolAsync", pool, None), None)
    call("cuCtxSynchronize")
    return pool


@check("cuMemPoolTrimTo")
def trim(name):
    start()
    pool = keeping_pool()
    told_at_once(lambda: call(name, pool, size_t(0)))


@check("cuMemPoolDestroy")
def pool_gone(name):
    start()
    pool = keeping_pool()
    told_at_once(lambda: call(name, pool))


# --- views ------------------------------------------------------------------------------------------------------------

@check("cuMemGetInfo_v2")
def memory_info(name):
    start()
    hold(info()[1] == LIMIT, f"total {info()[1] >> 20} MiB")


@check("cuDeviceTotalMem_v2")
def total_memory(name):
    call("cuInit", 0)
    total = size_t()
    call(name, ref(total), 0)
    hold(total.value == LIMIT, f"total {total.value >> 20} MiB")


# --- resolving ----------------------------------------------------------------------------------------------------------

@check("cuGetProcAddress", "cuGetProcAddress_v2", "cuGetProcAddress_ptsz", "cuGetProcAddress_v2_ptsz")
def resolver(name):
    start()
    function, status = pointer(), ctypes.c_int()
    more = [ref(status)] if "_v2" in name else []
    call(name, b"cuMemAlloc", ref(function), 12000, u64(0), *more)
    take = ctypes.CFUNCTYPE(ctypes.c_int, pointer, size_t)(function.value)
    limited(lambda size: take(ctypes.addressof(u64()), size))


# --- contexts -------------------------------------------------------------------------------------------------------------

@check("cuCtxCreate", "cuCtxCreate_v2", "cuCtxCreate_v3", "cuCtxCreate_v4")
def context(name):
    start(name)
    hold(charged() >= 64 * MIB, f"a context charged {charged() >> 20} MiB")


@check("cuCtxDestroy", "cuCtxDestroy_v2")
def context_gone(name):
    start()
    before = charged()
    second = pointer()
    call("cuCtxCreate_v2", ref(second), 0, 0)
    own(50 * MIB)
    hold(charged() >= before + 50 * MIB, "a second context was not charged")
    call(name, second)
    hold(charged() == before, f"{(charged() - before) >> 20} MiB are still charged")


@check("cuDevicePrimaryCtxRetain")
def primary(name):
    call("cuInit", 0)
    context_ = pointer()
    call(name, ref(context_), 0)
    call("cuCtxSetCurrent", context_)
    hold(charged() >= 64 * MIB, f"a context charged {charged() >> 20} MiB")


@check("cuDevicePrimaryCtxRelease", "cuDevicePrimaryCtxRelease_v2", "cuDevicePrimaryCtxReset", "cuDevicePrimaryCtxReset_v2")
def primary_gone(name):
    first = start()
    before = charged()
    context_ = pointer()
    call("cuDevicePrimaryCtxRetain", ref(context_), 0)
    call("cuCtxSetCurrent", context_)
    own(50 * MIB)
    call("cuCtxSetCurrent", first)
    hold(charged() >= before + 50 * MIB, "the primary context was not charged")
    call(name, 0)
    hold(charged() == before, f"{(charged() - before) >> 20} MiB are still charged")


@check("cuCtxSetLimit")
def stacks(name):
    start()
    before = charged()
    call(name, 0, size_t(2048))
    hold(charged() > before, "larger stacks are not charged")
    held = charged()
    hold(cuda.cuCtxSetLimit(0, size_t(64 << 10)) == OUT_OF_MEMORY, "stacks beyond the limit were given")
    hold(charged() == held, "what was refused is charged")


class Green(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_uint8 * 144)]


@check("cuGreenCtxCreate")
def green_context(name):
    start()
    whole, description, green = Green(), pointer(), pointer()
    call("cuDeviceGetDevResource", 0, ref(whole), 1)
    call("cuDevResourceGenerateDesc", ref(description), ref(whole), 1)
    before = charged()
    call(name, ref(green), description, 0, 1)
    hold(charged() - before >= 64 * MIB, "it was not charged")


# --- code ---------------------------------------------------------------------------------------------------------------

PTX = (b".version 7.0\n.target sm_52\n.address_size 64\n.visible .global .align 4 .b8 variable[%d];\n"
       b".visible .entry ordinary(.param .u64 buffer) { ret; }\n") % (100 * MIB)


def load(name="cuModuleLoadData"):
    code = pointer()
    if name in ("cuModuleLoad", "cuLibraryLoadFromFile"):
        with open(f"/dev/shm/{os.getpid()}.ptx", "wb") as file:
            file.write(PTX)
        image = file.name.encode()
    else:
        image = PTX
    more = {"cuModuleLoadDataEx": [0, None, None], "cuLibraryLoadData": [None, None, 0, None, None, 0],
            "cuLibraryLoadFromFile": [None, None, 0, None, None, 0]}.get(name, [])
    call(name, ref(code), image, *more)
    return code


@check("cuModuleLoad", "cuModuleLoadData", "cuModuleLoadDataEx", "cuModuleLoadFatBinary")
def module(name):
    start()
    before = charged()
    load(name)
    hold(charged() > before, "its code is not charged")


@check("cuLibraryLoadData", "cuLibraryLoadFromFile")
def library(name):
    """The code of a library comes to a context with its first kernel or variable; a library too many is refused before."""
    start()
    rest = charged()
    while rest + 2 * MIB <= LIMIT:
        own(2 * MIB)
        rest = charged()
    try:
        load(name)
    except NotHeld as fault:
        hold(f"error {OUT_OF_MEMORY}" in str(fault), str(fault))
        return
    raise NotHeld("code was loaded where nothing is left")


@check("cuModuleGetGlobal_v2", "cuLibraryGetGlobal")
def variable(name):
    start()
    code = load("cuModuleLoadData" if "Module" in name else "cuLibraryLoadData")
    before = charged()
    call(name, ref(u64()), ref(size_t()), code, b"variable")
    hold(charged() - before >= 100 * MIB, "it was not charged")


@check("cuModuleUnload", "cuLibraryUnload")
def code_gone(name):
    start()
    code = load("cuModuleLoadData" if "Module" in name else "cuLibraryLoadData")
    call(name.replace("Unload", "GetGlobal") + ("_v2" if "Module" in name else ""), ref(u64()), ref(size_t()), code, b"variable")
    told_at_once(lambda: call(name, code))


# Code that the driver loads when it is first needed. `take` gives the program what it launches; the code is charged by then.

SLOW = (b".version 7.0\n.target sm_52\n.address_size 64\n.visible .entry ordinary(.param .u64 buffer) { ret; }\n//"
        + b"." * (20 * MIB) + b"\n")


def lazily(take, begin=start):
    os.environ["CUDA_MODULE_LOADING"] = "LAZY"
    begin()
    before = charged()
    function = take()
    hold(charged() - before >= 20 * MIB, f"its code is charged {(charged() - before) >> 20} MiB")
    parameters = (pointer * 1)(ctypes.addressof(u64()))
    charged_then = charged()
    call("cuLaunchKernel", function, 1, 1, 1, 1, 1, 1, 0, None, parameters, None)
    info()  # counts what came without a call of the guard's
    hold(charged() == charged_then, "a launch took more")


def code_of(name, *more):
    code = pointer()
    call(name, ref(code), SLOW, *more)
    return code


def library_code():
    return code_of("cuLibraryLoadData", None, None, 0, None, None, 0)


@check("cuModuleGetFunction")
def function(name):
    def take():
        found = pointer()
        call(name, ref(found), code_of("cuModuleLoadData"), b"ordinary")
        return found
    lazily(take)


@check("cuModuleEnumerateFunctions")
def functions(name):
    def take():
        found = (pointer * 4)()
        call(name, found, 4, code_of("cuModuleLoadData"))
        return pointer(found[0])
    lazily(take)


@check("cuLibraryGetKernel")
def kernel(name):
    def take():
        found = pointer()
        call(name, ref(found), library_code(), b"ordinary")
        return found
    lazily(take)


@check("cuLibraryEnumerateKernels")
def kernels(name):
    def take():
        found = (pointer * 4)()
        call(name, found, 4, library_code())
        return pointer(found[0])
    lazily(take)


@check("cuKernelGetFunction")
def function_of_kernel(name):
    """The kernel is known before there is a context that its code could go to."""
    known = pointer()

    def begin():
        call("cuInit", 0)
        call("cuLibraryGetKernel", ref(known), library_code(), b"ordinary")
        start()

    def take():
        found = pointer()
        call(name, ref(found), known)
        return found
    lazily(take, begin)


@check("cuLibraryGetModule")
def module_of_library(name):
    start()
    code, before = library_code(), charged()
    call(name, ref(pointer()), code)
    hold(charged() - before >= 20 * MIB, "its code is not charged")


# --- synchronisation ---------------------------------------------------------------------------------------------------

@check("cuCtxSynchronize", "cuCtxSynchronize_v2", "cuStreamSynchronize", "cuStreamSynchronize_ptsz", "cuEventSynchronize")
def synchronised(name):
    """What a pool keeps goes back at a synchronisation."""
    context_, event = start(), pointer()
    address = own(100 * MIB, "cuMemAllocAsync", None)
    call("cuMemFreeAsync", address, None)
    call("cuEventCreate", ref(event), 0)
    call("cuEventRecord", event, None)
    arguments = {"cuCtxSynchronize": [], "cuCtxSynchronize_v2": [context_], "cuEventSynchronize": [event]}.get(name, [None])
    told_at_once(lambda: call(name, *arguments))


# --- virtual memory -----------------------------------------------------------------------------------------------------------

class Allocation(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("handles", ctypes.c_int), ("location", ctypes.c_int * 2), ("win32", pointer),
                ("flags", ctypes.c_uint8 * 8)]


def physical(size):
    handle = u64()
    properties = Allocation(type=1)
    properties.location[0] = 1
    return cuda.cuMemCreate(ref(handle), size_t(size), ref(properties), u64(0)), handle


def mapped(size):
    result, handle = physical(size)
    hold(result == 0, f"cuMemCreate: error {result}")
    address = u64()
    call("cuMemAddressReserve", ref(address), size_t(size), size_t(0), u64(0), u64(0))
    call("cuMemMap", address, size_t(size), size_t(0), handle, u64(0))
    return handle, address


@check("cuMemCreate")
def create(name):
    start()
    limited(lambda size: physical(size)[0])


@check("cuMemRelease")
def release(name):
    start()
    released(lambda size: physical(size)[1], lambda handle: call(name, handle))


@check("cuMemMap", "cuMemUnmap")
def mapping(name):
    start()
    before = charged()
    handle, address = mapped(100 * MIB)
    call("cuMemRelease", handle)
    hold(charged() >= before + 100 * MIB, "mapped memory without a handle is not charged")
    call("cuMemUnmap", address, size_t(100 * MIB))
    hold(charged() == before, "what is unmapped and released is still charged")


@check("cuMemRetainAllocationHandle")
def retain(name):
    start()
    before = charged()
    handle, address = mapped(100 * MIB)
    again = u64()
    call(name, ref(again), pointer(address.value))
    call("cuMemRelease", handle)
    call("cuMemUnmap", address, size_t(100 * MIB))
    hold(charged() >= before + 100 * MIB, "memory that has a handle is not charged")
    call("cuMemRelease", again)
    hold(charged() == before, "what is released is still charged")


# --- arrays --------------------------------------------------------------------------------------------------------------------

class Flat(ctypes.Structure):
    _fields_ = [("width", size_t), ("height", size_t), ("format", ctypes.c_int), ("channels", ctypes.c_uint)]


class Deep(ctypes.Structure):
    _fields_ = [("width", size_t), ("height", size_t), ("depth", size_t), ("format", ctypes.c_int),
                ("channels", ctypes.c_uint), ("flags", ctypes.c_uint)]


FLOAT = 0x20


def flat_array(size):
    array = pointer()
    return cuda.cuArrayCreate_v2(ref(array), ref(Flat(4096, size // 16384, FLOAT, 1))), array


def deep_array(size):
    array = pointer()
    return cuda.cuArray3DCreate_v2(ref(array), ref(Deep(1024, 1024, size // (4 * MIB), FLOAT, 1, 0))), array


def mipmap(size):
    array = pointer()
    return cuda.cuMipmappedArrayCreate(ref(array), ref(Deep(4096, size // 16384, 0, FLOAT, 1, 0)), 2), array


@check("cuArrayCreate_v2")
def flat(name):
    start()
    limited(lambda size: flat_array(size)[0])


@check("cuArray3DCreate_v2")
def deep(name):
    start()
    limited(lambda size: deep_array(size)[0])


@check("cuMipmappedArrayCreate")
def mipmaps(name):
    start()
    limited(lambda size: mipmap(size)[0])


@check("cuArrayDestroy", "cuMipmappedArrayDestroy")
def array_gone(name):
    start()
    make = flat_array if name == "cuArrayDestroy" else mipmap
    released(lambda size: make(size)[1], lambda array: call(name, array))


# --- graphs ------------------------------------------------------------------------------------------------------------------

class AllocationNode(ctypes.Structure):
    _fields_ = [("pool", PoolProperties), ("access", pointer), ("access_count", size_t), ("bytes", size_t), ("address", u64)]


def graph_of(size):
    return graph_and_address(size)[0]


def graph_and_address(size):
    graph, node = pointer(), pointer()
    parameters = AllocationNode(bytes=size)
    parameters.pool.type = 1
    parameters.pool.location[0] = 1
    call("cuGraphCreate", ref(graph), 0)
    call("cuGraphAddMemAllocNode", ref(node), graph, None, size_t(0), ref(parameters))
    return graph, u64(parameters.address)


def instantiate(name, size):
    executable = pointer()
    graph = graph_of(size)
    if name.startswith("cuGraphInstantiateWithParams"):
        return getattr(cuda, name)(ref(executable), graph, ref((ctypes.c_uint64 * 8)())), executable
    if name == "cuGraphInstantiateWithFlags":
        return cuda.cuGraphInstantiateWithFlags(ref(executable), graph, u64(0)), executable
    return getattr(cuda, name)(ref(executable), graph, None, None, size_t(0)), executable


@check("cuGraphInstantiate", "cuGraphInstantiate_v2", "cuGraphInstantiateWithFlags", "cuGraphInstantiateWithParams",
       "cuGraphInstantiateWithParams_ptsz")
def graph(name):
    start()
    limited(lambda size: instantiate(name, size)[0])


@check("cuGraphExecDestroy")
def graph_gone(name):
    start()
    released(lambda size: instantiate("cuGraphInstantiateWithFlags", size)[1], lambda executable: call(name, executable))


@check("cuDeviceGraphMemTrim")
def graphs_trimmed(name):
    """Memory that a graph has left allocated when it went, freed since: the driver keeps it."""
    start()
    executable = pointer()
    graph, address = graph_and_address(100 * MIB)
    call("cuGraphInstantiateWithFlags", ref(executable), graph, u64(0))
    call("cuGraphLaunch", executable, None)
    call("cuCtxSynchronize")
    call("cuGraphExecDestroy", executable)
    call("cuMemFree_v2", address)
    told_at_once(lambda: call(name, 0))


# --- the first API, with 32-bit addresses ---------------------------------------------------------------------------------

short = ctypes.c_uint32


@check("cuMemAlloc")
def short_memory(name):
    start()
    limited(lambda size: cuda.cuMemAlloc(ref(short()), short(size)))


@check("cuMemAllocPitch")
def short_pitch(name):
    start()
    limited(lambda size: cuda.cuMemAllocPitch(ref(short()), ref(short()), short(MIB), short(size // MIB), 4))


@check("cuMemFree")
def short_free(name):
    start()

    def take(size):
        address = short()
        call("cuMemAlloc", ref(address), short(size))
        return address
    released(take, lambda address: call("cuMemFree", address))


@check("cuArrayCreate")
def short_flat(name):
    start()
    limited(lambda size: cuda.cuArrayCreate(ref(pointer()), ref((short * 4)(4096, size // 16384, FLOAT, 1))))


@check("cuArray3DCreate")
def short_deep(name):
    start()
    limited(lambda size: cuda.cuArray3DCreate(ref(pointer()), ref((short * 6)(1024, 1024, size // (4 * MIB), FLOAT, 1, 0))))


@check("cuMemGetInfo")
def short_info(name):
    start()
    left, total = short(), short()
    call(name, ref(left), ref(total))
    hold(total.value == LIMIT, f"total {total.value >> 20} MiB")


@check("cuDeviceTotalMem")
def short_total(name):
    start()
    total = short()
    call(name, ref(total), 0)
    hold(total.value == LIMIT, f"total {total.value >> 20} MiB")


# --- management --------------------------------------------------------------------------------------------------------------

def device():
    hold(nvml.nvmlInit_v2() == 0, "nvmlInit")
    found = pointer()
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES", "")  # of a machine with several GPUs
    result = (nvml.nvmlDeviceGetHandleByUUID(chosen.encode(), ref(found)) if chosen.startswith("GPU-")
              else nvml.nvmlDeviceGetHandleByIndex_v2(0, ref(found)))
    hold(result == 0, "no device")
    return found


@check("nvmlDeviceGetMemoryInfo", "nvmlDeviceGetMemoryInfo_v2")
def memory_of_device(name):
    values = (u64 * 5)()
    if name.endswith("_v2"):
        ctypes.cast(values, ctypes.POINTER(ctypes.c_uint32))[0] = 40 | 2 << 24
    hold(getattr(nvml, name)(device(), ref(values)) == 0, "no answer")
    total = values[1 if name.endswith("_v2") else 0]
    hold(total == LIMIT, f"total {total >> 20} MiB")


@check(*(f"nvmlDeviceGet{kind}RunningProcesses{version}" for kind in ("Compute", "Graphics", "MPSCompute")
         for version in ("", "_v2", "_v3")))
def processes(name):
    start()
    stride = 24 if name.endswith(("_v2", "_v3")) else 16
    count, room = ctypes.c_uint32(64), ctypes.create_string_buffer(64 * 24)
    hold(getattr(nvml, name)(device(), ref(count), room) == 0, "no answer")
    pids = [int.from_bytes(room.raw[i * stride:i * stride + 4], "little") for i in range(count.value)]
    hold(pids == [os.getpid()], f"processes {pids}, own {os.getpid()}")


@check("nvmlDeviceGetRunningProcessDetailList")
def process_details(name):
    start()
    room = (u64 * (64 * 4))()
    fields = (ctypes.c_uint32 * 4)(24 | 1 << 24, 0, 64, 0)
    block = ctypes.create_string_buffer(bytes(fields) + int(ctypes.addressof(room)).to_bytes(8, "little"))
    hold(nvml.nvmlDeviceGetRunningProcessDetailList(device(), block) == 0, "no answer")
    count = int.from_bytes(block.raw[8:12], "little")
    pids = [room[i * 4] & 0xFFFFFFFF for i in range(count)]
    hold(pids == [os.getpid()], f"processes {pids}, own {os.getpid()}")


# A process outside computes all the while (hooks_test.py).

def utilisation(ask):
    """`ask` answers (NVML's result, pids) of the processes that were busy; NOT_FOUND: none was."""
    start()
    for _ in range(200):
        result, pids = ask()
        hold(result in (0, 6), f"error {result}")
        hold(set(pids) <= {os.getpid()}, f"processes {pids}, own {os.getpid()}")
        time.sleep(0.005)


@check("nvmlDeviceGetProcessUtilization")
def utilisation_of_processes(name):
    found = device()

    def ask():
        count, room = ctypes.c_uint32(64), ctypes.create_string_buffer(64 * 32)
        result = nvml.nvmlDeviceGetProcessUtilization(found, room, ref(count), u64(0))
        return result, [int.from_bytes(room.raw[i * 32:i * 32 + 4], "little") for i in range(count.value)] if result == 0 else []
    utilisation(ask)


@check("nvmlDeviceGetProcessesUtilizationInfo")
def utilisation_information(name):
    found, room = device(), ctypes.create_string_buffer(64 * 40)

    def ask():
        fields = (ctypes.c_uint32 * 2)(24 | 1 << 24, 64)
        block = ctypes.create_string_buffer(bytes(fields) + bytes(8) + int(ctypes.addressof(room)).to_bytes(8, "little"))
        result = nvml.nvmlDeviceGetProcessesUtilizationInfo(found, block)
        count = int.from_bytes(block.raw[4:8], "little")
        return result, [int.from_bytes(room.raw[i * 40 + 8:i * 40 + 12], "little") for i in range(count)] if result == 0 else []
    utilisation(ask)


def main():
    name = sys.argv[1]
    library = nvml if name.startswith("nvml") else cuda
    if not hasattr(library, name):
        answer = "absent"
    else:
        try:
            CHECKS[name](name)
            answer = "held"
        except NotHeld as fault:
            answer = str(fault)
        except AttributeError as fault:  # the driver lacks what the check is made with
            answer = f"absent ({fault})"
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
