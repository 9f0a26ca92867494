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

run memhammer -- -p "$pages" -l "$loops" -w script
for page in 4k thp; do run memhammer -- -p "$pages" -l 10 -a chase -s "$page"; done
run matrix
run stream
run stream -T "$(nproc)" --place spread
