#!/bin/bash
# The speed that the hottest program of each group of probes keeps with --probes off, auto and all. Interleaved rounds, in
# another order each; medians of the ratios to the round's untraced run. Needs root, gcc, and go for the first three.
# Usage: benches/probe-budget.sh [ROUNDS [SECONDS [PROGRAM...]]]
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${1:-5} seconds=${2:-2}
shift $(($# < 2 ? $# : 2))
programs=${*:-go-rwmutex go-writes go-mutex libncpu calls faults}
ncpu=${NCPU:-target/release/ncpu}
[ -x "$ncpu" ] || { echo "build first: cargo build --release" >&2; exit 1; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
gcc -O2 -pthread -o "$dir/hot" benches/probe-budget/hot.c
if command -v go > /dev/null; then
  GOTOOLCHAIN=local GO111MODULE=off go build -o "$dir/rw" benches/probe-budget/rw.go
else
  programs=${programs//go-*([a-z])/}
fi
cpus=$(nproc)

# The command of a program, which prints one number.
command_of() {
  case $1 in
  go-rwmutex) echo "$dir/rw 10 8 $seconds" ;;
  go-writes) echo "$dir/rw 100 8 $seconds" ;;
  go-mutex) echo "$dir/rw mutex 8 $seconds" ;;
  libncpu) echo "$dir/libncpu 8 $seconds" ;;
  calls) echo "$dir/hot calls $seconds $cpus" ;;
  faults) echo "$dir/hot faults $seconds $cpus" ;;
  *) echo "unknown program $1" >&2; exit 1 ;;
  esac
}

# `run PROGRAM MODE`: the number.
run() {
  local command pid
  command=$(command_of "$1")
  if [ "$2" = none ]; then
    $command
  elif [ "$1" = calls ] || [ "$1" = faults ]; then
    # Per-call tracing is of `ncpu threads`, which watches what runs.
    $command > "$dir/out" & pid=$!
    "$ncpu" threads --probes "$2" -p "$pid" 1 > /dev/null 2>> "$dir/log" || true
    wait "$pid"
    cat "$dir/out"
  else
    "$ncpu" run --probes "$2" -- $command 2>> "$dir/log"
  fi
}

if [[ " $programs " == *" libncpu "* ]]; then
  gcc -O2 -pthread -o "$dir/libncpu" -I crates/fix/libncpu-c/include benches/probe-budget/locks.c "${LIBNCPU:-target/release/libncpu.a}" -lm
fi
grep -m1 "model name" /proc/cpuinfo | sed 's/.*: //'
printf '%-12s %14s %22s %22s %22s\n' program "median/s" "kept: off" "auto" "all"
for program in $programs; do
  for round in $(seq "$rounds"); do
    for mode in $(shuf -e none off auto all); do
      echo "$round $mode $(run "$program" "$mode")"
    done
  done > "$dir/results"
  awk -v program="$program" '
    { v[$1, $2] = $3; if ($1 > n) n = $1 }
    function sorted(a, n,   i, j, t) {
      for (i = 2; i <= n; i++) for (j = i; j > 1 && a[j] < a[j-1]; j--) { t = a[j]; a[j] = a[j-1]; a[j-1] = t }
    }
    function median(a, n) { return n % 2 ? a[(n+1)/2] : (a[n/2] + a[n/2+1]) / 2 }
    END {
      for (r = 1; r <= n; r++) base[r] = v[r, "none"]
      for (m = split("off auto all", modes, " "); m >= 1; m--) {
        for (r = 1; r <= n; r++) kept[r] = v[r, modes[m]] / v[r, "none"]
        sorted(kept, n)
        out[m] = sprintf("%.3f (%.3f-%.3f)", median(kept, n), kept[1], kept[n])
      }
      sorted(base, n)
      printf "%-12s %14.0f %22s %22s %22s\n", program, median(base, n), out[1], out[2], out[3]
    }' "$dir/results"
done
