#!/bin/sh
# The same histories end in the same states, whatever compiled the scheduler: g++ at -O0, -O2 and -O3, and clang++ where
# there is one (./setup --long installs it). Compares the sum of the states' hashes. For the long run: it compiles the
# scheduler once for each. 77: nothing to compare with.
#
#   hashes_across_builds.sh SOURCE_DIR [HISTORIES]
set -eu
source=$1
histories=${2:-2000}
work=$(mktemp -d /tmp/tranche-builds-XXXXXX)
trap 'rm -rf "$work"' EXIT

# One translation unit a file, two at a time.
build() {
  name=$1
  shift
  mkdir "$work/$name"
  for file in "$source"/src/scheduler/*.cc "$source"/src/model/*.cc "$source"/src/base/error.cc \
              "$source"/src/base/assert.cc "$source"/src/base/random.cc "$source"/src/base/utf8.cc \
              "$source"/src/base/quantity_text.cc; do
    case $file in *_test.cc) continue ;; esac
    echo "$* -std=c++20 -D_GLIBCXX_ASSERTIONS -I$source/src -c $file -o $work/$name/$(basename "$file" .cc).o"
  done | xargs -P 2 -I {} sh -c "{}"
  $1 "$work/$name"/*.o -o "$work/$name/histories" -lpthread
}

expected=
status=0
compare() {
  sum=$("$work/$1/histories" --count "$histories" --sum-only)
  echo "$1: $sum after $histories histories"
  [ -n "$expected" ] || expected=$sum
  [ "$sum" = "$expected" ] || { echo "$1 differs: not the same states"; status=1; }
}

for flags in -O0 -O2 -O3; do
  build "g++$flags" g++ "$flags"
  compare "g++$flags"
done
clang=$(command -v clang++ || command -v clang++-16 || command -v clang++-14 || true)
if [ -n "$clang" ]; then
  build "clang++" "$clang" -O2
  compare "clang++"
else
  echo "clang++ is not here: ./setup --long installs it; compared without it"
fi
exit $status
