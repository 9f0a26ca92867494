#!/bin/bash
# How many events a second the simulator of `ncpu foresee` does on one core: its queue of events beside the nexosim crate on
# M/M/1 and on a closed network of 256 stations, then whole machines, and a point of 2048 CPUs as a user asks for it.
# usage: benches/foresee.sh [ROUNDS]      needs cargo and crates.io (nexosim is built here, by nothing else)
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${1:-5}
ncpu=${NCPU:-target/release/ncpu}
[ -x "$ncpu" ] || { echo "build first: cargo build --release" >&2; exit 1; }
# With ncpu, so that what both need is built once.
cargo build -q --release --locked -p ncpu -p ncpu-foresee --example speed
cargo build -q --release --locked --manifest-path benches/foresee/Cargo.toml
ours=${CARGO_TARGET_DIR:-target}/release/examples/speed
theirs=${CARGO_TARGET_DIR:-benches/foresee/target}/release/foresee-nexosim
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
for _ in $(seq "$rounds"); do
	for what in mm1 network; do
		for who in $(shuf -e ours theirs); do
			case $who in
			ours) taskset -c 0 "$ours" "$what" 20000000 ;;
			theirs) taskset -c 0 "$theirs" "$what" 2000000 ;;
			esac >>"$dir/$who-$what"
		done
	done
	for what in lock lines big; do taskset -c 0 "$ours" "$what" 5000000 >>"$dir/ours-$what"; done
done
median() { sort -n "$1" | awk '{ a[NR] = $1 } END { m = NR % 2 ? a[(NR+1)/2] : (a[NR/2] + a[NR/2+1]) / 2; printf "%8.2f (%.2f-%.2f)\n", m, a[1], a[NR] }'; }
line() { printf '%-58s %s\n' "$1" "$(median "$2")"; }
echo "M events a second on one core, median (range) of $rounds rounds"
line "M/M/1, ncpu" "$dir/ours-mm1"
line "M/M/1, nexosim 1.0.0" "$dir/theirs-mm1"
line "closed network of 256 stations, ncpu" "$dir/ours-network"
line "closed network of 256 stations, nexosim 1.0.0" "$dir/theirs-network"
line "256 threads and CPUs, one lock" "$dir/ours-lock"
line "256 threads and CPUs, one lock and 256 lines" "$dir/ours-lines"
line "2048 threads and CPUs, one lock and 256 lines" "$dir/ours-big"

cat >"$dir/model.toml" <<'TOML'
name = "a lock, a shared counter and 20 us of work"
unit = "requests"
work_ns = 20000
[[line]]
name = "counter"
writes = 1
[[lock]]
name = "big"
kind = "qspin"
kernel = true
takes = 1
hold_ns = 100
TOML
for _ in $(seq "$rounds"); do
	/usr/bin/env time -f '%e %M' "$ncpu" foresee --model "$dir/model.toml" --on 16x64x2 --cpus 2048 --table foresee -o csv \
		2>>"$dir/point" >"$dir/answer"
done
awk '{ print $1 }' "$dir/point" >"$dir/seconds"
awk '{ print $2 / 1024 }' "$dir/point" >"$dir/mb"
line "a point of 2048 CPUs within 2 %, s" "$dir/seconds"
line "its memory, MB" "$dir/mb"
cat "$dir/answer"
