"""Runs a command under a kernel of its own, on which cgroup version 2 holds every controller, as on an installed Debian.

    boot.py SECONDS COMMAND [ARGUMENT...]      as root; returns the command's exit code

The machine that tests run on may have its controllers on version 1, and no program can move them. So Debian's kernel is
booted by QEMU, by emulation (some twenty times slower: virtual machines often have a /dev/kvm that hangs), with the machine's own files as its root: read
only, over 9p, and under an overlay in the guest's memory. ./setup --long puts the kernel into .guest-kernel.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
KERNEL = os.path.join(ROOT, ".guest-kernel")
MODULES = ("virtio_pci", "9pnet_virtio", "9p", "overlay", "loop")
SKIPPED = 77
OVERTIME = 124
VERDICT = "guest-kernel-exit:"

INIT = """#!/bin/busybox sh
/bin/busybox mkdir -p /proc /sys /dev /host /memory /root
/bin/busybox mount -t proc proc /proc
for module in /modules/*; do /bin/busybox insmod "$module" || echo "no $module"; done
/bin/busybox mount -t 9p -o trans=virtio,version=9p2000.L,msize=512000,cache=loose,ro host /host &&
/bin/busybox mount -t tmpfs -o size=70% memory /memory &&
/bin/busybox mkdir /memory/upper /memory/work &&
/bin/busybox mount -t overlay -o lowerdir=/host,upperdir=/memory/upper,workdir=/memory/work overlay /root &&
/bin/busybox mount -t proc proc /root/proc &&
/bin/busybox mount -t sysfs sysfs /root/sys &&
/bin/busybox mount -t cgroup2 cgroup2 /root/sys/fs/cgroup &&
/bin/busybox mount -t devtmpfs devtmpfs /root/dev &&
/bin/busybox mkdir -p /root/dev/pts /root/dev/shm &&
/bin/busybox mount -t tmpfs -o mode=755 run /root/run &&
/bin/busybox mount -t tmpfs -o mode=1777 tmp /root/tmp &&
/bin/busybox ip link set lo up &&
/bin/busybox chroot /root /bin/sh /run/command
echo "VERDICT $?"
/bin/busybox poweroff -f
"""


def missing():
    """Why nothing can be booted here, or ''."""
    if os.geteuid() != 0:
        return "run as root"
    for program in ("qemu-system-x86_64", "depmod", "cpio"):
        if not shutil.which(program, path="/usr/sbin:/usr/bin:/sbin:/bin"):
            return f"{program} is not installed; `./setup --long` installs it"
    if not os.path.exists(KERNEL + "/boot"):
        return ".guest-kernel is not there; `./setup --long` fetches it"
    return ""


def module_files():
    """Paths of the modules and of what they need, in the order in which they load."""
    base = KERNEL + "/lib/modules"
    release = os.listdir(base)[0]
    if not os.path.exists(f"{base}/{release}/modules.dep"):
        subprocess.run(["/sbin/depmod", "-b", KERNEL, release], check=True)
    needs = {}
    with open(f"{base}/{release}/modules.dep", encoding="ascii") as file:
        for line in file:
            path, _, others = line.partition(":")
            needs[path] = others.split()
    by_name = {os.path.basename(path).partition(".")[0].replace("-", "_"): path for path in needs}
    ordered = []
    for name in MODULES:
        path = by_name[name]
        ordered += [one for one in (*reversed(needs[path]), path) if one not in ordered]
    return [f"{base}/{release}/{path}" for path in ordered]


def make_initramfs(folder, command):
    tree = folder + "/tree"
    os.makedirs(tree + "/bin")
    os.makedirs(tree + "/modules")
    shutil.copy("/bin/busybox", tree + "/bin/busybox")
    for number, path in enumerate(module_files()):
        shutil.copy(path, f"{tree}/modules/{number:02}-{os.path.basename(path)}")
    with open(tree + "/command", "w", encoding="utf-8") as file:
        file.write(command)
    with open(tree + "/init", "w", encoding="ascii") as file:
        file.write(INIT.replace("VERDICT", VERDICT).replace(
            "/bin/busybox chroot", "/bin/busybox cp /command /root/run/command &&\n/bin/busybox chroot"))
    os.chmod(tree + "/init", 0o755)
    with open(folder + "/initramfs", "wb") as out:
        listing = subprocess.run(["find", "."], cwd=tree, capture_output=True, check=True).stdout
        subprocess.run(["cpio", "--quiet", "-o", "-H", "newc"], cwd=tree, input=listing, stdout=out, check=True)


def quoted(word):
    return "'" + word.replace("'", "'\\''") + "'"


def talk(command, seconds):
    """(everything that the command printed, whether it had to be ended)."""
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    overtime = threading.Timer(seconds, process.kill)
    overtime.start()
    text = ""
    for line in process.stdout:
        text += line.decode(errors="replace").replace("\r", "")
        print(line.decode(errors="replace").replace("\r", ""), end="", flush=True)
    overtime.cancel()
    return text, process.wait() == -signal.SIGKILL


def run(seconds, words, environment=None):
    """The command's exit code; 124 if it took longer than `seconds`. What the guest prints is printed at once."""
    assigned = "".join(f"export {name}={quoted(value)}\n" for name, value in (environment or {}).items())
    command = (f"export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8\n"
               f"{assigned}cd {quoted(ROOT)} && exec {' '.join(map(quoted, words))}\n")
    with tempfile.TemporaryDirectory(prefix="tranche-guest-") as folder:
        make_initramfs(folder, command)
        kernel = next(name for name in sorted(os.listdir(KERNEL + "/boot")) if name.startswith("vmlinuz"))
        qemu = ["qemu-system-x86_64", "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2", "-m", "4G", "-nodefaults", "-no-reboot",
                "-display", "none", "-serial", "stdio", "-kernel", f"{KERNEL}/boot/{kernel}",
                "-initrd", folder + "/initramfs", "-append", "console=ttyS0 panic=-1 loglevel=4",
                "-virtfs", "local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap"]
        text, late = talk(qemu, seconds)
    if late:
        return OVERTIME
    _, found, verdict = text.rpartition(VERDICT)
    return int(verdict.split()[0]) if found else 1


def main():
    reason = missing()
    if reason:
        print("skipped: " + reason)
        return SKIPPED
    passed = {name: os.environ[name] for name in ("TRANCHE_BUILD", "TRANCHE_SEED") if name in os.environ}
    return run(float(sys.argv[1]), sys.argv[2:], passed)


if __name__ == "__main__":
    sys.exit(main())
