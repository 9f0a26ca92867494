#!/bin/bash
# Planted conflicts for sets of the first-level cache: `ncpu colour` measures whether they matter here, `ncpu lines --sets`
# must name all of them, and `ncpu preload stackbias` gives back what those of stacks cost.
#
#   benches/colour.sh [ROUNDS]     (default 11; takes gcc)
#   NCPU=path/to/ncpu chooses the binary (default target/release/ncpu).
set -eu
rounds=${1:-11}
here=$(cd "$(dirname "$0")/.." && pwd)
ncpu=${NCPU:-$here/target/release/ncpu}
[ -x "$ncpu" ] || { echo "$0: $ncpu is missing: cargo build --release" >&2; exit 1; }

dir=$(mktemp -d)
trap 'rm -rf "$dir"; [ -z "${pid:-}" ] || kill "$pid" 2>/dev/null' EXIT
gcc -O2 -g -Wall -Wextra -pthread -o "$dir/stackwalk" "$here/workloads/stackwalk.c"

"$ncpu" colour
"$dir/stackwalk" 24 1 60 >"$dir/ready" &
pid=$!
until grep -q ns "$dir/ready"; do sleep 0.01; done
"$ncpu" lines -p $pid --sets -o csv >"$dir/sets" 2>"$dir/notes"
cat "$dir/notes"
awk '{ n = gsub(/planted_/, ""); if (n > most) most = n } END { print most + 0 " of 20 locks named in one set" }' "$dir/sets"
awk -F, 'NR > 1 && $5 > most { most = $5 } END { print most + 0 " of 24 stacks named in one set" }' "$dir/sets"
kill $pid
wait $pid || true
pid=

echo
echo "ns of a node in a list through 24 stacks, $rounds rounds in turn (load $(cut -d' ' -f1 /proc/loadavg), $(nproc) CPUs)"
for round in $(seq "$rounds"); do
	echo "as-it-is $("$dir/stackwalk" 24 20)"
	echo "stackbias $("$ncpu" preload stackbias -- "$dir/stackwalk" 24 20)"
done | sort -k1,1 -k2,2n | awk '
	{ value[$1, ++n[$1]] = $2 }
	function median(who) { return value[who, int((n[who] + 1) / 2)] }
	function shown(who) { return sprintf("%s %.2f (%.2f to %.2f)", who, median(who), value[who, 1], value[who, n[who]]) }
	END { printf "%s  %s  ratio %.1f\n", shown("as-it-is"), shown("stackbias"), median("as-it-is") / median("stackbias") }'
