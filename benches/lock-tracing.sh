#!/bin/bash
# What tracing kernel locks costs the traced: throughput of the contended dup2/close torture, pinned
# to two CPUs, untraced and under ncpu, bpftrace and perf lock, interleaved; under ncpu as it is, which counts such
# waits in windows, and with `--probes all`; and with BPF programs at the two tracepoints that do nothing at all,
# which is what the kernel itself takes for each wait.
# usage: benches/lock-tracing.sh [ROUNDS [SECONDS]]      needs root; bpftrace, perf and libbpf-dev if there
. "$(dirname "$0")/tracing.bash"
. benches/nothing.bash
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

nothing=nothing
nothing_at contention_begin contention_end || nothing=

run() {
  case $1 in
  untraced) "${torture[@]}" ;;
  ncpu-locks) "$ncpu" locks -- "${torture[@]}" 2>/dev/null ;;
  ncpu-run) "$ncpu" run -- "${torture[@]}" 2>/dev/null ;;
  ncpu-run-all) "$ncpu" run --probes all -- "${torture[@]}" 2>/dev/null ;;
  nothing) "$dir/attach" "$dir/nothing.o" "${torture[@]}" ;;
  bpftrace) bpftrace -q -c "${torture[*]}" "$dir/locks.bt" 2>/dev/null ;;
  perf-lock) perf lock record -o "$dir/perf.data" -- "${torture[@]}" 2>/dev/null ;;
  esac | ops
}
compare ops/s untraced ncpu-run ncpu-locks ncpu-run-all $nothing bpftrace perf-lock
