#!/bin/sh
# A hash of 5,000 fields is kept as one packed list, since hash-max-listpack-entries is high: each HGET walks through it. Twin: 128, the default.
most=20000; [ "$2" = twin ] && most=128
redis-server --port 6398 --save '' --appendonly no --daemonize no --hash-max-listpack-entries $most >/dev/null & server=$!
trap 'kill $server' EXIT
until redis-cli -p 6398 ping >/dev/null 2>&1; do sleep 0.1; done
redis-cli -p 6398 eval 'for i=1,5000 do redis.call("hset","users","user:"..i,i) end' 0 >/dev/null
timeout "$1" redis-benchmark -p 6398 -c 8 -n 100000000 -r 5000 HGET users user:__rand_int__ >/dev/null
exit 0
