#!/bin/bash
# What `ncpu hugepages --foretell` says that huge pages save a program, beside what they then do; and how much of its heap
# they cover.
#
#   benches/hugepages.sh [ROUNDS [MIB...]]     (default 7 64 256; takes gcc, and MIB a power of two)
#   NCPU=path/to/ncpu chooses the binary (default target/release/ncpu).
#
# The program reads all over its heap, each read where the one before it says. Foretold is from the outside, while it runs
# on small pages. Rounds interleave the program as it is and on huge pages; the fastest of each counts, as in foretelling.
set -eu
rounds=${1:-7}
shift || true
[ $# -gt 0 ] || set -- 64 256
here=$(cd "$(dirname "$0")/.." && pwd)
ncpu=${NCPU:-$here/target/release/ncpu}
[ -x "$ncpu" ] || { echo "$0: $ncpu is missing: cargo build --release" >&2; exit 1; }

dir=$(mktemp -d)
trap 'rm -rf "$dir"; [ -z "${pid:-}" ] || kill "$pid" 2>/dev/null' EXIT
gcc -O2 -g -Wall -Wextra -o "$dir/chase" "$here/workloads/chase.c"
echo "ns of a read, $rounds rounds in turn (load $(cut -d' ' -f1 /proc/loadavg), $(nproc) CPUs)"
for mib in "$@"; do
	"$dir/chase" "$mib" 1000000 &
	pid=$!
	# It is there once it has written all of its heap.
	until [ "$(awk '/^VmRSS/ { print int($2 / 1024) }' /proc/$pid/status)" -ge "$mib" ]; do sleep 0.05; done
	"$ncpu" hugepages -p $pid --foretell >/dev/null 2>"$dir/told"
	kill $pid
	wait $pid 2>/dev/null || true
	pid=
	sed -nE 's/.*: ([0-9.]+) ns on small pages, ([0-9.]+) on huge.*/\1 \2/p' "$dir/told" >"$dir/foretold"
	for round in $(seq "$rounds"); do
		echo "small $("$dir/chase" "$mib" 2)"
		echo "huge $("$ncpu" hugepages --no-text -- "$dir/chase" "$mib" 2)"
	done >"$dir/measured"
	"$ncpu" hugepages --no-text -- "$dir/chase" "$mib" 1000000 &
	pid=$!
	until [ "$(awk '/^VmRSS/ { print int($2 / 1024) }' /proc/$pid/status)" -ge "$mib" ]; do sleep 0.05; done
	huge=$("$ncpu" hugepages -p $pid -o csv 2>/dev/null |
		awk -F, 'NR > 1 && ($3 == "heap" || $3 == "anonymous") { r += $4; t += $5 } END { printf "%.1f", 100 * t / r }')
	kill $pid
	wait $pid 2>/dev/null || true
	pid=
	awk -v mib="$mib" -v cover="$huge" 'NR == FNR { small = $1; huge = $2; next }
		!($1 in best) || $2 < best[$1] { best[$1] = $2 }
		END { f = 1 - huge / small; m = 1 - best["huge"] / best["small"]
			printf "%4d MiB: foretold %.1f to %.1f (%.0f %% less), measured %.1f to %.1f (%.0f %% less); %s %% of heap huge\n",
				mib, small, huge, 100 * f, best["small"], best["huge"], 100 * m, cover }' "$dir/foretold" "$dir/measured"
done
