#!/bin/bash
# Whether a watch that is on for ever stays as large as it is: `ncpu watch --rotate` beside workloads/churn.c, which makes
# short processes, short threads, contended kernel locks of many files and user locks without number; the memory of ncpu
# by the minute, its slope, the CPU time it takes and what it dropped.
# usage: benches/endurance.sh [MINUTES [PROCESSES [THREADS [FILES [LOCKS]]]]]      needs root
# NCPU is the program, ROTATE how long a recording is (1m), STEP the seconds between lines (60).
set -euo pipefail
cd "$(dirname "$0")/.."
minutes=${1:-60} processes=${2:-400} threads=${3:-32} files=${4:-20000} locks=${5:-1000000}
ncpu=$(realpath "${NCPU:-target/release/ncpu}") rotate=${ROTATE:-1m} step=${STEP:-60}
[ -x "$ncpu" ] || { echo "build first: cargo build --release" >&2; exit 1; }
dir=$(mktemp -d)
load=
watch=
end() {
  [ -z "$load" ] || kill "$load" 2> /dev/null || true
  [ -z "$watch" ] || kill -INT "$watch" 2> /dev/null || true
  wait || true
  rm -rf "$dir"
}
trap end EXIT
cc -O2 -pthread -o "$dir/churn" workloads/churn.c
mkdir "$dir/files"
seconds=$((minutes * 60))
# In a session of its own, as a service is: the kernel shares CPUs among sessions.
setsid "$ncpu" watch --record "$dir/always" --rotate "$rotate" --max 2G 2> "$dir/said" &
watch=$!
until grep -qs 'until Ctrl-C' "$dir/said"; do
  kill -0 "$watch" 2> /dev/null || { cat "$dir/said" >&2; exit 1; }
  sleep 0.1
done
(cd "$dir/files" && exec "$dir/churn" "$seconds" "$processes" "$threads" "$files" "$locks" > "$dir/did") &
load=$!
echo "$(nproc) CPUs, $(grep -m1 'model name' /proc/cpuinfo | cut -d: -f2- | sed 's/^ *//'), Linux $(uname -r)"
echo "churn: at most $processes processes/s, $threads threads, $files files, $locks locks"
printf '%7s %9s %9s %7s %9s %10s\n' seconds 'RSS kB' 'own kB' files 'CPU %' recordings
ticks=$(getconf CLK_TCK)
used() { awk -v t="$ticks" '{ sub(/.*\) /, ""); print ($12 + $13) / t }' "/proc/$watch/stat"; }
field() { awk -v name="$1:" '$1 == name { print $2 }' "/proc/$watch/status"; }
before=$(used) at=0
while [ "$at" -lt "$seconds" ]; do
  sleep "$step"
  at=$((at + step))
  now=$(used)
  printf '%7d %9d %9d %7d %9s %10d\n' "$at" "$(field VmRSS)" "$(field RssAnon)" "$(ls "/proc/$watch/fd" | wc -l)" \
    "$(awk -v a="$before" -v b="$now" -v s="$step" -v n="$(nproc)" 'BEGIN { printf "%.2f", 100 * (b - a) / s / n }')" \
    "$(ls -d "$dir"/always/*.ncpu | wc -l)"
  before=$now
done | tee "$dir/lines"
wait "$load" || true
load=
kill -INT "$watch"
wait "$watch" || true
watch=
echo "it did: $(cat "$dir/did")"
# The first fifth is the warm-up. Own memory is without pages of files, which the kernel takes back when it wants them.
awk '{ t[++n] = $1 / 3600; m[n, 2] = $2; m[n, 3] = $3 }
  function slope(column, what,   i, k, st, sm, stt, stm, a) {
    for (i = int(n / 5) + 1; i <= n; i++) {
      k++; st += t[i]; sm += m[i, column]; stt += t[i] * t[i]; stm += t[i] * m[i, column]
    }
    if (k < 3) return
    a = (k * stm - st * sm) / (k * stt - st * st)
    printf "%s after the warm-up: %.0f kB, slope %.0f kB an hour (%.1f %%)\n", what, sm / k, a, 100 * a / (sm / k)
  }
  END { slope(2, "RSS"); slope(3, "own memory") }' "$dir/lines"
# What happens on the machine and may be dropped: other rows of that table are times, or a part of these.
events='^(TLB shootdowns (sent|received)|interrupts|softirqs|context switches)$'
count=0 drops=0
for recording in "$dir"/always/*.ncpu; do
  n=$("$ncpu" report "$recording" --table events -o csv 2> /dev/null | awk -F, -v events="$events" '$2 ~ events { s += $3 } END { printf "%d", s }')
  d=$("$ncpu" report "$recording" --table drops -o csv 2> /dev/null | tee -a "$dir/drops" | awk -F, 'NR > 1 { s += $NF } END { printf "%d", s }' || true)
  count=$((count + n)) drops=$((drops + ${d:-0}))
done
echo "events: $count, dropped: $drops"
grep -hv '^what' "$dir/drops" | awk -F, '{ n = $NF; sub(/,[^,]*$/, ""); s[$0] += n } END { for (w in s) print "  " s[w], w }' || true
"$ncpu" report "$(ls -d "$dir"/always/*.ncpu | tail -2 | head -1)" --table layers -o csv | awk -F, '/ncpu itself/ { print "ncpu itself, of the capacity, in the last but one recording: " $2 " %" }'
