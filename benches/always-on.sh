#!/bin/bash
# What `ncpu watch --rotate` takes of a busy machine: the CPU time of its process, and the layer "ncpu itself", which has in it
# what its programs in the kernel take too, both in percent of the machine's capacity.
# usage: benches/always-on.sh [-r ROUNDS] [-s SECONDS] [-- OPTIONS OF ncpu watch]      needs root; loads run in random order
# The loads: `build` (workloads/build.sh, again and again), `pgbench` (select-only, two clients for each CPU; where there
# is PostgreSQL), `compute` (a loop on each CPU) and `idle`. NCPU is the program (target/release/ncpu).
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=3 seconds=30
while [ $# != 0 ]; do
  case $1 in
  -r) rounds=$2; shift 2 ;;
  -s) seconds=$2; shift 2 ;;
  --) shift; break ;;
  *) echo "usage: benches/always-on.sh [-r ROUNDS] [-s SECONDS] [-- OPTIONS]" >&2; exit 2 ;;
  esac
done
ncpu=$(realpath "${NCPU:-target/release/ncpu}")
[ -x "$ncpu" ] || { echo "build first: cargo build --release" >&2; exit 1; }
dir=$(mktemp -d)
chmod 755 "$dir"
load=
end() {
  [ -z "$load" ] || kill -- "-$load" 2> /dev/null || true
  wait || true
  rm -rf "$dir"
}
trap end EXIT
cpus=$(nproc) ticks=$(getconf CLK_TCK)
sources=$(workloads/build.sh -l)
loads=(build compute idle)
if ls /usr/lib/postgresql/*/bin/postgres > /dev/null 2>&1; then
  workloads/pgscale.sh init "$dir/db" > /dev/null 2>&1
  loads+=(pgbench)
fi

build() { while :; do workloads/build.sh -s "$sources" > /dev/null 2>&1; done; }
compute() { for _ in $(seq "$cpus"); do (while :; do :; done) & done; wait; }
pgbench() { exec workloads/pgscale.sh run "$dir/db" $((2 * cpus)) 3600 -S > /dev/null 2>&1; }
idle() { exec sleep 3600; }

# Percent of capacity: the process, and the layer with what its programs in the kernel take.
measured() { # LOAD
  rm -rf "$dir/rec"
  set -m
  "$1" & load=$!
  set +m
  sleep 3
  "$ncpu" watch --record "$dir/rec" --rotate 10m "${@:2}" "$((seconds + 13))" > "$dir/said" 2>&1 & local watch=$!
  used() { awk -v t="$ticks" '{ sub(/.*\) /, ""); print ($12 + $13) / t }' "/proc/$watch/stat"; }
  sleep 12 # It has begun, met what runs, and written its first two intervals.
  local before after
  before=$(used)
  sleep "$seconds"
  after=$(used)
  wait "$watch" || { cat "$dir/said" >&2; exit 1; }
  kill -- "-$load"
  wait "$load" 2> /dev/null || true
  load=
  "$ncpu" report "$dir"/rec/*.ncpu --table layers -o csv > "$dir/layers"
  awk -F, -v name="$1" -v before="$before" -v after="$after" -v c="$((seconds * cpus))" '
    $1 == "ncpu itself" { layer = $2 } $1 == "idle" { idle = $2 }
    END { printf "%-8s %9.3f %12.3f %6.1f\n", name, 100 * (after - before) / c, layer, idle }' "$dir/layers"
}
echo "$cpus CPUs, $(grep -m1 'model name' /proc/cpuinfo | cut -d: -f2- | sed 's/^ *//'), Linux $(uname -r), options: ${*:-none}"
printf '%-8s %9s %12s %6s\n' load process "ncpu itself" idle
for _ in $(seq "$rounds"); do
  for name in $(shuf -e "${loads[@]}"); do measured "$name" "$@"; done
done | tee "$dir/all"
awk '{ n[$1]++; p[$1] += $2; l[$1] += $3 } END { for (k in n) printf "mean of %s: process %.3f, ncpu itself %.3f\n", k, p[k] / n[k], l[k] / n[k] }' \
  "$dir/all"
