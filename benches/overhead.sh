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
[ -x "${build[0]}" ] || exit 0
. benches/nothing.bash
# The tracepoints of `ncpu run` that a build meets.
cases=(plain ncpu)
! nothing_at sched_switch sched_wakeup sched_wakeup_new sched_process_fork contention_begin contention_end tlb_flush \
  local_timer_entry local_timer_exit reschedule_entry reschedule_exit call_function_entry call_function_exit \
  call_function_single_entry call_function_single_exit irq_work_entry irq_work_exit irq_handler_entry irq_handler_exit \
  softirq_entry softirq_exit || cases+=(nothing)
cat > "$dir/inside" <<'SH'
#!/bin/bash
# Elapsed and CPU milliseconds of the command, told in a file: from inside of what observes it.
out=$1; shift
TIMEFORMAT='%R %U %S'
{ time "$@" > /dev/null 2>&1; } 2> "$out"
SH
chmod +x "$dir/inside"
inside() { # CASE [OBSERVER...]: the build inside of it
  "${@:2}" "$dir/inside" "$dir/times" "${build[@]}"
  awk '{ print 1000 * $1 }' "$dir/times" >> "$dir/inside-$1"
  awk '{ print 1000 * ($2 + $3) }' "$dir/times" >> "$dir/cpu-$1"
}
for round in $(seq "$rounds"); do
  for c in $(shuf -e "${cases[@]}"); do
    t=$(now)
    case $c in
    plain) inside plain ;;
    nothing) inside nothing "$dir/attach" "$dir/nothing.o" ;;
    ncpu)
      inside ncpu "$ncpu" run -- 2> "$dir/onion" & pid=$!
      peak=0
      while kill -0 $pid 2> /dev/null; do
        for p in $(pgrep -P $pid -x ncpu); do
          rss=$(awk '/VmHWM/ { print $2 }' /proc/$p/status 2> /dev/null || true)
          [ "${rss:-0}" -le "$peak" ] || peak=$rss
        done
        sleep 0.2
      done
      wait $pid; echo $((peak / 1024)) >> "$dir/rss"
      grep -E '(^|: )dropped: ' "$dir/onion" | sed "s/^/  round $round /" >> "$dir/dropped" || true ;;
    esac
    echo $((($(now) - t) / 1000000)) >> "$dir/whole-$c"
  done
done
# Median and range; and the mean with its standard error, since a median of few rounds jumps.
cost() {
  paste "$dir/$1" "$dir/$2" | awk '{ print 100 * ($1 / $2 - 1) }' > "$dir/cost"
  summary % "$3" < "$dir/cost"
  awk '{ s += $1; q += $1 * $1 } END { m = s / NR; e = NR > 1 ? sqrt((q / NR - m * m) / (NR - 1)) : 0; printf "%-46s %9.1f %% (standard error %.1f, %d rounds)\n", "    mean", m, e, NR }' "$dir/cost"
}
summary ms "parallel build" < "$dir/inside-plain"
summary ms "parallel build inside ncpu run" < "$dir/inside-ncpu"
summary ms "the whole of ncpu run" < "$dir/whole-ncpu"
for c in ncpu nothing; do
  [ -e "$dir/inside-$c" ] || continue
  name="ncpu run"; [ $c = ncpu ] || name="programs that do nothing"
  cost inside-$c inside-plain "  $name: elapsed inside"
  cost cpu-$c cpu-plain "  $name: CPU time of the build"
done
cost whole-ncpu whole-plain "  ncpu run: the whole"
summary MB "  resident memory of ncpu at its peak" < "$dir/rss"
if [ -s "$dir/dropped" ]; then cat "$dir/dropped"; else echo "  nothing dropped in any round"; fi
