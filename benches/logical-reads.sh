#!/bin/bash
# The figures of docs/logical-reads.md: PostgreSQL and SQLite, interleaved against local memory where there are nodes.
# Usage: benches/logical-reads.sh [NCPU]
set -eu
ncpu=${1:-target/release/ncpu}

for mem in interleave local; do
    echo "\$ ncpu bench logical-reads --mem $mem"
    "$ncpu" bench logical-reads --mem "$mem" 2>&1
    echo
done
