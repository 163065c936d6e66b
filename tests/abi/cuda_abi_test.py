"""Holds the emulated driver API against the vendor's headers (.headers, fetched by ./setup).

cuda_abi_test.py missing VERSION...      every function of each header is exported, or cuda_missing.txt says why not
cuda_abi_test.py versions VERSION...     driver_symbols.inc has each function's versions as cudaTypedefs.h has them
cuda_abi_test.py generate VERSION FILE   writes what the compile-time test of that header includes
"""

import pathlib
import re
import sys

import cuda_entries

ROOT = pathlib.Path(__file__).resolve().parents[2]
SOURCES = ROOT / "src/emulator/cuda"


def header_folder(version):
    return ROOT / ".headers" / f"cuda-{version}"


def reasons():
    """function -> why it is not there; a name that ends in * stands for all that begin so"""
    found = {}
    for line in (ROOT / "tests/abi/cuda_missing.txt").read_text(encoding="utf-8").splitlines():
        if line and not line.startswith(("#", "refused ")):
            name, reason = line.split(None, 1)
            found[name] = reason
    return found


def refused():
    """function that is there and refuses whatever it is given -> why"""
    lines = (ROOT / "tests/abi/cuda_missing.txt").read_text(encoding="utf-8").splitlines()
    return dict(line.split(None, 2)[1:] for line in lines if line.startswith("refused "))


def reason_of(name, known):
    if name in known:
        return name
    return next((key for key in known if key.endswith("*") and name.startswith(key[:-1])), None)


def missing(versions):
    ours = set(cuda_entries.entries(SOURCES))
    known, used, faults = reasons(), set(), []
    for version in versions:
        functions = cuda_entries.declared(cuda_entries.preprocessed(header_folder(version)))
        absent = sorted(functions - ours)
        for name in absent:
            key = reason_of(name, known)
            used.add(key)
            if key is None:
                faults.append(f"{name} of CUDA {version} is not exported, and cuda_missing.txt does not say why")
        print(f"CUDA {version}: {len(functions)} functions, {len(functions) - len(absent)} exported,"
              f" {len(absent)} absent with a reason")
    print(f"{len(refused())} functions are exported and refuse, each with a reason")
    faults += [f"cuda_missing.txt says that {name} refuses, but it is not exported" for name in set(refused()) - ours]
    faults += [f"cuda_missing.txt speaks of {name}, which is exported or in no header" for name in set(known) - used]
    return faults


def versions_agree(versions):
    faults = []
    types = set()
    for version in versions:
        types |= cuda_entries.pointer_types(header_folder(version))
    rows = cuda_entries.symbols(SOURCES / "driver_symbols.inc")
    ours = set()
    for name, exported, version, form in rows:
        mark = re.search(r"_pts?[zds]+$", exported)
        key = (name, version, mark.group(0) if mark else "")
        ours.add(key)
        if key not in types and not name.startswith("cuProfiler"):  # whose types are in a header of their own
            faults.append(f"{exported} as version {version} of {name} is in no cudaTypedefs.h")
        if (form == "per_thread") != bool(mark):
            faults.append(f"{exported} is in the table with the wrong default stream")
    exported = set(cuda_entries.entries(SOURCES))
    faults += [f"{name} is exported but not in driver_symbols.inc" for name in exported - {row[1] for row in rows}]
    known = reasons()
    for name, version, form in sorted(types - ours):
        if version > 3000 or reason_of(name, known) is None:
            absent = any(reason_of(candidate, known) for candidate in (name, f"{name}_v2", f"{name}_v3"))
            if not absent:
                faults.append(f"version {version}{form} of {name} is not in driver_symbols.inc")
    print(f"{len(rows)} rows agree with {len(types)} types of {len(versions)} headers")
    return faults


def generate(version, file):
    text = cuda_entries.preprocessed(header_folder(version))
    functions = cuda_entries.declared(text)
    entries = cuda_entries.entries(SOURCES)
    lines = ["#ifdef DECLARE_ENTRIES"]
    lines += [f"CUresult {name}({' '.join(parameters.split())});" for name, parameters in sorted(entries.items())]
    lines += ["#else"]
    checked = [name for name in sorted(entries) if cuda_entries.plain(name) in functions]
    lines += [f"CHECK_FUNCTION({name}, {cuda_entries.plain(name)})" for name in checked]
    lines += [f"CHECK_RESULT({name})" for name in sorted(cuda_entries.results(text))]
    lines += [f"constexpr int kFunctions = {len(checked)};", "#endif"]
    pathlib.Path(file).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return []


def main():
    command, *arguments = sys.argv[1:]
    if command == "generate":
        faults = generate(*arguments)
    else:
        faults = {"missing": missing, "versions": versions_agree}[command](arguments)
    for fault in faults:
        print(fault)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
