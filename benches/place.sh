#!/bin/bash
# `ncpu place balance` beside its peers, on the guest's 8 nodes, in one boot: what becomes of a database that began without
# regard to nodes; then on this machine, what balancing costs a program that has nothing to gain.
#
#   benches/place.sh [ROUNDS]     (default 11; 0 leaves this machine out; takes what tests/vm/run takes)
#   NCPU=path/to/ncpu chooses the binary (default target/release/ncpu), NCPU_STATIC the one for the guest
#   (default target/static/ncpu); GUEST=no leaves the guest out.
#
# Guests' CPUs are emulated, and their nodes are all equally near: what is compared is where threads and pages are, not how
# fast they get on.
set -eu
rounds=${1:-11}
here=$(cd "$(dirname "$0")/.." && pwd)
ncpu=${NCPU:-$here/target/release/ncpu}

if [ "${GUEST:-yes}" = yes ]; then
	kernel=${KERNEL:-trixie-backports}
	cases="place-none place-kernel place-numactl place-taskset place-numad place-ncpu"
	# shellcheck disable=SC2086 # a list
	NCPU=${NCPU_STATIC:-$here/target/static/ncpu} NCPU_VM_KERNELS=$kernel "$here/tests/vm/run" $cases || true
	{
		echo "how,level after s,local %,most of shared on a node %,uneven threads,reads k,own CPU s"
		for each in $cases; do tail -n 1 "$here/target/vm/results/$kernel/$each/out"; done
	} | column -t -s,
	grep -h '^ncpu:' "$here/target/vm/results/$kernel/place-ncpu/notes" || true
fi

[ "$rounds" -gt 0 ] || exit 0
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
gcc -O2 -g -Wall -Wextra -pthread -o "$dir/mallocs" "$here/workloads/mallocs.c"
echo "buffers a second of mallocs, $rounds rounds in turn (load $(cut -d' ' -f1 /proc/loadavg), $(nproc) CPUs)"
for round in $(seq "$rounds"); do
	echo "$round alone $("$dir/mallocs" 2 30000)"
	echo "$round balanced $("$ncpu" place balance -- "$dir/mallocs" 2 30000 2>>"$dir/notes")"
done | awk '
	{ x[$1, $2] = $3; n = $1 > n ? $1 : n }
	END { for (i = 1; i <= n; i++) print x[i, "balanced"] / x[i, "alone"] }' | sort -n | awk '
	{ v[NR] = $1 } END { printf "balanced over alone: median %.3f (%.3f to %.3f)\n", v[int((NR + 1) / 2)], v[1], v[NR] }'
grep -h 'CPU-seconds' "$dir/notes" | sort -t, -k2 | awk '{ v[NR] = $0 } END { print v[int((NR + 1) / 2)] }'
