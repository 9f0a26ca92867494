#!/bin/bash
# What counting timers costs: CPU time of a call of poll that arms one, with and without `ncpu timers --who`,
# interleaved. Usage: benches/timers.sh [NCPU [ROUNDS]]
set -eu
ncpu=${1:-target/release/ncpu}
rounds=${2:-7}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
TIMEFORMAT='%U %S'

# us of CPU time a call of 50 threads that poll for 1 ms.
cost() {
    local cpu calls
    cpu=$({ time "$ncpu" timers --poll 50 --times 1ms -o csv 2 >"$dir/herd"; } 2>&1 | awk '{print $1 + $2}')
    calls=$(tail -1 "$dir/herd" | cut -d, -f3)
    awk -v cpu="$cpu" -v calls="$calls" 'BEGIN { printf "%.3f\n", cpu * 1e6 / (calls * 2) }'
}

for _ in $(seq "$rounds"); do
    cost >>"$dir/without"
    "$ncpu" timers --who 3 >"$dir/who" &
    sleep 0.5
    cost >>"$dir/with"
    wait
done
for side in without with; do
    echo "$side --who: $(sort -n "$dir/$side" | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }') us a call (median of $rounds)"
done
