#!/bin/sh
# Clients of a Redis of 200,000 keys ask KEYS for a pattern: its one thread looks at all of them each time.
redis-server --port 6399 --save '' --appendonly no --daemonize no >/dev/null & server=$!
trap 'kill $server' EXIT
until redis-cli -p 6399 ping >/dev/null 2>&1; do sleep 0.1; done
redis-cli -p 6399 eval 'for i=1,200000 do redis.call("set","user:"..i,i) end' 0 >/dev/null
timeout "$1" redis-benchmark -p 6399 -c 8 -n 1000000 keys 'session:*' >/dev/null
exit 0
