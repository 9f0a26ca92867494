#!/bin/bash
# `ncpu partition`: a program with one lock, alone on all CPUs and as an instance for each; SQLite readers on clones of one
# data set, with the page cache they take; how soon instances are ready.
#
#   benches/partition.sh [ROUNDS [MIB]]     (default 9 and 470; root, gcc; sqlite3 for the readers)
#   NCPU=path/to/ncpu chooses the binary (default target/release/ncpu); DIR, where the data set is made (default /var/tmp).
set -eu
rounds=${1:-9} mib=${2:-470}
here=$(cd "$(dirname "$0")/.." && pwd)
ncpu=${NCPU:-$here/target/release/ncpu}
[ -x "$ncpu" ] || { echo "$0: $ncpu is missing: cargo build --release" >&2; exit 1; }
cpus=$(nproc)

dir=$(mktemp -d -p "${DIR:-/var/tmp}")
trap 'rm -rf "$dir"' EXIT
cd "$dir"
gcc -O2 -g -Wall -Wextra -pthread -o onelock "$here/workloads/onelock.c"
echo "# $(grep -m 1 'model name' /proc/cpuinfo | sed 's/.*: //'), $cpus CPUs, load $(cut -d' ' -f1 /proc/loadavg)"
echo "\$ ncpu partition $cpus --metric '([0-9.]+) million' --rounds $rounds -- ./onelock {cpus} 0.5"
"$ncpu" partition "$cpus" --metric '([0-9.]+) million' --rounds "$rounds" -- ./onelock '{cpus}' 0.5

mkdir data
dd if=/dev/zero of=data/file bs=1M count=8 2>/dev/null
echo
echo "\$ ncpu partition $cpus --clone data -- true     # $rounds times"
for _ in $(seq "$rounds"); do "$ncpu" partition "$cpus" --clone data -- true 2>&1 >/dev/null | sed -n 's/.*ready in \(.*\) ms/\1/p'; done |
	sort -n | awk '{ v[NR] = $1 } END { printf "ready in %.1f ms (%.1f to %.1f)\n", v[int((NR + 1) / 2)], v[1], v[NR] }'

command -v sqlite3 >/dev/null || exit 0
sqlite3 data/x.db "create table t(k integer primary key, v blob); with recursive n(i) as (select 1 union all select i + 1 from n
	where i < $((mib * 1024))) insert into t select i, zeroblob(960) from n;"
sync
query='select count(*), sum(length(v)) from t where k % 3 = 1'
echo
echo "\$ ncpu partition 4 --share --clone data -- sqlite3 -readonly data/x.db '$query'"
"$ncpu" partition 4 --share --clone data -- sqlite3 -readonly data/x.db "$query"
echo
echo "\$ ncpu partition $cpus --clone data --time --rounds $rounds -- sqlite3 -readonly data/x.db '$query'"
"$ncpu" partition "$cpus" --clone data --time --rounds "$rounds" -- sqlite3 -readonly data/x.db "$query"
