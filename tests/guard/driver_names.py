"""The table of the driver's functions, src/guard/driver_names.txt, held against the vendor's headers.

    driver_names.py FOLDER...            compares the table with .headers/cuda-* and nvml-*; exit 1 and what differs
    driver_names.py --write FOLDER...    writes names that are new, as `passes`; what allocates must then be judged

A line is: name, what the guard does with it (wrapped, passes), and for a name that sounds as if it allocated but passes,
why. The names are facts of the public headers: every function of every version, with the suffixes that its macros give.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
TABLE = ROOT / "src" / "guard" / "driver_names.txt"
WRAPPERS = ROOT / "src" / "guard"
# A function of such a name may take device memory, give it back, or tell of it: passing it needs a reason.
TELLING = re.compile(
    r"^cu(Mem(Alloc|Create|Release|Map|Unmap|Retain|Free|GetInfo|Pool|Import)|Array|Mipmapped|(Green)?CtxCreate|"
    r"CtxDestroy|CtxSetLimit|DevicePrimaryCtx|DeviceTotalMem|Module(Load|Unload|GetGlobal)|Library(Load|Unload|GetGlobal)|"
    r"Graph(Instantiate|Launch|Upload|ExecDestroy|AddMem)|Ipc(Open|Close)Mem|Import|Multicast|GetProcAddress|"
    r"GetExportTable|DeviceGraphMem|Graphics)|^nvmlDeviceGet(MemoryInfo|.*Process|BAR1|Accounting)")


def names_of(path):
    """Every exported name of one header."""
    text = re.sub(r"/\*.*?\*/|//[^\n]*", " ", path.read_text(errors="replace"), flags=re.S)
    names = set(re.findall(r"\b(?:CUresult\s+CUDAAPI|nvmlReturn_t\s+DECLDIR)\s+((?:cu|nvml)[A-Z]\w*)\s*\(", text))
    for _, target in re.findall(r"#\s*define\s+((?:cu|nvml)[A-Z]\w*)\s+((?:cu|nvml)[A-Z]\w*)\s*$", text, flags=re.M):
        names.add(target)
    for target, suffix in re.findall(r"__CUDA_API_(PTDS|PTSZ)\((cu\w+)\)", text):
        names.add(suffix + ("_ptds" if target == "PTDS" else "_ptsz"))
        names.add(suffix)
    return names


def wrapped_names():
    names = set()
    for path in WRAPPERS.glob("*.c"):
        text = path.read_text()
        names |= set(re.findall(r"\bREAL(?:_NVML_OF)?\((\w+)\)", text))
        names |= set(re.findall(r"\bPROCESS_LIST\((nvml\w+),", text))
    return names - {"name"}


def read_table():
    table = {}
    for line in TABLE.read_text().splitlines():
        if line and not line.startswith("#"):
            name, what, *reason = line.split(None, 2)
            table[name] = (what, reason[0] if reason else "")
    return table


def faults(table, names, wrapped):
    for name in sorted(names - set(table)):
        yield f"{name} is in a header and not in the table: run driver_names.py --write, and judge it"
    for name in sorted(set(table) - names):
        yield f"{name} is in the table and in no header"
    listed = set(re.findall(r"^X\((\w+)\)", (WRAPPERS / "cuda_wrapper_names.inc").read_text(), flags=re.M))
    for name in sorted(listed ^ {name for name in wrapped if name.startswith("cu")}):
        yield f"{name} is wrapped or in cuda_wrapper_names.inc, not both: the resolver would give the driver's"
    for name, (what, reason) in sorted(table.items()):
        if what not in ("wrapped", "passes"):
            yield f"{name}: {what} is neither wrapped nor passes"
        elif (what == "wrapped") != (name in wrapped):
            yield f"{name} is {what} in the table, and {'is' if name in wrapped else 'is not'} wrapped in the source"
        elif what == "passes" and TELLING.match(name) and not reason:
            yield f"{name} may change or tell device memory: the table must say why it passes"


def main():
    write = "--write" in sys.argv
    folders = [pathlib.Path(word) for word in sys.argv[1:] if word != "--write"]
    headers = [path for folder in folders for path in (folder / "cuda.h", folder / "nvml.h") if path.exists()]
    if not headers:
        print("skipped: no headers; ./setup fetches them")
        return 77
    names = set().union(*(names_of(path) for path in headers))
    wrapped = wrapped_names()
    if write:
        table = read_table() if TABLE.exists() else {}
        lines = [f"{name} {'wrapped' if name in wrapped else 'passes'} {table.get(name, ('', ''))[1]}".rstrip()
                 for name in sorted(names)]
        TABLE.write_text("# The driver's functions and what the guard does with each; see tests/guard/driver_names.py.\n"
                         + "\n".join(lines) + "\n")
    found = list(faults(read_table(), names, wrapped))
    print("\n".join(found))
    print(f"{len(names)} names of {len(headers)} headers, {len(wrapped)} wrapped, {len(found)} faults")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
