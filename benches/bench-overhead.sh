#!/bin/bash
# What measuring costs: the shortest case in batches that the runner chose, beside the same loop in batches so long
# (0.7 ms) that reading the clock does not count, and short enough for most to be left alone by other machines; how long `ncpu bench` takes to start; how long the whole suite takes.
#
#   benches/bench-overhead.sh [ROUNDS]      (default 9)
#   NCPU=FILE chooses the binary, CPU=N the CPU (default: the last); SUITE=no leaves out the suite.
set -euo pipefail
rounds=${1:-9}
ncpu=${NCPU:-$(dirname "$0")/../target/release/ncpu}
[ -x "$ncpu" ] || { echo "$0: $ncpu is missing: cargo build --release" >&2; exit 1; }
cpu=${CPU:-$(($(nproc) - 1))}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

nop() { taskset -c "$cpu" "$ncpu" bench nop "$@" -o csv | awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i } NR == 2 { print 1000 * $at["time"], $at["cnt/samp"] }'; }
median() { sort -g | awk '{ a[NR] = $1 } END { print NR % 2 ? a[(NR + 1) / 2] : (a[NR / 2] + a[NR / 2 + 1]) / 2 }'; }

for _ in $(seq "$rounds"); do
	nop -B 2000000 -C 50 -D 300 >>"$dir/bare"
	nop >>"$dir/measured"
	start=$(date +%s%N)
	"$ncpu" bench nop -B 1 -C 1 -D 1 >"$dir/out"
	echo $((($(date +%s%N) - start) / 1000000)) >>"$dir/start"
done
bare=$(median <"$dir/bare") measured=$(median <"$dir/measured")
awk -v b="$bare" -v m="$measured" -v n="$(tail -1 "$dir/measured" | cut -d' ' -f2)" 'BEGIN {
	printf "bare loop                 %.4f ns/op\nin batches of %-11d %.4f ns/op: %+.2f %%\n", b, n, m, 100 * (m / b - 1) }'
echo "a bench of one operation  $(median <"$dir/start") ms from start to end"
if [ "${SUITE:-yes}" = yes ]; then
	start=$SECONDS
	"$ncpu" bench --suite libmicro >"$dir/suite"
	echo "ncpu bench --suite libmicro: $(($(wc -l <"$dir/suite") - 1)) cases in $((SECONDS - start)) s on $(nproc) CPUs"
fi
