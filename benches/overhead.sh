#!/bin/bash
# What ncpu run costs: start-up, a parallel build's elapsed time, memory.
# usage: benches/overhead.sh [ROUNDS]      needs root
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${1:-7}
ncpu=${NCPU:-target/release/ncpu}
[ -x "$ncpu" ] || { echo "build first: cargo build --release" >&2; exit 1; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
now() { date +%s%N; }
summary() { # unit name: median and range of the numbers on stdin
  sort -n | awk -v u="$1" -v n="$2" '{ a[NR] = $1 } END { m = NR % 2 ? a[(NR+1)/2] : (a[NR/2] + a[NR/2+1]) / 2; printf "%-46s %9.1f %s (%.1f-%.1f)\n", n, m, u, a[1], a[NR] }'
}

for _ in $(seq "$rounds"); do
  t=$(now); true_bin=$(command -v env); "$true_bin" true; echo $((($(now) - t) / 1000)) >> "$dir/true"
  t=$(now); "$ncpu" run -- "$true_bin" true 2> /dev/null; echo $((($(now) - t) / 1000)) >> "$dir/run"
  t=$(now); began=$("$ncpu" run -- date +%s%N 2> /dev/null); echo $(((began - t) / 1000)) >> "$dir/attached"
done
awk '{ print $1 / 1000 }' "$dir/true" | summary ms "true"
awk '{ print $1 / 1000 }' "$dir/run" | summary ms "ncpu run -- true"
awk '{ print $1 / 1000 }' "$dir/attached" | summary ms "start of ncpu to start of the command"

build=(workloads/build.sh -s "$(workloads/build.sh -l)")
if [ -x "${build[0]}" ]; then
  for round in $(seq "$rounds"); do
    for c in $(shuf -e plain ncpu); do
      t=$(now)
      if [ "$c" = plain ]; then "${build[@]}" > /dev/null 2>&1; else
        "$ncpu" run -- "${build[@]}" > /dev/null 2> "$dir/onion" & pid=$!
        peak=0
        while kill -0 $pid 2> /dev/null; do
          rss=$(awk '/VmHWM/ { print $2 }' /proc/$pid/status 2> /dev/null || true)
          [ -n "$rss" ] && peak=$rss
          sleep 0.2
        done
        wait $pid; echo $((peak / 1024)) >> "$dir/rss"
      fi
      echo $((($(now) - t) / 1000000)) >> "$dir/build-$c"
    done
  done
  summary ms "parallel build" < "$dir/build-plain"
  summary ms "parallel build under ncpu run" < "$dir/build-ncpu"
  paste "$dir/build-ncpu" "$dir/build-plain" | awk '{ print 100 * ($1 / $2 - 1) }' | summary % "  cost, round by round"
  summary MB "  resident memory of ncpu at its peak" < "$dir/rss"
  grep -i dropped "$dir/onion" || echo "  nothing dropped"
fi
