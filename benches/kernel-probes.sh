#!/bin/bash
# The speed that programs keep under the kernel's tracepoints of ncpu, in interleaved rounds, each with a plain run in it:
#   torture    dup2 and close in one descriptor table, two threads for each CPU, under `ncpu run` with --probes auto and all
#   sleepers   threads that map and populate memory of one process and sleep for its lock, the same way
#   pingpong   a byte to and fro between two processes on one CPU, the same way
#   pgbench    `pgbench -S -c 4` on a server that runs all the while, beside `ncpu watch -a` and `ncpu serve`
# Prints the mean of the ratios, its standard error, their range, and what ncpu says of itself, of the machine.
# REALTIME=1 runs the ping-pong with a real-time priority, for a machine on which other programs run.
# Usage: benches/kernel-probes.sh [ROUNDS [SECONDS [PROGRAM...]]]      needs root, gcc, and PostgreSQL for the last
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${1:-10} seconds=${2:-2}
shift $(($# < 2 ? $# : 2))
programs=${*:-torture sleepers pingpong pgbench}
ncpu=$(realpath "${NCPU:-target/release/ncpu}")
[ -x "$ncpu" ] || { echo "build first: cargo build --release" >&2; exit 1; }
dir=$(mktemp -d)
chmod 755 "$dir" # the server is another user's
load=
trap '[ -z "$load" ] || kill -TERM -- -$load 2> /dev/null || true; rm -rf "$dir"' EXIT
gcc -O2 -pthread -o "$dir/torture" workloads/fdtorture.c
gcc -O2 -o "$dir/pingpong" workloads/pingpong.c
gcc -O2 -pthread -o "$dir/sleepers" benches/probe-budget/sleepers.c
cpus=$(nproc) last=$(($(nproc) - 1))

number() { grep -oE '[0-9]+(\.[0-9]+)? (ops|round trips|maps)/s' | head -1 | cut -d' ' -f1; }
itself() { sed -n 's/^ncpu itself  *\([0-9.]*\) %.*/\1/p' | tail -1; }

# `run PROGRAM MODE`: the number, and what ncpu says of itself.
run() {
  local command observer=
  case $1 in
  torture) command="$dir/torture $((2 * cpus)) $seconds" ;;
  sleepers) command="$dir/sleepers $((2 * cpus)) $seconds" ;;
  pingpong) command="${REALTIME:+chrt -f 1} taskset -c $last $dir/pingpong $seconds" ;;
  esac
  : > "$dir/said"
  case $2 in
  plain) [ "$1" = pgbench ] || $command | number ;;
  auto | all) "$ncpu" run --probes "$2" -- $command 2> "$dir/said" | number ;;
  watch) "$ncpu" watch -a > "$dir/said" 2>&1 & observer=$! ;;
  serve) "$ncpu" serve --listen 127.0.0.1:0 > "$dir/said" 2>&1 & observer=$! ;;
  esac
  if [ "$1" = pgbench ]; then
    sleep 1
    "$bin/pgbench" -n -h "$dir/db" -U postgres -S -c 4 -j 4 -T "$seconds" postgres 2> /dev/null | sed -n 's/^tps = \([0-9.]*\).*/\1/p'
    if [ -n "$observer" ]; then
      kill -TERM "$observer" # a shell without job control has INT ignored behind it
      wait "$observer" || true
    fi
  fi
  itself < "$dir/said"
}

modes_of() {
  case $1 in
  torture | sleepers) echo plain auto all ;;
  pingpong) echo plain auto all ;;
  pgbench) echo plain watch serve ;;
  *) echo "unknown program $1; expected torture, sleepers, pingpong or pgbench" >&2; exit 2 ;;
  esac
}

if [[ " $programs " == *" pgbench "* ]]; then
  bin=$(dirname "$(ls /usr/lib/postgresql/*/bin/postgres | tail -1)")
  workloads/pgscale.sh init "$dir/db" > /dev/null 2>&1
  set -m
  workloads/pgscale.sh run "$dir/db" 1 36000 -R 1 -S > /dev/null 2>&1 & load=$!
  set +m
  until "$bin/pg_isready" -q -h "$dir/db"; do sleep 0.1; done
fi
echo "$cpus CPUs, $(grep -m1 'model name' /proc/cpuinfo | cut -d: -f2- | sed 's/^ *//'), Linux $(uname -r), runs of $seconds s"
printf '%-9s %-6s %12s %7s %7s %15s %7s %12s\n' program mode "mean/s" kept error range rounds "ncpu itself"
for program in $programs; do
  modes=$(modes_of "$program")
  for round in $(seq "$rounds"); do
    for mode in $(shuf -e $modes); do echo "$round $mode $(run "$program" "$mode" | tr '\n' ' ')"; done
  done > "$dir/all"
  awk -v program="$program" -v modes="$modes" '
    $3 > 0 { v[$1, $2] = $3; if (NF > 3) { said[$2] += $4; n_said[$2]++ }; if ($1 > rounds) rounds = $1 }
    END {
      n = split(modes, order, " ")
      for (i = 1; i <= n; i++) {
        c = order[i]; s = q = k = t = 0; least = 1e9; most = 0
        for (r = 1; r <= rounds; r++) if (((r, c) in v) && ((r, "plain") in v)) {
          x = v[r, c] / v[r, "plain"]; s += x; q += x * x; t += v[r, c]; k++
          if (x < least) least = x; if (x > most) most = x
        }
        if (!k) { print program, c, "failed"; continue }
        m = s / k; e = k > 1 && q / k > m * m ? sqrt((q / k - m * m) / (k - 1)) : 0
        itself = n_said[c] ? sprintf("%.2f %%", said[c] / n_said[c]) : ""
        printf "%-9s %-6s %12.0f %7.3f %7.3f %7.3f-%7.3f %7d %12s\n", program, c, t / k, m, e, least, most, k, itself
      }
    }' "$dir/all"
done
