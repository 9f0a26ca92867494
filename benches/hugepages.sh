#!/bin/bash
# What `ncpu hugepages --foretell` says that huge pages save a program, beside what they then do, and how much of its heap
# they cover; then what `ncpu hugepages` costs programs that have little to gain.
#
#   benches/hugepages.sh [ROUNDS [MIB...]]     (default 7 64 256; takes gcc, and MIB a power of two)
#   NCPU=path/to/ncpu chooses the binary (default target/release/ncpu). PARTS="foretell cost" chooses parts, COST the programs.
#
# The program reads all over its heap, each read where the one before it says. Foretold is from the outside, while it stands
# on small pages. Rounds interleave foretelling, the program as it is, and it on huge pages, so that a minute in which the
# host's memory is slow is one for all three; the median of each counts, as in foretelling.
set -eu
rounds=${1:-7}
shift || true
[ $# -gt 0 ] || set -- 64 256
here=$(cd "$(dirname "$0")/.." && pwd)
ncpu=${NCPU:-$here/target/release/ncpu}
parts=${PARTS:-foretell cost}
[ -x "$ncpu" ] || { echo "$0: $ncpu is missing: cargo build --release" >&2; exit 1; }

dir=$(mktemp -d)
trap 'rm -rf "$dir"; [ -z "${pid:-}" ] || kill -KILL "$pid" 2>/dev/null' EXIT
gcc -O2 -g -Wall -Wextra -o "$dir/chase" "$here/workloads/chase.c"
echo "# $(grep -m 1 'model name' /proc/cpuinfo | sed 's/.*: //'), $(nproc) CPUs, load $(cut -d' ' -f1 /proc/loadavg)"

# begin MIB COMMAND...: starts it, as $pid, and waits until it has written all of its heap.
begin() {
	local mib=$1
	shift
	"$@" &
	pid=$!
	until [ "$(awk '/^VmRSS/ { print int($2 / 1024) }' /proc/$pid/status)" -ge "$mib" ]; do sleep 0.05; done
}
end() {
	kill -KILL $pid
	wait $pid 2>/dev/null || true
	pid=
}

foretell() {
	local mib=$1
	begin "$mib" "$dir/chase" "$mib" 1000000
	# It would share caches and memory with what is measured, which it does not with itself.
	kill -STOP $pid
	for round in $(seq "$rounds"); do
		"$ncpu" hugepages -p $pid --foretell 2>&1 >/dev/null |
			sed -nE 's/.*: ([0-9.]+) ns on small pages, ([0-9.]+) on huge.*/foretold-small \1\nforetold-huge \2/p'
		echo "small $("$dir/chase" "$mib" 2)"
		echo "huge $("$ncpu" hugepages --no-text -- "$dir/chase" "$mib" 2)"
	done >"$dir/measured"
	end
	begin "$mib" "$ncpu" hugepages --no-text -- "$dir/chase" "$mib" 1000000
	huge=$("$ncpu" hugepages -p $pid -o csv 2>/dev/null | awk -F, '
		NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next }
		$at["object"] == "heap" || $at["object"] == "anonymous" { r += $at["resident"]; t += $at["thp"] }
		END { printf "%.1f", 100 * t / r }')
	end
	sort -k1,1 -k2,2n "$dir/measured" | awk -v mib="$mib" -v cover="$huge" '
		{ all[$1, ++n[$1]] = $2; best[$1] = all[$1, int((n[$1] + 1) / 2)] }
		function off(a, b) { return sprintf("%+.0f %%", 100 * (a / b - 1)) }
		END { fs = best["foretold-small"]; fh = best["foretold-huge"]; s = best["small"]; h = best["huge"]
			printf "%4d MiB: a read foretold %.1f ns on small pages, %.1f on huge: %.2f times as fast; measured %.1f, %.1f: %.2f; ",
				mib, fs, fh, fs / fh, s, h, s / h
			printf "off by %s, %s, %s; %s %% of heap huge\n", off(fs, s), off(fh, h), off(fs / fh, s / h), cover }'
}

# Programs of a second or so that do what such programs do: $words is the command.
words_of() {
	case $1 in
	sqlite3) words=(sqlite3 x.db 'select count(*), sum(length(v)) from t where k % 3 = 1;
		select count(*) from t a join t b on a.k = b.k + 1;') ;;
	python3) words=(python3 -c 'd = {i: str(i) for i in range(700000)}; print(sum(len(v) for v in d.values()))') ;;
	gcc) words=(gcc -O2 -c -o x.o x.c) ;;
	xz) words=(xz -2 -k -c text) ;;
	sort) words=(sort -o /dev/null text) ;;
	awk) words=(awk 'BEGIN { for (i = 0; i < 6000000; i++) s += i * i % 7; print s }') ;;
	*) echo "$0: there is no program $1" >&2; exit 2 ;;
	esac
}
export LC_ALL=C
cost() {
	cd "$dir"
	sqlite3 x.db "create table t(k integer primary key, v blob); with recursive n(i) as (select 1 union all select i + 1 from n
		where i < 300000) insert into t select i, zeroblob(100) from n;" 2>/dev/null || true
	for i in $(seq 700); do
		echo "int f$i(int x) { int s = 0; for (int i = 0; i < x; i++) s += (i * $i) ^ x; return s; }"
	done >x.c
	seq 1 3000000 | awk '{ print ($1 * 7919) % 1000003, $1 }' | head -n 1500000 >text
	echo "seconds, $rounds rounds in turn and in random order; as it is over on huge pages, more than 1 is a gain"
	for name in ${COST:-sqlite3 python3 gcc xz sort awk}; do
		command -v "$name" >/dev/null || continue
		words_of "$name"
		for round in $(seq "$rounds"); do
			for how in $(shuf -e plain huge); do
				before=()
				[ $how = plain ] || before=("$ncpu" hugepages --)
				began=$EPOCHREALTIME
				"${before[@]}" "${words[@]}" >/dev/null 2>&1
				echo "$round $how $(echo "$EPOCHREALTIME $began" | awk '{ print $1 - $2 }')"
			done
		done >"rounds-$name"
		awk '{ t[$1, $2] = $3; n = $1 } END { for (i = 1; i <= n; i++) print t[i, "plain"] / t[i, "huge"], t[i, "plain"] }' \
			"rounds-$name" | sort -n | awk -v name="$name" '
			{ v[NR] = $1; s += $2 } END { printf "%-8s %.3f (%.3f to %.3f), %.2f s\n", name, v[int((NR + 1) / 2)], v[1], v[NR], s / NR }'
	done
}

for part in $parts; do
	case $part in
	foretell)
		echo "ns of a read, $rounds rounds in turn"
		for mib in "$@"; do foretell "$mib"; done
		;;
	cost) cost ;;
	*) echo "$0: there is no part $part" >&2; exit 2 ;;
	esac
done
