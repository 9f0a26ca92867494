#!/bin/bash
# redis.sh THREADS SECONDS: a redis-server of THREADS io-threads, and redis-benchmark for SECONDS. Prints requests a second.
set -euo pipefail
port=17379
redis-server --port $port --save '' --appendonly no --io-threads "$1" --io-threads-do-reads yes >/dev/null &
trap 'kill $! 2>/dev/null; wait' EXIT
until redis-cli -p $port ping >/dev/null 2>&1; do sleep 0.05; done
timeout "$2" redis-benchmark -p $port -c 20 -n 1000000000 -t get --threads 2 -q >/dev/null || [ $? = 124 ]
commands=$(redis-cli -p $port info stats | sed -n 's/^total_commands_processed:\([0-9]*\).*/\1/p')
echo "$((commands / $2)) requests/s"
