#!/bin/bash
# The figures of docs/calls.md: calls that did not scale, locks, counters, allocators, block copy and faults on this machine.
# Usage: benches/calls.sh [NCPU]
set -eu
ncpu=${1:-target/release/ncpu}
cpus=$(nproc)

run() {
    echo "\$ ncpu bench $*"
    # glibc's getenv beside a writer may crash: that is a result.
    "$ncpu" bench "$@" 2>&1 || echo "exit status $?"
    echo
}

run dup2_close mmap_munmap -T "$cpus"
run getenv getenv_writers -T "$cpus"
run 'poll_*ms' -C 50 -D 2000
run 'accept*' -T "$cpus"
run 'shm_*' -C 10
run 'switch_*' 'futex_wake*'
run core-to-core
run block-copy -D 200
run page-faults -D 300
run locks -D 300
run counters -D 300
run allocators -D 300
