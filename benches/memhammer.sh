#!/bin/bash
# The figures of docs/memhammer.md: the Silly Little Benchmark's scripts, the matrix of nodes, STREAM.
# Usage: benches/memhammer.sh [NCPU [PAGES [LOOPS]]]
set -eu
ncpu=${1:-target/release/ncpu}
pages=${2:-262144}
loops=${3:-100}

run() {
    echo "\$ ncpu bench $*"
    "$ncpu" bench "$@" 2>&1
    echo
}

run memhammer "$pages" "$loops" --preset script
for page in 4k thp; do run memhammer "$pages" 10 --access chase --page "$page"; done
run memhammer --matrix
run stream
run stream -T "$(nproc)" --place spread
