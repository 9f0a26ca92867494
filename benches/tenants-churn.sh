#!/bin/bash
# Whether `ncpu serve` stays as large as it is while tenants come and go: workloads/groups.c makes short control groups with a process
# each; the memory of both processes after each twentieth of the groups.
# usage: benches/tenants-churn.sh [GROUPS [WORKERS]]      [default: 100000 2]; needs root
# NCPU is the program, with ncpu-serve beside it.
# The first fifth is the warm-up. Exit status 1 if own memory grows by more than 10 % and 2 MB from the second fifth to the last. It takes a
# machine left alone: where intervals wait for a CPU, they take memory.
set -euo pipefail
cd "$(dirname "$0")/.."
groups=${1:-100000} workers=${2:-2}
ncpu=$(realpath "${NCPU:-target/release/ncpu}")
[ -x "$ncpu" ] || { echo "build first: cargo build --release" >&2; exit 1; }
dir=$(mktemp -d)
above=
for mount in /sys/fs/cgroup/cpu /sys/fs/cgroup; do
  if [ -z "$above" ] && mkdir "$mount/ncpu-churn-$$" 2> /dev/null; then above=$mount/ncpu-churn-$$; fi
done
[ -n "$above" ] || { echo "no control group can be made" >&2; exit 1; }
load=
serve=
end() {
  [ -z "$load" ] || { kill -TERM -- "-$load" 2> /dev/null || true; }
  [ -z "$serve" ] || kill -TERM "$serve" 2> /dev/null || true
  wait 2> /dev/null || true
  sleep 0.2
  find "$above" -depth -type d -exec rmdir {} \; 2> /dev/null || true
  rm -rf "$dir"
}
trap end EXIT
cc -O2 -o "$dir/groups" workloads/groups.c
port=$((20000 + $$ % 20000))
setsid "$ncpu" serve --listen "127.0.0.1:$port" --interval 1 --history 1M > "$dir/said" 2>&1 &
serve=$!
for _ in $(seq 300); do
  curl -fsS -o /dev/null "http://127.0.0.1:$port/metrics" 2> /dev/null && break
  kill -0 "$serve" 2> /dev/null || { cat "$dir/said" >&2; exit 1; }
  sleep 0.1
done
setsid "$dir/groups" "$above" "$groups" "$workers" > "$dir/done" 2> "$dir/failed" &
load=$!
own() { awk '$1 == "RssAnon:" { print $2 }' "/proc/$1/status"; }
server() { pgrep -P "$serve" -x ncpu-serve | head -1; }
echo "$(nproc) CPUs, $(grep -m1 'model name' /proc/cpuinfo | cut -d: -f2- | sed 's/^ *//'), Linux $(uname -r)"
printf '%9s %9s %12s %13s %8s\n' seconds groups 'ncpu own kB' 'server own kB' series
begun=$SECONDS
for step in $(seq 20); do
  while [ "$(tail -n 1 "$dir/done" | grep . || echo 0)" -lt $((groups * step / 20 / 1000 * 1000)) ]; do
    kill -0 "$load" 2> /dev/null || break
    sleep 0.5
  done
  child=$(server)
  series=$(curl -fsS "http://127.0.0.1:$port/metrics" | grep -c '^ncpu_tenant_' || true)
  printf '%9d %9d %12d %13d %8d\n' $((SECONDS - begun)) "$(tail -n 1 "$dir/done")" "$(own "$serve")" "$(own "$child")" "$series"
done | tee "$dir/lines"
wait "$load" || { cat "$dir/failed" >&2; exit 1; }
load=
# The least of a fifth: on a busy machine some intervals wait for the server.
awk '{ n++; own[n] = $3; server[n] = $4; if ($5 > series) series = $5 }
  function least(of, from, to,   i, m) { for (i = from; i <= to; i++) if (!m || of[i] < m) m = of[i]; return m }
  function grows(of) { return least(of, 17, 20) > least(of, 5, 8) * 1.1 + 2048 }
  END {
    printf "least of the second and the last fifth: %d and %d kB in ncpu, %d and %d kB in its server; at most %d series\n",
      least(own, 5, 8), least(own, 17, 20), least(server, 5, 8), least(server, 17, 20), series
    exit n < 20 || grows(own) || grows(server)
  }' "$dir/lines"
