#!/bin/bash
# Planted false sharing: `ncpu lines` must find it in workloads/falseshare.c and nothing in the same
# source with the padding it proposes; then both run in turn, and medians are compared.
#
#   benches/falseshare.sh [ROUNDS [MILLISECONDS]]     (default 11 500; takes gcc and two CPUs)
#   NCPU=path/to/ncpu chooses the binary (default target/release/ncpu).
#
# The program tells its median burst, so other load disturbs it little; it is told with the load.
set -eu
rounds=${1:-11} ms=${2:-500}
here=$(cd "$(dirname "$0")/.." && pwd)
ncpu=${NCPU:-$here/target/release/ncpu}
[ -x "$ncpu" ] || { echo "$0: $ncpu is missing: cargo build --release" >&2; exit 1; }
[ "$(nproc)" -ge 2 ] || { echo "$0: takes two CPUs" >&2; exit 1; }

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
gcc -O2 -g -Wall -Wextra -pthread -o "$dir/as-found" "$here/workloads/falseshare.c"
gcc -O2 -g -Wall -Wextra -pthread -DPADDED -o "$dir/padded" "$here/workloads/falseshare.c"

"$ncpu" lines --line 64 "$dir/as-found" 2>/dev/null
for name in put_lock get_lock workers; do
	"$ncpu" lines --line 64 -o csv --match "$name" "$dir/as-found" 2>/dev/null | grep -q '^1,lock' ||
		{ echo "$0: $name was not found" >&2; exit 1; }
done
left=$("$ncpu" lines --line 64 -o csv "$dir/padded" 2>/dev/null | tail -n +2)
[ -z "$left" ] || { echo "$0: found in the padded program: $left" >&2; exit 1; }

echo
echo "million operations a second, $rounds rounds of $ms ms in turn (load $(cut -d' ' -f1 /proc/loadavg), $(nproc) CPUs)"
for round in $(seq "$rounds"); do
	for program in as-found padded; do
		"$dir/$program" "$ms" | sed "s/^/$program /"
	done
done | sort -k2,2 -k1,1 -k3,3n | awk '
	{ n[$2, $1]++; value[$2, $1, n[$2, $1]] = $3; seen[$2] }
	function median(name, program,  k) {
		k = n[name, program]
		return (value[name, program, int((k + 1) / 2)] + value[name, program, int(k / 2) + 1]) / 2
	}
	END {
		for (name in seen) {
			a = median(name, "as-found"); b = median(name, "padded"); j = n[name, "as-found"]; k = n[name, "padded"]
			printf "%-9s as found %7.1f (%.1f to %.1f)  padded %7.1f (%.1f to %.1f)  ratio %.1f\n", name,
				a, value[name, "as-found", 1], value[name, "as-found", j],
				b, value[name, "padded", 1], value[name, "padded", k], b / a
		}
	}' | sort
