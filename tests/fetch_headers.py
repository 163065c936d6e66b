"""Unpacks the headers of tests/headers.txt: .headers/<api>-<major>.<minor>/{cuda.h,cudaTypedefs.h,nvml.h,...}.

fetch_headers.py PIP: run by ./setup from the root of the repository. PIP downloads the wheels; only the files
of their include folders are kept.
"""

import pathlib
import shutil
import subprocess
import sys
import tempfile
import zipfile

LIST = pathlib.Path("tests/headers.txt")
TARGET = pathlib.Path(".headers")
WANTED = {"cuda": ("cuda.h", "cudaTypedefs.h"), "nvml": ("nvml.h",)}


def folder_of(requirement):
    """nvidia-cuda-runtime-cu12==12.9.79 -> ("cuda", "cuda-12.9")"""
    name, version = requirement.split("==")
    api = "nvml" if "nvml" in name else "cuda"
    return api, f"{api}-{'.'.join(version.split('.')[:2])}"


def unpack(wheel, api, folder):
    folder.mkdir(parents=True)
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if name.endswith(".h") and name.split("/")[-1] in WANTED[api]:
                (folder / name.split("/")[-1]).write_bytes(archive.read(name))
    missing = [header for header in WANTED[api] if not (folder / header).exists()]
    if missing:
        sys.exit(f"{wheel.name} has no {', '.join(missing)}")


def main():
    lines = [line.strip() for line in LIST.read_text(encoding="utf-8").splitlines()]
    requirements = [line for line in lines if line and not line.startswith("#")]
    shutil.rmtree(TARGET, ignore_errors=True)
    for requirement in requirements:
        api, folder = folder_of(requirement)
        with tempfile.TemporaryDirectory() as downloads:
            subprocess.run(
                [sys.argv[1], "download", "--quiet", "--disable-pip-version-check", "--no-deps",
                 "--only-binary", ":all:", "--dest", downloads, requirement], check=True)
            (wheel,) = pathlib.Path(downloads).glob("*.whl")
            unpack(wheel, api, TARGET / folder)


main()
