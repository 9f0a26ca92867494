#!/bin/bash
# CPU time of `ncpu cpus` and of sysstat's `mpstat -P ALL` on a machine of many CPUs: a generated
# /proc/stat that changes twice a second and /sys/devices/system/cpu are bind-mounted over the real
# ones in a mount namespace. Both print the columns mpstat has, every CPU, once a second.
#
#   benches/cpus-vs-mpstat.sh [CPUS [ROUNDS [SECONDS]]]     (default 1536 3 5; takes root)
#   NCPU=path/to/ncpu chooses the binary (default target/release/ncpu).
set -eu
cpus=${1:-1536} rounds=${2:-3} seconds=${3:-5}
ncpu=${NCPU:-$(dirname "$0")/../target/release/ncpu}

[ "$(id -u)" = 0 ] || { echo "$0: bind-mounting /proc/stat takes root" >&2; exit 1; }
command -v mpstat >/dev/null || { echo "$0: mpstat is missing (Debian: apt-get install sysstat)" >&2; exit 1; }
[ -x "$ncpu" ] || { echo "$0: $ncpu is missing: cargo build --release" >&2; exit 1; }
ncpu=$(realpath "$ncpu")

if [ -z "${IN_NAMESPACE:-}" ]; then
	dir=$(mktemp -d)
	trap 'rm -rf "$dir"' EXIT
	DIR=$dir IN_NAMESPACE=1 NCPU=$ncpu unshare -m --propagation private bash "$0" "$cpus" "$rounds" "$seconds"
	exit
fi

# Every version of the file has the same length, so that it is rewritten in place.
versions=$((2 * seconds + 8))
generate() { # CPUS
	awk -v cpus="$1" -v versions="$versions" -v dir="$DIR" 'BEGIN {
		for (v = 1; v <= versions; v++) {
			file = dir "/stat." v
			base = 10000000 + v * 50
			line = ""
			for (i = 0; i < 10; i++) line = line " " (base + v * i)
			print "cpu " line > file
			for (c = 0; c < cpus; c++) print "cpu" c line > file
			print "intr 5551869 0 0 0\nctxt 699342\nbtime 1795274497\nprocesses 14419\nprocs_running 3\nprocs_blocked 0\nsoftirq 297049 0 32311 4" > file
			close(file)
		}
	}'
	cp "$DIR/stat.1" "$DIR/stat"
	rm -rf "$DIR/cpu"
	mkdir "$DIR/cpu"
	(cd "$DIR/cpu" && seq -f 'cpu%.0f' 0 $(($1 - 1)) | xargs mkdir)
	for f in online possible present; do echo "0-$(($1 - 1))" > "$DIR/cpu/$f"; done
}

change() {
	for v in $(seq 1 "$versions"); do
		dd if="$DIR/stat.$v" of="$DIR/stat" conv=notrunc bs=1M status=none
		sleep 0.5
	done
}

cpu_seconds() { # COMMAND...
	change &
	local writer=$!
	local TIMEFORMAT='%U %S'
	# The writer is not waited for inside, so only the command is timed.
	{ time "$@" >/dev/null 2>/dev/null; } 2>&1 | awk '{ printf "%.3f\n", $1 + $2 }'
	kill "$writer"
	wait "$writer" 2>/dev/null || true
}

generate "$cpus"
mount --bind "$DIR/stat" /proc/stat
mount --bind "$DIR/cpu" /sys/devices/system/cpu
rows=$("$ncpu" cpus --columns util 0.1 1 2>/dev/null | tail -n +2 | wc -l)
theirs=$(mpstat -P ALL 1 1 | grep -c '^Average: *[0-9]' || true)
[ "$rows" = "$cpus" ] && [ "$theirs" = "$cpus" ] ||
	{ echo "$0: of $cpus CPUs ncpu shows $rows and mpstat $theirs" >&2; exit 1; }

echo "$cpus CPUs, $seconds reports of one second, user + system seconds"
for round in $(seq "$rounds"); do
	a=$(cpu_seconds mpstat -P ALL 1 "$seconds")
	b=$(cpu_seconds "$ncpu" cpus --columns util 1 "$seconds")
	echo "$a $b"
done | awk '
	{ printf "  round %d: mpstat %.3f  ncpu cpus %.3f  ratio %.1f\n", NR, $1, $2, $1 / $2; m += $1; n += $2 }
	END { printf "  all: mpstat %.3f  ncpu cpus %.3f  ratio %.1f\n", m, n, m / n }'

# What a report costs by itself: 201 reports less one, so that starting is left out.
echo "ncpu cpus, milliseconds of CPU a report:"
for n in "$cpus" $((cpus * 8 / 3)); do
	umount /proc/stat
	generate "$n"
	mount --bind "$DIR/stat" /proc/stat
	one=$(cpu_seconds "$ncpu" cpus --columns util 0.01 1)
	many=$(cpu_seconds "$ncpu" cpus --columns util 0.01 201)
	awk -v n="$n" -v one="$one" -v many="$many" \
		'BEGIN { printf "  %5d CPUs: %.3f (start %.0f)\n", n, (many - one) * 5, one * 1000 }'
done
