#!/bin/bash
# The figures of docs/dump.md: how long a process stands still and how long its dump takes, beside gcore and zstd's own
# rate. Usage: benches/dump.sh [NCPU [MB [ROUNDS [stop|rate|gap|crash|many ...]]]]
# `crash` (root) sets core_pattern for a while, and back.
set -eu
cd "$(dirname "$0")/.."
ncpu=$(realpath "${1:-target/release/ncpu}")
mb=${2:-4096}
rounds=${3:-3}
shift $(($# < 3 ? $# : 3))
parts=" ${*:-stop rate gap crash many} "
make -s target/workloads/dumpee
directory=$(mktemp -d "${TMPDIR:-/var/tmp}/dump.XXXXXX")
dumpee=
pattern= limit=
end() {
    [ -z "$dumpee" ] || kill -9 "$dumpee" 2>/dev/null || :
    if [ -n "$pattern" ]; then
        printf %s "$pattern" >/proc/sys/kernel/core_pattern
        printf %s "$limit" >/proc/sys/kernel/core_pipe_limit
        rm -f /var/lib/ncpu/crash.json /run/ncpu/crash.socket
    fi
    rm -rf "$directory"
}
trap end EXIT
trap 'exit 130' INT TERM HUP
cpus=$(nproc)

# Starts the workload with so many MB and options; half of each page is random, half zeros.
start() {
    : >"$directory/out"
    target/workloads/dumpee "$@" >"$directory/out" &
    until [ -s "$directory/out" ]; do sleep 0.1; done
    dumpee=$(cut -d' ' -f1 <"$directory/out" | head -1)
}
stop() { kill "$dumpee"; wait "$dumpee" 2>/dev/null || :; dumpee=; }
seconds() { local begin; begin=$(date +%s.%N); "$@" >/dev/null 2>&1; echo "$(date +%s.%N) $begin" | awk '{printf "%.2f", $1-$2}'; }
stopped() { "$ncpu" dump "$@" -o "$directory/core.zst" 2>&1 | sed -n 's/.*stopped for //p'; }

lscpu | sed -n 's/^Model name: *//p'
echo "$cpus CPUs, $mb MB, rounds: $rounds"

# A thread writes to pages at random, 10,000 times a second at most. Other ways of keeping memory as it was, beside it.
if [[ $parts == *" stop "* ]]; then
    for size in $((mb / 4)) "$mb" $((mb * 2)); do
        start "$size" 1 100000 p
        for _ in $(seq "$rounds"); do echo "stop    $size MB: $(stopped "$dumpee" --lz4)"; done
        stop
    done
    start "$mb" 1 100000 p
    echo "stop    $mb MB by a copy of the process: $(stopped "$dumpee" --lz4 --method fork)"
    stop
    start "$mb" 1 100000 hp
    echo "stop    $mb MB of huge pages by a copy of the process: $(stopped "$dumpee" --lz4 --method fork)"
    stop
fi

# Memory that stands still, so that all ways do the same work. Beside it, in the same rounds, zstd's own rate: the same
# library compresses the same core in the same chunks, from memory to memory, by as many threads.
if [[ $parts == *" rate "* ]]; then
    cargo build -q --release --locked -p ncpu-dump --example zstd_rate
    own=target/release/examples/zstd_rate
    start "$mb" 1 100000 i
    "$ncpu" dump "$dumpee" -o "$directory/core.zst" 2>/dev/null
    zstd -dqf "$directory/core.zst" -o "$directory/core"
    bytes=$(stat -c %s "$directory/core")
    ls -s --block-size=M "$directory/core.zst" "$directory/core" | sed "s|$directory/||"
    # MB a second of a dump to a new file, or to nowhere.
    rate() {
        rm -f "$directory/core.zst"
        if [ "$1" = nowhere ]; then set -- - "${@:2}"; else set -- "$directory/core.zst" "${@:2}"; fi
        seconds "$ncpu" dump "$dumpee" --nice 0 -o "$@" | awk -v bytes="$bytes" '{printf "%.0f\n", bytes / $1 / 1e6}'
    }
    for _ in $(seq "$rounds"); do
        for threads in 1 "$cpus"; do
            echo "$threads zstd-itself $($own "$directory/core" 1024 "$threads" 1)"
            echo "$threads ncpu-to-nowhere $(rate nowhere --threads "$threads")"
            echo "$threads ncpu-to-a-file $(rate file --threads "$threads")"
            echo "$threads ncpu--lz4-to-a-file $(rate file --threads "$threads" --lz4)"
        done
    done | tee "$directory/rates" | awk '{print "rate    " $2 ", " $1 " threads: " $3 " MB/s"}'
    # Medians, and what they are to zstd's own and to those of one thread.
    sort -k1,1n -k2,2 -k3,3n "$directory/rates" | awk '
        {key = $1 " " $2; value[key, ++count[key]] = $3}
        END {
            for (key in count) median[key] = value[key, int((count[key] + 1) / 2)]
            for (key in median) {
                split(key, part, " ")
                printf "median  %s, %s threads: %d MB/s, %.2f of one thread, %.0f %% of zstd itself\n", part[2], part[1],
                    median[key], median[key] / median["1 " part[2]], 100 * median[key] / median[part[1] " zstd-itself"]
            }
        }' | sort
    for _ in $(seq "$rounds"); do
        rm -f "$directory/core.zst"
        echo "rate    zstd -1 -T$cpus, file to file: $(seconds zstd -1 "-T$cpus" -B4MiB -f "$directory/core" -o "$directory/core.zst") s"
        if command -v gcore >/dev/null; then
            echo "rate    gcore: $(seconds gcore -o "$directory/gcore" "$dumpee") s, all of it stopped"
            echo "rate    gcore, zstd -1 -T$cpus: $(seconds sh -c "gcore -o $directory/gcore $dumpee && zstd -1 -T$cpus -f $directory/gcore.$dumpee -o $directory/gcore.zst") s"
            rm -f "$directory"/gcore*
        fi
    done
    rm -f "$directory"/core*
    stop
fi

# The longest gap that a busy program sees itself, a second at a time: alone, and while it is dumped.
if [[ $parts == *" gap "* ]]; then
    start "$mb" 1 100000 g
    sleep 4
    echo "alone:  $(grep gap "$directory/out" | tail -3 | tr '\n' ';')"
    for how in "" "--threads 1" "--method fork" "--method stop"; do
        lines=$(wc -l <"$directory/out")
        # shellcheck disable=SC2086
        "$ncpu" dump "$dumpee" $how --lz4 -o "$directory/core.zst" 2>&1 | grep stopped | sed "s|$directory/||"
        sleep 1.2
        echo "dumped ${how:-by write protection}: $(tail -n +$((lines + 1)) "$directory/out" | grep gap | tr '\n' ';')"
    done
    rm -f "$directory"/core*
    stop
fi

# Time from SIGABRT until the process is gone: the kernel's own core, a handler that copies its pipe to a file, as
# systemd-coredump does before it compresses, and ncpu.
if [[ $parts == *" crash "* ]] && [ -e /var/lib/ncpu/crash.json ]; then
    echo "crash: left out, crashes are caught on this machine already"
elif [[ $parts == *" crash "* ]] && [ "$(id -u)" = 0 ]; then
    pattern=$(cat /proc/sys/kernel/core_pattern) limit=$(cat /proc/sys/kernel/core_pipe_limit)
    ln -f "$ncpu" "$directory/ncpu" 2>/dev/null || cp "$ncpu" "$directory/ncpu"
    printf '#!/bin/sh\nexec cat >%s/piped\n' "$directory" >"$directory/handler"
    printf '#!/bin/sh\nexec zstd -q -1 -T%s -o %s/piped.zst\n' "$cpus" "$directory" >"$directory/compressor"
    chmod +x "$directory/handler" "$directory/compressor"
    gone() {
        start "$mb" 1 100000 i
        local begin name=$1
        begin=$(date +%s.%N)
        kill -ABRT "$dumpee"
        wait "$dumpee" 2>/dev/null || :
        echo "crash   $name: gone after $(echo "$(date +%s.%N) $begin" | awk '{printf "%.2f", $1-$2}') s"
        dumpee=
    }
    ulimit -c unlimited
    for _ in $(seq "$rounds"); do
        printf %s "$directory/kernel.core" >/proc/sys/kernel/core_pattern
        gone "kernel, file"
        rm -f "$directory/kernel.core"
        for handler in handler compressor; do
            printf %s "|$directory/$handler" >/proc/sys/kernel/core_pattern
            echo 16 >/proc/sys/kernel/core_pipe_limit
            gone "pipe, $([ $handler = handler ] && echo cat || echo "zstd -1 -T$cpus")"
            rm -f "$directory"/piped*
        done
        printf %s "$pattern" >/proc/sys/kernel/core_pattern
        for by in "" --pipe; do
            "$directory/ncpu" dump --install --directory "$directory/crashes" --rate 0 $by 2>/dev/null
            gone "ncpu ${by:-by a socket}"
            until ls "$directory"/crashes/core.*.zst >/dev/null 2>&1; do sleep 0.1; done
            echo "        $(dmesg | grep -o 'gone after .*' | tail -1)"
            "$directory/ncpu" dump --uninstall 2>/dev/null
            rm -rf "$directory/crashes"
        done
    done
fi

# Processes of unusual shape: 50,000 mappings, 5,000 threads, a reservation of 8 TB.
if [[ $parts == *" many "* ]]; then
    for shape in vp wp rp; do
        start 64 1 100000 $shape
        echo "many    $shape: $("$ncpu" dump "$dumpee" -o "$directory/core.zst" 2>&1 | grep stopped | sed "s|$directory/||")"
        stop
    done
fi
