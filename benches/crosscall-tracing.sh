#!/bin/bash
# What tracing cross-calls costs the traced: throughput of threads that give memory back, each time with a
# TLB shootdown, pinned to two CPUs, untraced and under ncpu, bpftrace and perf, interleaved.
# usage: benches/crosscall-tracing.sh [ROUNDS [SECONDS]]      needs root; bpftrace and perf if there
. "$(dirname "$0")/tracing.bash"
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
compare times/s untraced ncpu-crosscalls ncpu-run bpftrace perf-record
