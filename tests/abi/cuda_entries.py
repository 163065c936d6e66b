"""What libcuda.so.1 of the emulator exports, and what the vendor's headers declare, as plain lists.

Read from the text of src/emulator/cuda/*.cc: each entry point is written `CUDA_ENTRY name(parameters)`, or given to
a macro `SOMETHING(name, (parameters), ...)` whose definition holds `CUDA_ENTRY name`. Used by cuda_abi_test.py and,
through it, by the compile-time test.
"""

import pathlib
import re
import subprocess


def balanced(text, start):
    """The text inside the parenthesis that opens at `start`."""
    depth = 0
    for position in range(start, len(text)):
        depth += {"(": 1, ")": -1}.get(text[position], 0)
        if depth == 0:
            return text[start + 1:position]
    raise ValueError("an open parenthesis at " + text[start:start + 40])


def macros_of(text):
    """name of a macro -> (suffixes of the functions that it defines, their parameters or None if it is given them)"""
    found = {}
    for match in re.finditer(r"^#define (\w+)\(name[^)]*\)((?:.*\\\n)*.*)$", text, re.M):
        body = match.group(2).replace("\\\n", " ")
        functions = re.findall(r"CUDA_ENTRY name(?:##(\w+))?\s*(parameters|\()", body)
        if functions:
            given = functions[0][1] == "parameters"
            parameters = None if given else balanced(body, body.index("(", body.index("CUDA_ENTRY name")))
            found[match.group(1)] = ([suffix for suffix, _ in functions], parameters)
    return found


def entries(folder):
    """exported name -> its parameters, as C++ text"""
    found = {}
    for source in sorted(pathlib.Path(folder).glob("*.cc")):
        text = re.sub(r"//.*", "", source.read_text(encoding="utf-8"))
        for match in re.finditer(r"^CUDA_ENTRY (cu\w+)\(", text, re.M):
            found[match.group(1)] = balanced(text, match.end() - 1)
        for macro, (suffixes, parameters) in macros_of(text).items():
            for match in re.finditer(rf"^{macro}\((cu\w+)(,\s*\()?", text, re.M):
                own = parameters if parameters is not None else balanced(text, match.end() - 1)
                for suffix in suffixes:
                    found[match.group(1) + suffix] = own
    return found


def preprocessed(folder):
    """cuda.h of that folder with all versions of all functions."""
    command = ["g++", "-E", "-P", "-D__CUDA_API_VERSION_INTERNAL", str(pathlib.Path(folder) / "cuda.h")]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def declared(text):
    """The functions that a preprocessed cuda.h declares."""
    return set(re.findall(r"\bCUresult\s+(cu[A-Z]\w*)\s*\(", text))


def results(text):
    """name -> number of CUresult in a preprocessed cuda.h"""
    body = re.search(r"typedef enum cudaError_enum\s*{(.*?)}", text, re.S).group(1)
    return {name: int(number) for name, number in re.findall(r"(CUDA_\w+)\s*=\s*(\d+)", body)}


def pointer_types(folder):
    """(name, CUDA version, '' or '_ptsz' or '_ptds') for each type of cudaTypedefs.h: which version brought what"""
    text = (pathlib.Path(folder) / "cudaTypedefs.h").read_text(encoding="utf-8")
    types = re.findall(r"typedef [^;]*?\*PFN_(cu\w+?)_v(\d{4,})(_ptsz|_ptds)?\)", text)
    return {(name, int(version), form) for name, version, form in types}


def symbols(file):
    """(name, exported symbol, version, default stream) for each row of driver_symbols.inc"""
    text = pathlib.Path(file).read_text(encoding="utf-8")
    rows = re.findall(r"^X\((\w+), (\w+), (\d+), (\w+)\)$", text, re.M)
    return [(name, exported, int(version), form) for name, exported, version, form in rows]


def plain(name):
    """A function without the mark of its default stream."""
    return re.sub(r"_pts?[zds]+$", "", name)
