"""A process of a job that does what it is told on the CUDA driver API: one JSON line in, one out.

    ["NAME", ARGUMENT...] -> {"result": CUDA's result or null where there was nothing to do, ...}

Every verb that takes or gives back device memory, by each of the driver's ways; views_test.py draws histories of them.
`unsettled` in an answer: bytes that the guard charges by rule before the driver takes them (managed memory, graphs)."""

import ctypes
import json
import os
import random
import sys
import threading

cuda = ctypes.CDLL("libcuda.so.1")
nvml = ctypes.CDLL("libnvidia-ml.so.1")
MIB = 1 << 20
u64, size_t, pointer, ref = ctypes.c_uint64, ctypes.c_size_t, ctypes.c_void_p, ctypes.byref
PTX = (b".version 7.0\n.target sm_52\n.address_size 64\n.visible .global .align 4 .b8 variable[%d];\n"
       b".visible .entry ordinary(.param .u64 buffer, .param .u32 count) { ret; }\n")


class Flat(ctypes.Structure):
    _fields_ = [("width", size_t), ("height", size_t), ("format", ctypes.c_int), ("channels", ctypes.c_uint)]


class Allocation(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("handles", ctypes.c_int), ("location", ctypes.c_int * 2), ("win32", pointer),
                ("flags", ctypes.c_uint8 * 8)]


class PoolProperties(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("handles", ctypes.c_int), ("location", ctypes.c_int * 2), ("win32", pointer),
                ("max", size_t), ("usage", ctypes.c_uint16), ("reserved", ctypes.c_uint8 * 54)]


class AllocationNode(ctypes.Structure):
    _fields_ = [("pool", PoolProperties), ("access", pointer), ("access_count", size_t), ("bytes", size_t), ("address", u64)]


class Memory(ctypes.Structure):
    _fields_ = [("total", u64), ("free", u64), ("used", u64)]


