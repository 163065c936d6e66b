#!/bin/sh
# tranche-emulator as people use it, in a mount namespace with a /dev and /run of its own:
#   command_line_test.sh PROGRAM. Exit code 77: cannot run here.
set -u
program=$1

if [ "${TRANCHE_IN_NAMESPACE:-}" != 1 ]; then
  [ "$(id -u)" -eq 0 ] || { echo "skipped: the test of start and stop needs root"; exit 77; }
  TRANCHE_IN_NAMESPACE=1 exec unshare --mount --propagation private "$0" "$program"
fi

failures=0
# expect CODE "text in the output" COMMAND...: runs it and compares.
expect() {
  expected_code=$1 expected_text=$2
  shift 2
  output=$("$@" 2>&1)
  code=$?
  if [ "$code" -ne "$expected_code" ]; then
    failures=$((failures + 1))
    printf 'FAILED: %s\n  exit code %s, expected %s\n  %s\n' "$*" "$code" "$expected_code" "$output"
  fi
  case $output in
    *"$expected_text"*) ;;
    *) failures=$((failures + 1))
       printf 'FAILED: %s\n  "%s" is not in: %s\n' "$*" "$expected_text" "$output" ;;
  esac
}
check() {
  description=$1
  shift
  "$@" || { failures=$((failures + 1)); printf 'FAILED: %s\n' "$description"; }
}

# A /dev and a /run that are only this test's.
mount -t tmpfs tmpfs /run
mkdir /run/old-dev
mount --bind /dev /run/old-dev
mount -t tmpfs tmpfs /dev
for name in null zero urandom tty; do
  : > "/dev/$name"
  mount --bind "/run/old-dev/$name" "/dev/$name"
done
if [ -e /run/old-dev/loop-control ]; then
  : > /dev/loop-control
  mount --bind /run/old-dev/loop-control /dev/loop-control
fi

# The command line.
expect 0 "Exit codes" "$program" --help
expect 0 "tranche-emulator run --board t4" "$program" run --help
expect 0 "h100-80" "$program" boards
expect 0 '"usable_mib": 80998' "$program" boards --json
expect 2 "say what to do" "$program"
expect 2 "not a verb" "$program" ruin
expect 2 "choose one of t4" "$program" run --board h100 -- true
expect 2 "say which GPUs" "$program" run -- true
expect 2 "after --" "$program" run --board t4
expect 2 "at most 64" "$program" start --board t4:40 --board t4:25
expect 2 "the number of GPUs" "$program" start --board t4:0
expect 2 "no way of sharing" "$program" run --board t4 --sharing fair -- true
expect 0 '"sharing": "mps"' "$program" run --board t4:2 --sharing mps@1 -- "$program" status --json
expect 1 "no GPU 3" "$program" run --board t4:2 --sharing mps@3 -- true
expect 2 "is not understood" "$program" start --board t4 --quick
expect 2 "needs a value" "$program" start --board
expect 2 "not a driver level; choose one of 470" "$program" start --board t4 --driver newest
expect 2 "not a driver version" "$program" start --board t4 --driver-version 5.1
expect 2 "nothing can be enforced" "$program" start --board t4 --guest wsl
expect 2 "cannot open" "$program" start --server /run/absent

# One command on a private server.
expect 0 "" "$program" run --board t4 -- true
expect 7 "" "$program" run --board t4 -- sh -c 'exit 7'
expect 143 "" "$program" run --board t4 -- sh -c 'kill -TERM $$'
expect 127 "cannot run" "$program" run --board t4 -- /absent/command
expect 0 "/dev/nvidia2" "$program" run --board t4:3 -- sh -c 'echo /dev/nvidia[0-9]*'
expect 0 "NVIDIA L40S" "$program" run --board t4 --board l40s -- "$program" status
expect 0 "driver 570.86.15, CUDA 12.8" "$program" run --board b200 --driver 570 -- "$program" status
expect 0 "libcuda.so.1" "$program" run --board t4 -- env -i /bin/sh -c 'ls /usr/lib/*/libcuda.so.1'
check "run leaves no node" sh -c '! ls /dev/nvidia* >/dev/null 2>&1'
check "run leaves no state" test ! -e /run/tranche-emulator

