#!/bin/sh
# Runs one client test on an emulated server: run_client.sh EMULATOR PYTHON "BOARD:N ..." TEST [OPTION...]
# TEST is a Python file (run by PYTHON) or a program; OPTIONs (--driver 570) are the emulator's. The test finds
# boards and options in TRANCHE_TEST_BOARDS and TRANCHE_TEST_OPTIONS. Exit status 77 means: cannot run here, and why.
emulator=$1 python=$2 boards=$3 test=$4
shift 4
options=$*

skip() { echo "skipped: $1"; exit 77; }

[ "$(id -u)" -eq 0 ] || skip "an emulated server's device nodes need root"
case $test in
  *.py) [ "$python" != sanitized ] || skip "Python cannot load libraries built with sanitizers"
        [ -x "$python" ] || skip "there is no $python; ./setup makes it"
        set -- "$python" -B "$test" ;;
  *) set -- "$test" ;;
esac

TRANCHE_TEST_BOARDS=$boards
TRANCHE_TEST_OPTIONS=$options
TRANCHE_EMULATOR_PROGRAM=$emulator
export TRANCHE_TEST_BOARDS TRANCHE_TEST_OPTIONS TRANCHE_EMULATOR_PROGRAM
for board in $boards; do options="$options --board $board"; done
# shellcheck disable=SC2086  # the options are words
exec "$emulator" run $options -- "$@"
