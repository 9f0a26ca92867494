#!/bin/bash
# What tracing kernel locks costs the traced: throughput of the contended dup2/close torture, pinned
# to two CPUs, untraced and under ncpu, bpftrace and perf lock, interleaved.
# usage: benches/lock-tracing.sh [ROUNDS [SECONDS]]      needs root; bpftrace and perf if there
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${1:-10} seconds=${2:-2}
ncpu=${NCPU:-target/release/ncpu}
[ -x "$ncpu" ] || { echo "build first: cargo build --release" >&2; exit 1; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cc -O2 -pthread -o "$dir/torture" workloads/fdtorture.c
torture=("$(command -v taskset)" -c 0,1 "$dir/torture" 4 "$seconds")
ops() { grep -oE '[0-9]+(\.[0-9]+)? (ops/s|operations per second)' | head -1 | cut -d' ' -f1; }

# The same job for bpftrace: count and time by lock and caller's stack, three frames.
cat > "$dir/locks.bt" <<'BT'
tracepoint:lock:contention_begin { @at[tid] = nsecs; @lock[tid] = args->lock_addr; @stack[tid] = kstack(6); }
tracepoint:lock:contention_end /@at[tid]/ {
  @time[@lock[tid], @stack[tid]] = stats(nsecs - @at[tid]);
  delete(@at[tid]); delete(@lock[tid]); delete(@stack[tid]);
}
BT

run() {
  case $1 in
  untraced) "${torture[@]}" ;;
  ncpu-locks) "$ncpu" locks -- "${torture[@]}" ;;
  ncpu-run) "$ncpu" run -- "${torture[@]}" 2>/dev/null ;;
  bpftrace) bpftrace -q -c "${torture[*]}" "$dir/locks.bt" ;;
  perf-lock) perf lock record -o "$dir/perf.data" -- "${torture[@]}" 2>/dev/null ;;
  esac | ops
}
cases=(untraced ncpu-locks ncpu-run)
mountpoint -q /sys/kernel/tracing || mount -t tracefs nodev /sys/kernel/tracing
if command -v bpftrace > /dev/null; then cases+=(bpftrace); else echo "no bpftrace (apt-get install bpftrace)"; fi
if command -v perf > /dev/null; then cases+=(perf-lock); else echo "no perf (apt-get install linux-perf)"; fi
for round in $(seq "$rounds"); do
  for c in $(shuf -e "${cases[@]}"); do
    echo "$round $c $(run "$c" || echo failed)"
  done
done > "$dir/results"
awk '
  $3 == "failed" || $3 == "" { failed[$2]++; next }
  { v[$1, $2] = $3; seen[$2] = 1 }
  function median(a, n,   i, j, t) {
    for (i = 2; i <= n; i++) for (j = i; j > 1 && a[j] < a[j-1]; j--) { t = a[j]; a[j] = a[j-1]; a[j-1] = t }
    return n % 2 ? a[(n+1)/2] : (a[n/2] + a[n/2+1]) / 2
  }
  END {
    printf "%-11s %9s %14s %20s\n", "", "rounds", "ops/s median", "kept: median (range)"
    n = split("untraced ncpu-locks ncpu-run bpftrace perf-lock", order, " ")
    for (o = 1; o <= n; o++) {
      c = order[o]; if (!(c in seen)) { if (c in failed) print c, "failed", failed[c], "times"; continue }
      k = 0
      for (r = 1; r <= '"$rounds"'; r++) if (((r, c) in v) && ((r, "untraced") in v)) { k++; abs[k] = v[r, c]; rel[k] = v[r, c] / v[r, "untraced"] }
      m = median(rel, k); kept[c] = m
      printf "%-11s %9d %14.0f      %.3f (%.3f-%.3f)\n", c, k, median(abs, k), m, rel[1], rel[k]
    }
    if (kept["bpftrace"] > 0) printf "ncpu locks keeps %.2f times, ncpu run %.2f times, the throughput bpftrace keeps\n", kept["ncpu-locks"] / kept["bpftrace"], kept["ncpu-run"] / kept["bpftrace"]
  }' "$dir/results"
