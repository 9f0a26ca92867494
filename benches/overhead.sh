#!/bin/bash
# What ncpu run costs: its start and its report, beside bpftrace's null script; a parallel build's elapsed time, the whole
# of `ncpu run` and the command inside of it apart; memory.
# usage: benches/overhead.sh [ROUNDS]      needs root; bpftrace if there
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

env=$(command -v env)
for _ in $(seq "$rounds"); do
  for c in $(shuf -e true run attached bpftrace); do
    t=$(now)
    case $c in
    true) "$env" true; echo $((($(now) - t) / 1000)) >> "$dir/true" ;;
    run) "$ncpu" run -- "$env" true 2> /dev/null; echo $((($(now) - t) / 1000)) >> "$dir/run" ;;
    attached) began=$("$ncpu" run -- date +%s%N 2> /dev/null); echo $(((began - t) / 1000)) >> "$dir/attached" ;;
    bpftrace)
      command -v bpftrace > /dev/null || continue
      bpftrace -q -e 'BEGIN { exit(); }' > /dev/null 2>&1; echo $((($(now) - t) / 1000)) >> "$dir/bpftrace" ;;
    esac
  done
done
ms() { awk '{ print $1 / 1000 }' "$1"; }
ms "$dir/true" | summary ms "true"
ms "$dir/run" | summary ms "ncpu run -- true: start and report"
ms "$dir/attached" | summary ms "start of ncpu to start of the command"
[ ! -e "$dir/bpftrace" ] || ms "$dir/bpftrace" | summary ms "bpftrace that does nothing"

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
        # The command's own time, as the onion's first line has it.
        grep -oE '[0-9.]+ s elapsed' "$dir/onion" | awk '{ print 1000 * $1; exit }' >> "$dir/build-inside"
        grep -i dropped "$dir/onion" | sed "s/^/  round $round /" >> "$dir/dropped" || true
      fi
      echo $((($(now) - t) / 1000000)) >> "$dir/build-$c"
    done
  done
  cost() { paste "$dir/$1" "$dir/build-plain" | awk '{ print 100 * ($1 / $2 - 1) }'; }
  summary ms "parallel build" < "$dir/build-plain"
  summary ms "parallel build inside ncpu run" < "$dir/build-inside"
  summary ms "the whole of ncpu run" < "$dir/build-ncpu"
  cost build-inside | summary % "  cost inside, round by round"
  cost build-ncpu | summary % "  cost of the whole, round by round"
  summary MB "  resident memory of ncpu at its peak" < "$dir/rss"
  if [ -s "$dir/dropped" ]; then cat "$dir/dropped"; else echo "  nothing dropped in any round"; fi
fi
