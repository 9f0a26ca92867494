#!/bin/bash
# What libncpu_locks.so costs locks that are free, and what it leaves of the throughput of contended ones: with it and
# without in turns, medians and the medians of pairs.
# usage: benches/preload-locks.sh [-r ROUNDS]      gcc, python3
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=11
if [ "${1:-}" = -r ]; then rounds=$2; fi
library=$(realpath "${LIBRARY:-target/release/libncpu_locks.so}")
[ -r "$library" ] || { echo "build first: cargo build --release -p ncpu-preload-locks" >&2; exit 1; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
gcc -O2 -pthread -o "$dir/locks" benches/preload-locks.c
awk -F': ' '/model name/ { print "processor: " $2; exit }' /proc/cpuinfo
with() { NCPU_LOCKS="$dir" LD_PRELOAD="$library" "$dir/locks" "$@"; }
while read -r name arguments; do
  for _ in $(seq "$rounds"); do
    echo "$name $("$dir/locks" $arguments) $(with $arguments)"
    rm -f "$dir"/[0-9]*
  done
done << 'END' | python3 -c '
import collections, statistics, sys
runs = collections.defaultdict(list)
for line in sys.stdin:
    name, plain, timed = line.split()
    runs[name].append((float(plain), float(timed)))
print("%-12s %12s %12s %8s %8s" % ("", "without", "with", "ratio", "by pairs"))
for name, pairs in runs.items():
    plain, timed = (statistics.median(side) for side in zip(*pairs))
    print("%-12s %12.2f %12.2f %8.3f %8.3f" % (name, plain, timed, timed / plain, statistics.median(b / a for a, b in pairs)))'
alone-ns alone
mutex-ns mutex
recursive-ns recursive
read-ns shared
write-ns write
semaphore-ns counting
torture-2 torture 2 0
torture-2+100 torture 2 100
torture-8 torture 8 0
torture-8+100 torture 8 100
END
