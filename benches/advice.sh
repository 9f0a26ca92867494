#!/bin/bash
# What a command of ncpu that changes how a program runs does to a program with the cause that it is for, and to one with the
# same cause in a report that is unlike it. A report may print a command (crates/show/report/src/commands.rs) only where it helps
# the first and does not hurt the second.
#
#   benches/advice.sh [ROUNDS [SECONDS]]     (default 7 1; takes gcc)
#   NCPU=path/to/ncpu chooses the binary (default target/release/ncpu)
#
# Rounds interleave the program as it is and under the command; the median of each counts. The verdict of a cause is `print`
# where the ratio of the first is above 1.05 and that of the other above 0.95, else `leave out`.
set -eu
rounds=${1:-7} seconds=${2:-1}
here=$(cd "$(dirname "$0")/.." && pwd)
ncpu=${NCPU:-$here/target/release/ncpu}
[ -x "$ncpu" ] || { echo "$0: $ncpu is missing: cargo build --release" >&2; exit 1; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
for each in touch onelock; do gcc -O2 -pthread -o "$dir/$each" "$here/workloads/$each.c"; done
cpus=$(nproc)
echo "# $(grep -m 1 'model name' /proc/cpuinfo | sed 's/.*: //'), $cpus CPUs, load $(cut -d' ' -f1 /proc/loadavg)"

# number COMMAND...: the throughput that it prints.
number() { "$@" 2>/dev/null | grep -oE '[0-9]+(\.[0-9]+)?' | head -n 1; }
median() { sort -n | awk '{ v[NR] = $1 } END { print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'; }

# ratio REMEDY... -- COMMAND...: throughput under the remedy over that without.
ratio() {
	local remedy=() round
	while [ "$1" != -- ]; do remedy+=("$1"); shift; done
	shift
	: >"$dir/bare"; : >"$dir/under"
	for ((round = 0; round < rounds; round++)); do
		number "$@" >>"$dir/bare"
		number "${remedy[@]}" -- "$@" >>"$dir/under"
	done
	echo "$(median <"$dir/under") $(median <"$dir/bare")" | awk '{ printf "%.2f", $1 / $2 }'
}

# verdict CAUSE COMMAND HELPED HURT
verdict() {
	echo "$1,$2,$3,$4,$(awk -v a="$3" -v b="$4" 'BEGIN { print (a > 1.05 && b > 0.95) ? "print" : "leave out" }')"
}
{
	echo "cause,command,the program,its look-alike,verdict"
	verdict "page faults and zeroing" "ncpu hugepages" \
		"$(ratio "$ncpu" hugepages -- "$dir/touch" dense "$seconds")" "$(ratio "$ncpu" hugepages -- "$dir/touch" sparse "$seconds")"
	verdict "run-queue waiting" "ncpu place balance" \
		"$(ratio "$ncpu" place balance -- taskset -c 0 "$dir/onelock" 2 "$seconds")" \
		"$(ratio "$ncpu" place balance -- "$dir/onelock" $((2 * cpus)) "$seconds")"
} | column -t -s,
