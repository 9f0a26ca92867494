#!/bin/bash
# What tracing cross-calls costs the traced: throughput of threads that give memory back, each time with a
# TLB shootdown, pinned to two CPUs, untraced and under ncpu, bpftrace and perf, interleaved.
# usage: benches/crosscall-tracing.sh [ROUNDS [SECONDS]]      needs root; bpftrace and perf if there
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${1:-10} seconds=${2:-2}
ncpu=${NCPU:-target/release/ncpu}
[ -x "$ncpu" ] || { echo "build first: cargo build --release" >&2; exit 1; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cc -O2 -pthread -o "$dir/munmap" workloads/munmap.c
work=("$(command -v taskset)" -c 0,1 "$dir/munmap" --madvise 4 "$seconds")
ops() { sed -n 's|.* \([0-9]*\) times/s$|\1|p' | head -1; }

# A part of the same job for bpftrace: shootdowns by sender and stack, interrupts sent, time at receivers.
cat > "$dir/calls.bt" <<'BT'
tracepoint:tlb:tlb_flush /args->reason == 4/ { @shootdowns[comm, kstack(6)] = count(); }
tracepoint:ipi:ipi_send_cpu { @sent[comm, args->callback] = count(); }
tracepoint:irq_vectors:call_function_single_entry { @at[cpu] = nsecs; }
tracepoint:irq_vectors:call_function_single_exit /@at[cpu]/ { @answer = stats(nsecs - @at[cpu]); delete(@at[cpu]); }
BT

run() {
  case $1 in
  untraced) "${work[@]}" ;;
  ncpu-crosscalls) "$ncpu" crosscalls -- "${work[@]}" ;;
  ncpu-run) "$ncpu" run -- "${work[@]}" 2>/dev/null ;;
  bpftrace) bpftrace -q -c "${work[*]}" "$dir/calls.bt" ;;
  perf-record) perf record -q -g -e tlb:tlb_flush -e 'ipi:*' -e 'csd:*' -o "$dir/perf.data" -- "${work[@]}" 2>/dev/null ;;
  esac | ops
}
cases=(untraced ncpu-crosscalls ncpu-run)
mountpoint -q /sys/kernel/tracing || mount -t tracefs nodev /sys/kernel/tracing
if command -v bpftrace > /dev/null; then cases+=(bpftrace); else echo "no bpftrace (apt-get install bpftrace)"; fi
if command -v perf > /dev/null; then cases+=(perf-record); else echo "no perf (apt-get install linux-perf)"; fi
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
    printf "%-15s %9s %14s %20s\n", "", "rounds", "times/s median", "kept: median (range)"
    n = split("untraced ncpu-crosscalls ncpu-run bpftrace perf-record", order, " ")
    for (o = 1; o <= n; o++) {
      c = order[o]; if (!(c in seen)) { if (c in failed) print c, "failed", failed[c], "times"; continue }
      k = 0
      for (r = 1; r <= '"$rounds"'; r++) if (((r, c) in v) && ((r, "untraced") in v)) { k++; abs[k] = v[r, c]; rel[k] = v[r, c] / v[r, "untraced"] }
      m = median(rel, k); kept[c] = m
      printf "%-15s %9d %14.0f      %.3f (%.3f-%.3f)\n", c, k, median(abs, k), m, rel[1], rel[k]
    }
    if (kept["bpftrace"] > 0) printf "ncpu crosscalls keeps %.2f times the throughput bpftrace keeps\n", kept["ncpu-crosscalls"] / kept["bpftrace"]
  }' "$dir/results"
