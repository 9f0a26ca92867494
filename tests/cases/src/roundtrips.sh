#!/bin/sh
# Redis, and a client that reads 500 keys again and again. A second argument has it ask for all of them at once.
redis-server --port 6398 --save '' --appendonly no --daemonize no >/dev/null & server=$!
trap 'kill $server' EXIT
until redis-cli -p 6398 ping >/dev/null 2>&1; do sleep 0.1; done
python3 src/roundtrips.py "$@"
