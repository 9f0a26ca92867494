#!/bin/sh
# Redis appends each write to its file and waits for the disk (appendfsync always); `twin`: everysec.
[ "$2" = twin ] && how=everysec || how=always
dir=$(mktemp -d /var/tmp/aofsync.XXXXXX)
redis-server --port 6398 --dir "$dir" --save '' --appendonly yes --appendfsync $how --daemonize no >/dev/null & server=$!
trap 'kill $server; wait $server 2>/dev/null; rm -rf "$dir"' EXIT
until redis-cli -p 6398 ping >/dev/null 2>&1; do sleep 0.1; done
timeout "$1" redis-benchmark -p 6398 -c 4 -n 100000000 -r 10000 -t set >/dev/null
exit 0