# Only the GPUs whose node the program may open are listed, and CUDA_VISIBLE_DEVICES counts among them.
if [ -x /usr/bin/python3 ]; then
  count='import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
number = ctypes.c_int(-1)
print("init", cuda.cuInit(0), "count", cuda.cuDeviceGetCount(ctypes.byref(number)), number.value)'
  as_nobody="setpriv --reuid 65534 --regid 65534 --clear-groups"
  expect 0 "init 0 count 0 2" "$program" run --board t4:3 -- \
    sh -c "chmod 600 /dev/nvidia1; $as_nobody /usr/bin/python3 -c '$count'"
  expect 0 "init 100" "$program" run --board t4:3 -- \
    sh -c "chmod 600 /dev/nvidiactl; $as_nobody /usr/bin/python3 -c '$count'"
  expect 0 "init 0 count 0 1" "$program" run --board t4:3 -- \
    env CUDA_VISIBLE_DEVICES=2,7 /usr/bin/python3 -c "$count"
  expect 0 "init 100" "$program" run --board t4:3 -- env CUDA_VISIBLE_DEVICES= /usr/bin/python3 -c "$count"
  expect 0 "init 0 count 0 3" env -i "$program" run --board t4:3 -- $as_nobody /usr/bin/python3 -c "$count"
fi

# A server for the machine.
expect 1 "tranche-emulator start" "$program" status
expect 1 "nothing to stop" "$program" stop
expect 0 "/run/tranche-emulator/lib" "$program" start --board h100-80:2 --name lab-a
expect 1 "stop first" "$program" start --board t4
check "the node can be opened by all" test "$(stat -c %a /dev/nvidia0)" = 666
check "there is a node for each GPU" test -b /dev/nvidia1 -a ! -e /dev/nvidia2
check "the library lies where start says" test -r /run/tranche-emulator/lib/libcuda.so.1
expect 0 "NVIDIA H100 80GB HBM3" "$program" status
expect 0 '"server": "lab-a"' "$program" status --json
expect 1 "another emulated server" env TRANCHE_EMULATOR=/run/second "$program" start --board t4
check "the first server's nodes stand" test -b /dev/nvidia1
check "the second one leaves nothing" test ! -e /run/second
expect 2 "XIDs begin at 1" "$program" fault xid 0 --gpu 0
expect 1 "no process 4194303" "$program" fault xid 31 --gpu 0 --pid 4194303
expect 2 "some speed" "$program" fault slow-copy 0 --gpu 0
expect 0 "MiB free" "$program" fault ghost-memory 900G --gpu 0
expect 0 "" "$program" fault minor 9 --gpu 1
check "the node has its new number" test -b /dev/nvidia9 -a ! -e /dev/nvidia1
expect 0 "" "$program" fault minor 1 --gpu 0
expect 1 "clear that one too" "$program" fault clear --gpu 1
expect 0 "" "$program" fault clear
check "clear gives the numbers back" test -b /dev/nvidia0 -a -b /dev/nvidia1 -a ! -e /dev/nvidia9
uuid=$("$program" status --json | grep -o 'GPU-[0-9a-f-]*' | head -1)
expect 0 "" "$program" stop
check "stop removes the nodes" sh -c '! ls /dev/nvidia* >/dev/null 2>&1'
check "stop removes the state" test ! -e /run/tranche-emulator
printf 'name = lab-a\nboard = h100-80:2\n' > /run/lab.server
expect 0 "" "$program" start --server /run/lab.server
expect 0 "$uuid" "$program" status --json
expect 0 "" "$program" stop

# Beside a real driver's nodes (character devices of its major) nothing is started or removed.
mknod /dev/nvidiactl c 195 255
expect 1 "real NVIDIA driver" "$program" start --board t4
expect 1 "real NVIDIA driver" "$program" stop --force
check "a real node is left alone" test -c /dev/nvidiactl
rm /dev/nvidiactl

[ "$failures" -eq 0 ] && echo "all as expected"
exit "$((failures > 0))"
