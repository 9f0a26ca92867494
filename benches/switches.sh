#!/bin/bash
# What observing costs where nearly all a program does is switch threads: round trips of a byte through two pipes
# between two processes on one CPU, plain, under ncpu, bpftrace counting switches and perf recording them, interleaved;
# in runs of 0.4 s, so that the first moment counts, and of 4 s.
# usage: benches/switches.sh [ROUNDS [SECONDS ...]]      needs root; bpftrace and perf if there
rounds=${1:-10}
shift || true
lengths=("${@:-}")
[ -n "${lengths[0]}" ] || lengths=(0.4 4)
set -- "$rounds"
. "$(dirname "$0")/tracing.bash"
cc -O2 -o "$dir/pingpong" workloads/pingpong.c

# The last CPU, so that it is not the one that most interrupts go to.
cpu=$(($(nproc) - 1))
trips() { grep -oE '[0-9]+ round trips/s' | head -1 | cut -d' ' -f1; }
run() {
  local command=("$(command -v taskset)" -c "$cpu" "$dir/pingpong" "$seconds")
  case $1 in
  untraced) "${command[@]}" ;;
  ncpu-run) "$ncpu" run -- "${command[@]}" 2> "$dir/onion"; grep 'ncpu itself' "$dir/onion" >> "$dir/itself" ;;
  ncpu-locks) "$ncpu" locks -- "${command[@]}" 2> /dev/null ;;
  bpftrace) bpftrace -q -e 'tracepoint:sched:sched_switch { @ = count(); }' -c "${command[*]}" 2> /dev/null ;;
  perf-record) perf record -q -e sched:sched_switch -a -o "$dir/perf.data" -- "${command[@]}" 2> /dev/null ;;
  esac | trips
}
for seconds in "${lengths[@]}"; do
  echo "== runs of $seconds s"
  : > "$dir/itself"
  compare trips/s untraced ncpu-run ncpu-locks bpftrace perf-record
  awk '{ n++; s += $1 } END { if (n) printf "ncpu itself, of the machine, as ncpu run tells it: %.1f %%\n", s / n }' "$dir/itself"
done
