#!/bin/sh
# The guard loads on every C library since 2.17 and brings no C++: c_library.sh LIBRARY...
# What a library needs of newer ones is written in its table of versions; nothing else makes a loader refuse it.
set -eu
bad=0
for library; do
  needs=$(objdump -p "$library" | sed -n 's/.* \(GLIBC[A-Z_]*_[0-9.]*\|GLIBC_PRIVATE\|CXXABI_[0-9.]*\|GCC_[0-9.]*\)$/\1/p' | sort -u)
  newest=$(echo "$needs" | sed -n 's/^GLIBC_\([0-9.]*\)$/\1/p' | sort -V | tail -n 1)
  if [ -z "$newest" ] || [ "$(printf '%s\n2.17\n' "$newest" | sort -V | tail -n 1)" != 2.17 ]; then
    echo "$library needs GLIBC_${newest:-?}; the oldest it must load on is 2.17" && bad=1
  fi
  if echo "$needs" | grep -v '^GLIBC_[0-9.]*$'; then
    echo "$library needs the above, which an old system or a C program may not have" && bad=1
  fi
  if objdump -p "$library" | grep -E 'NEEDED +(libstdc|libgcc|ld-linux)|R(UN)?PATH'; then
    echo "$library depends on the above" && bad=1
  fi
  # Loaders before 2.31 want each function in the file that is written with its version.
  for place in "libdl.so.2 dlopen" "libdl.so.2 dlsym" "libdl.so.2 dladdr" "libpthread.so.0 pthread_once" \
               "libpthread.so.0 pthread_mutex_trylock"; do
    file=${place% *} name=${place#* }
    number=$(readelf -W --dyn-syms "$library" | sed -n "s/.* UND $name@GLIBC_2\.2\.5 (\([0-9]*\))$/\1/p")
    [ -z "$number" ] || objdump -p "$library" | awk -v file="$file:" -v number="$number" '
        /required from/ { here = $3 == file }
        here && $3 + 0 == number + 0 && $4 == "GLIBC_2.2.5" { found = 1 }
        END { exit !found }' || { echo "$library looks for $name elsewhere than in $file" && bad=1; }
  done
  exported=$(nm -D --defined-only "$library" | awk '{print $3}' | grep -Ev '^(cu|nvml)[A-Z]' || :)
  [ -z "$exported" ] || { echo "$library exports names that are not the driver's: $exported" && bad=1; }
  echo "$library: newest GLIBC_$newest, $(nm -D --defined-only "$library" | wc -l) names"
done
exit $bad
