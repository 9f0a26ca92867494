#!/bin/bash
# Who gets the connections, before and after libncpu_accept.so, with EPOLLEXCLUSIVE and SO_REUSEPORT beside it.
# Each server is a case of `ncpu bench`, run with and without the library in turn, so that what else happens on the
# machine meets all alike; the table has the medians of the rounds.
#
#   benches/accept.sh [ROUNDS]      (default 5)
#   NCPU=FILE and LIB=FILE choose the binaries, PROCESSES="4 16" how many processes accept, CLIENTS="1 2 8" how many
#   threads connect, WORK="0 200000" the nanoseconds a process works for a connection, MS=N how long a run takes at most,
#   RUNS="accept_epoll:- accept_epoll:round-robin" which servers, each with what NCPU_ACCEPT is to be, - without the library.
set -euo pipefail
rounds=${1:-5}
here=$(cd "$(dirname "$0")/.." && pwd)
ncpu=${NCPU:-$here/target/release/ncpu}
lib=${LIB:-$here/target/release/libncpu_accept.so}
for file in "$ncpu" "$lib"; do
	[ -e "$file" ] || { echo "$0: $file is missing: cargo build --release --workspace" >&2; exit 1; }
done
# A static program loads no library, and every row would be one without it.
if ! ldd "$ncpu" 2>&1 | grep -q 'libc\.so'; then
	echo "$0: $ncpu is linked statically, so nothing can be preloaded: cargo build --release --workspace" >&2
	exit 1
fi
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

# CASE MODE PROCESSES CLIENTS WORK: evenness, share of the first, wake-ups and returns for each, microseconds.
one() {
	local preload=$lib
	[ "$2" != - ] || preload=
	LD_PRELOAD=$preload NCPU_ACCEPT=${2#-} "$ncpu" bench "$1" -T "$4" -C 4000 -D "${MS:-2000}" -o csv -- -w "$3" -u "$5" |
		awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i }
			NR == 2 {
				us = $at["time"]; p99 = $at["p99"]; errors = $at["errors"]
				n = split($0, word, /[;,"] ?/)
				for (i = 1; i <= n; i++) {
					if (word[i] ~ /^evenness /) { sub(/.* /, "", word[i]); even = word[i] }
					if (word[i] ~ /^most to one /) { sub(/.* /, "", word[i]); most = word[i] }
					if (word[i] ~ /^wakeups\/conn /) { sub(/.* /, "", word[i]); wake = word[i] }
					if (word[i] ~ /^returns\/conn /) { sub(/.* /, "", word[i]); back = word[i] }
				}
				print even, most, wake, back, us, p99, errors
			}'
}
median() { sort -g | awk '{ a[NR] = $1 } END { print NR % 2 ? a[(NR + 1) / 2] : (a[NR / 2] + a[NR / 2 + 1]) / 2 }'; }

all="accept:- accept:round-robin accept_poll:- accept_poll:round-robin accept_epoll:- accept_epoll:round-robin \
	accept_epoll:random accept_exclusive:- accept_exclusive:round-robin accept_reuseport:- accept_reuseport:round-robin"
runs=${RUNS:-$all}
printf '%-17s %-12s %4s %4s %8s  %8s %6s %8s %8s %9s %9s\n' server library proc thr 'work us' evenness most wake/con ret/con us/conn p99
for work in ${WORK:-0 200000}; do
	for processes in ${PROCESSES:-4}; do
		for clients in ${CLIENTS:-1 2 8}; do
			for round in $(seq "$rounds"); do
				for run in $runs; do
					one "${run%:*}" "${run#*:}" "$processes" "$clients" "$work" >>"$dir/$run.$processes.$clients.$work"
				done
			done
			for run in $runs; do
				file=$dir/$run.$processes.$clients.$work
				errors=$(awk '{ sum += $7 } END { print sum + 0 }' "$file")
				column() { cut -d' ' -f"$1" "$file" | median; }
				printf '%-17s %-12s %4d %4d %8d  %8.3f %6.3f %8.2f %8.2f %9.1f %9.1f%s\n' "${run%:*}" "${run#*:}" "$processes" "$clients" \
					$((work / 1000)) "$(column 1)" "$(column 2)" "$(column 3)" "$(column 4)" "$(column 5)" "$(column 6)" \
					"$([ "$errors" = 0 ] || echo "  $errors errors")"
			done
		done
	done
done
