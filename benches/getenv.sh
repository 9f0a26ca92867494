#!/bin/bash
# getenv through the preload library beside glibc's, in the same program: what a look-up costs one thread, how readers
# scale, and what each does where other threads change the environment.
#
#   benches/getenv.sh [ROUNDS [SECONDS [TORTURE_SECONDS]]]     (default 7 0.5 5; takes gcc)
#   NCPU=path/to/ncpu chooses the binary (default target/release/ncpu).
#
# Rounds interleave the two; the median is shown, and least and most, with the load.
set -eu
rounds=${1:-7} seconds=${2:-0.5} torture=${3:-5}
here=$(cd "$(dirname "$0")/.." && pwd)
ncpu=${NCPU:-$here/target/release/ncpu}
[ -x "$ncpu" ] || { echo "$0: $ncpu is missing: cargo build --release" >&2; exit 1; }

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
gcc -O2 -Wall -Wextra -pthread -o "$dir/envtorture" "$here/workloads/envtorture.c"

echo "million look-ups a second in $(getconf GNU_LIBC_VERSION), $rounds rounds of $seconds s in turn" \
	"(load $(cut -d' ' -f1 /proc/loadavg), $(nproc) CPUs)"
for threads in 1 2 $([ "$(nproc)" -le 2 ] || nproc); do
	for round in $(seq "$rounds"); do
		echo "$threads glibc $("$dir/envtorture" "$threads" 0 "$seconds")"
		echo "$threads ncpu $("$ncpu" preload getenv -- "$dir/envtorture" "$threads" 0 "$seconds")"
	done
done | sort -k1,1n -k2,2 -k3,3n | awk '
	{ n[$1, $2]++; value[$1, $2, n[$1, $2]] = $3; if (!($1 in seen)) { seen[$1]; order[++kinds] = $1 } }
	function median(threads, who,  k) {
		k = n[threads, who]
		return (value[threads, who, int((k + 1) / 2)] + value[threads, who, int(k / 2) + 1]) / 2
	}
	function shown(threads, who) {
		return sprintf("%s %6.1f (%.1f to %.1f)", who, median(threads, who), value[threads, who, 1],
			value[threads, who, n[threads, who]])
	}
	END {
		for (i = 1; i <= kinds; i++) {
			t = order[i]
			printf "%2d threads: %s  %s  ratio %.2f; of one thread: glibc %.2f, ncpu %.2f\n", t, shown(t, "glibc"),
				shown(t, "ncpu"), median(t, "ncpu") / median(t, "glibc"), median(t, "glibc") / median(1, "glibc"),
				median(t, "ncpu") / median(1, "ncpu")
		}
	}'

echo
echo "4 readers beside 2 writers, $torture s"
for who in glibc ncpu; do
	status=0
	if [ $who = glibc ]; then
		said=$("$dir/envtorture" 4 2 "$torture" 2>&1) || status=$?
	else
		said=$("$ncpu" preload getenv -- "$dir/envtorture" 4 2 "$torture" 2>&1) || status=$?
	fi
	echo "$who: exit status $status${said:+: $said}"
done 2>/dev/null