class Worker:
    def __init__(self):
        self.kept = {}  # kind: [what was taken]

    # --- what is kept ---------------------------------------------------------------------------------------------

    def keep(self, kind, result, what):
        if result == 0:
            self.kept.setdefault(kind, []).append(what)
        return result

    def take_one(self, kind, number):
        kept = self.kept.get(kind, [])
        return kept.pop(number % len(kept)) if kept else None

    def unsettled(self):
        return sum(size for kind in ("managed", "graph") for _, size in self.kept.get(kind, []))

    # --- contexts and code ------------------------------------------------------------------------------------------

    def start(self):
        context = pointer()
        result = cuda.cuInit(0) or cuda.cuDevicePrimaryCtxRetain(ref(context), 0) or cuda.cuCtxSetCurrent(context)
        self.primary = context
        self.device = pointer()
        if result == 0 and (nvml.nvmlInit_v2() or nvml.nvmlDeviceGetHandleByIndex_v2(0, ref(self.device))):
            return 999
        return result

    def context(self):
        context = pointer()
        result = self.keep("context", cuda.cuCtxCreate_v2(ref(context), 0, 0), context)
        cuda.cuCtxSetCurrent(self.primary)
        return result

    def end_context(self, number):
        context = self.take_one("context", number)
        if context is None:
            return None
        result = cuda.cuCtxDestroy_v2(context)
        cuda.cuCtxSetCurrent(self.primary)
        return result

    def module(self, size):
        module = pointer()
        return self.keep("module", cuda.cuModuleLoadData(ref(module), PTX % size), module)

    def unload(self, number):
        module = self.take_one("module", number)
        return None if module is None else cuda.cuModuleUnload(module)

    def variable(self, number):
        modules = self.kept.get("module", [])
        if not modules:
            return None
        return cuda.cuModuleGetGlobal_v2(ref(u64()), ref(size_t()), modules[number % len(modules)], b"variable")

    def launch(self, number):
        modules = self.kept.get("module", [])
        function, buffer, count = pointer(), u64(0), ctypes.c_uint32(0)
        if not modules:
            return None
        result = cuda.cuModuleGetFunction(ref(function), modules[number % len(modules)], b"ordinary")
        parameters = (pointer * 2)(ctypes.addressof(buffer), ctypes.addressof(count))
        return result or cuda.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, None, parameters, None) or cuda.cuCtxSynchronize()

    def listed(self, number):
        """Launches a function out of the list of a module's, which need not be loaded."""
        modules = self.kept.get("module", [])
        function, buffer, count = pointer(), u64(0), ctypes.c_uint32(0)
        if not modules:
            return None
        parameters = (pointer * 2)(ctypes.addressof(buffer), ctypes.addressof(count))
        result = cuda.cuModuleEnumerateFunctions(ref(function), 1, modules[number % len(modules)])
        return result or cuda.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, None, parameters, None) or cuda.cuCtxSynchronize()

    def library(self, size):
        library = pointer()
        result = cuda.cuLibraryLoadData(ref(library), PTX % size, None, None, 0, None, None, 0)
        return self.keep("library", result, library)

    def unload_library(self, number):
        library = self.take_one("library", number)
        return None if library is None else cuda.cuLibraryUnload(library)

    def kernel(self, number):
        """Launches a kernel by its own handle."""
        libraries = self.kept.get("library", [])
        kernel, buffer, count = pointer(), u64(0), ctypes.c_uint32(0)
        if not libraries:
            return None
        parameters = (pointer * 2)(ctypes.addressof(buffer), ctypes.addressof(count))
        result = cuda.cuLibraryGetKernel(ref(kernel), libraries[number % len(libraries)], b"ordinary")
        return result or cuda.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, None, parameters, None) or cuda.cuCtxSynchronize()

    def stack(self, size):
        return cuda.cuCtxSetLimit(0, size_t(size))

    # --- memory by address ------------------------------------------------------------------------------------------

    def allocate(self, size):
        address = u64()
        return self.keep("block", cuda.cuMemAlloc_v2(ref(address), size_t(size)), (address, size))

    def pitched(self, size):
        address = u64()
        result = cuda.cuMemAllocPitch_v2(ref(address), ref(size_t()), size_t(1000), size_t(size // 1000 + 1), 4)
        return self.keep("block", result, (address, size))

    def free(self, number):
        block = self.take_one("block", number)
        return None if block is None else cuda.cuMemFree_v2(block[0])

    def managed(self, size):
        address = u64()
        return self.keep("managed", cuda.cuMemAllocManaged(ref(address), size_t(size), 1), (address, -(-size // (2 * MIB)) * 2 * MIB))

    def free_managed(self, number):
        block = self.take_one("managed", number)
        return None if block is None else cuda.cuMemFree_v2(block[0])

    def flat_array(self, size):
        array = pointer()
        shape = Flat(4096, max(1, size // 16384), 0x20, 1)
        return self.keep("array", cuda.cuArrayCreate_v2(ref(array), ref(shape)), array)

    def end_array(self, number):
        array = self.take_one("array", number)
        return None if array is None else cuda.cuArrayDestroy(array)

    # --- pools ------------------------------------------------------------------------------------------------------

    def in_order(self, size):
        address = u64()
        result = cuda.cuMemAllocAsync(ref(address), size_t(size), None)
        return self.keep("ordered", result, address) or cuda.cuCtxSynchronize()

    def free_in_order(self, number):
        address = self.take_one("ordered", number)
        return None if address is None else cuda.cuMemFreeAsync(address, None) or cuda.cuCtxSynchronize()

    def pool(self, threshold):
        pool, keep = pointer(), u64(threshold)
        properties = PoolProperties(type=1)
        properties.location[0] = 1
        result = cuda.cuMemPoolCreate(ref(pool), ref(properties)) or cuda.cuMemPoolSetAttribute(pool, 4, ref(keep))
        return self.keep("pool", result, pool)

    def from_pool(self, number, size):
        pools = self.kept.get("pool", [])
        address = u64()
        if not pools:
            return None
        result = cuda.cuMemAllocFromPoolAsync(ref(address), size_t(size), pools[number % len(pools)], None)
        return self.keep("ordered", result, address) or cuda.cuCtxSynchronize()

    def trim(self, number):
        pools = self.kept.get("pool", [])
        pool = pointer()
        cuda.cuDeviceGetDefaultMemPool(ref(pool), 0)
        return cuda.cuMemPoolTrimTo((pools + [pool])[number % (len(pools) + 1)], size_t(0))

    # --- virtual memory ---------------------------------------------------------------------------------------------

    def create(self, size):
        size = -(-size // (2 * MIB)) * 2 * MIB
        handle, properties = u64(), Allocation(type=1)
        properties.location[0] = 1
        return self.keep("handle", cuda.cuMemCreate(ref(handle), size_t(size), ref(properties), u64(0)), (handle, size))

    def map(self, number):
        handles = self.kept.get("handle", [])
        address = u64()
        if not handles:
            return None
        handle, size = handles[number % len(handles)]
        result = cuda.cuMemAddressReserve(ref(address), size_t(size), size_t(0), u64(0), u64(0))
        result = result or cuda.cuMemMap(address, size_t(size), size_t(0), handle, u64(0))
        return self.keep("mapping", result, (address, size))

    def retain(self, number):
        mappings = self.kept.get("mapping", [])
        handle = u64()
        if not mappings:
            return None
        address, size = mappings[number % len(mappings)]
        return self.keep("handle", cuda.cuMemRetainAllocationHandle(ref(handle), pointer(address.value)), (handle, size))

    def unmap(self, number):
        mapping = self.take_one("mapping", number)
        if mapping is None:
            return None
        return cuda.cuMemUnmap(mapping[0], size_t(mapping[1])) or cuda.cuMemAddressFree(mapping[0], size_t(mapping[1]))

    def release(self, number):
        handle = self.take_one("handle", number)
        return None if handle is None else cuda.cuMemRelease(handle[0])

    # --- graphs -----------------------------------------------------------------------------------------------------

    def graph(self, size):
        graph, node, executable = pointer(), pointer(), pointer()
        parameters = AllocationNode(bytes=size)
        parameters.pool.type = 1
        parameters.pool.location[0] = 1
        result = cuda.cuGraphCreate(ref(graph), 0)
        result = result or cuda.cuGraphAddMemAllocNode(ref(node), graph, None, size_t(0), ref(parameters))
        last = pointer()
        result = result or cuda.cuGraphAddMemFreeNode(ref(last), graph, ref(node), size_t(1), u64(parameters.address))
        result = result or cuda.cuGraphInstantiateWithFlags(ref(executable), graph, u64(0))
        return self.keep("graph", result, (executable, -(-size // (2 * MIB)) * 2 * MIB))

    def run_graph(self, number):
        graphs = self.kept.get("graph", [])
        return cuda.cuGraphLaunch(graphs[number % len(graphs)][0], None) or cuda.cuCtxSynchronize() if graphs else None

    def end_graph(self, number):
        graph = self.take_one("graph", number)
        return None if graph is None else cuda.cuGraphExecDestroy(graph[0])

    def trim_graphs(self):
        return cuda.cuDeviceGraphMemTrim(0)

    # --- another process's memory --------------------------------------------------------------------------------------

    def export(self, number):
        blocks = self.kept.get("block", [])
        handle = (ctypes.c_char * 64)()
        if not blocks:
            return None
        result = cuda.cuIpcGetMemHandle(handle, blocks[number % len(blocks)][0])
        self.exported = bytes(handle).hex()
        return result

    def open(self, text):
        handle, address = (ctypes.c_char * 64).from_buffer_copy(bytes.fromhex(text)), u64()

        class Handle(ctypes.Structure):
            _fields_ = [("bytes", ctypes.c_char * 64)]
        by_value = Handle.from_buffer_copy(bytes.fromhex(text))
        del handle
        return self.keep("opened", cuda.cuIpcOpenMemHandle_v2(ref(address), by_value, 1), address)

    def close(self, number):
        opened = self.take_one("opened", number)
        return None if opened is None else cuda.cuIpcCloseMemHandle(opened)

    # --- threads ----------------------------------------------------------------------------------------------------

    def in_thread(self, work):
        answer = []

        def run():
            cuda.cuCtxSetCurrent(self.primary)
            answer.append(work())
        thread = threading.Thread(target=run)
        thread.start()
        return thread, answer

    def obey(self, verb, arguments):
        try:
            return getattr(self, verb)(*arguments)
        except AttributeError as fault:
            if "undefined symbol" not in str(fault):
                raise
            return None  # this release of the driver does not have it

    def elsewhere(self, verb, *arguments):
        thread, answer = self.in_thread(lambda: self.obey(verb, arguments))
        thread.join()
        return answer[0]

    def rush(self, seed):
        """Threads that take, give back and synchronise at the same time; each gives back what it took."""
        def hurry(chooser):
            kept = []
            for _ in range(30):
                address, ordered = u64(), chooser.random() < 0.4
                size = size_t(chooser.choice([chooser.randrange(1, 64 << 10), chooser.randrange(1, 40 * MIB)]))
                result = cuda.cuMemAllocAsync(ref(address), size, None) if ordered else cuda.cuMemAlloc_v2(ref(address), size)
                if result == 0:
                    kept.append((address, ordered))
                elif result != 2:
                    return result
                if kept and (result == 2 or chooser.random() < 0.5):
                    self.give(kept, chooser.randrange(len(kept)))
                if chooser.random() < 0.2 and cuda.cuCtxSynchronize():
                    return 998
            while kept:
                self.give(kept, 0)
            return cuda.cuCtxSynchronize()
        threads = [self.in_thread(lambda chooser=random.Random(seed * 10 + i): hurry(chooser)) for i in range(4)]
        for thread, _ in threads:
            thread.join()
        return max(answer[0] for _, answer in threads) or cuda.cuCtxSynchronize()

    def give(self, kept, place):
        address, ordered = kept.pop(place)
        return cuda.cuMemFreeAsync(address, None) if ordered else cuda.cuMemFree_v2(address)

    # --- views ------------------------------------------------------------------------------------------------------

    def view(self):
        free, total, whole, memory = size_t(), size_t(), size_t(), Memory()
        result = cuda.cuMemGetInfo_v2(ref(free), ref(total)) or cuda.cuDeviceTotalMem_v2(ref(whole), 0)
        result = result or nvml.nvmlDeviceGetMemoryInfo(self.device, ref(memory))
        self.seen = {"free": free.value, "total": total.value, "whole": whole.value, "nvml_free": memory.free,
                     "nvml_total": memory.total, "nvml_used": memory.used}
        return result


def main():
    worker = Worker()
    for line in sys.stdin:
        verb, *arguments = json.loads(line)
        worker.seen, worker.exported = None, None
        result = worker.obey(verb, arguments)
        print(json.dumps({"result": result, "unsettled": worker.unsettled(), "seen": worker.seen, "exported": worker.exported,
                          "pid": os.getpid()}), flush=True)


if __name__ == "__main__":
    main()
