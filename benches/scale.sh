#!/bin/bash
# How the lock torture and PostgreSQL scale here, and which layer grows: the transcripts of docs/scale.md.
# usage: benches/scale.sh [ROUNDS [SECONDS]]      needs root; PostgreSQL if there
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${1:-7} seconds=${2:-2}
ncpu=${NCPU:-target/release/ncpu}
[ -x "$ncpu" ] || { echo "build first: cargo build --release" >&2; exit 1; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
chmod 755 "$dir"
cc -O2 -pthread -o "$dir/fdtorture" workloads/fdtorture.c
all=$(nproc)
# Up to the machine and, as there may be few CPUs to fit over, twice and four times as many threads.
counts=$(seq -s, "$all" | cut -c1-200),$((2 * all)),$((4 * all))
"$ncpu" scale --cpus "$counts" --rounds "$rounds" --metric '([0-9.]+) ops/s' --peel -- "$dir/fdtorture" {n} "$seconds"
"$ncpu" scale --cpus "$counts" --rounds "$rounds" --metric '([0-9.]+) ops/s' --peel -- "$dir/fdtorture" --unshare {n} "$seconds"
[ -x "$(ls -d /usr/lib/postgresql/*/bin/postgres 2>/dev/null | tail -1)" ] || { echo "no PostgreSQL (apt-get install postgresql)"; exit 0; }
workloads/pgscale.sh init "$dir" >/dev/null 2>&1
for job in '-S -M prepared' '-N -M prepared'; do
  # shellcheck disable=SC2086  # several options
  "$ncpu" scale --cpus "$counts" --rounds "$rounds" --metric 'tps = ([0-9.]+)' --peel -- \
    workloads/pgscale.sh run "$dir" {n} "$seconds" $job
done
