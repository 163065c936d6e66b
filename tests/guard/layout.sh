#!/bin/sh
# The guard's own declarations of the driver's structs against the vendor's, for every version fetched:
# layout.sh COMPILER SOURCE_FOLDER HEADERS...
set -eu
compiler=$1 source=$2
shift 2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
checked=0
for headers; do
  case $headers in
    */cuda-*) kind=CUDA ;;
    */nvml-*)
      kind=NVML
      if ! grep -q nvmlProcessesUtilizationInfo_v1_t "$headers/nvml.h"; then
        echo "not compared: $(basename "$headers") is older than some structs that the guard knows"
        continue
      fi ;;
    *) continue ;;
  esac
  "$compiler" -w "-DVENDOR_$kind" -I"$headers" -o "$work/vendor" "$source/tests/guard/layout.c"
  # Only this kind's lines of the guard's.
  "$compiler" -w "-I$source/src" -o "$work/own" "$source/tests/guard/layout.c"
  "$work/vendor" >"$work/vendor.txt"
  "$work/own" | grep -Ei "^$([ $kind = CUDA ] && echo cu || echo nvml)" >"$work/own.txt"
  diff "$work/vendor.txt" "$work/own.txt" || { echo "the guard's declarations differ from $headers"; exit 1; }
  checked=$((checked + 1))
done
[ "$checked" -gt 0 ] || { echo "skipped: no headers; ./setup fetches them"; exit 77; }
echo "alike in $checked headers, $(wc -l <"$work/own.txt") lines of the last"
