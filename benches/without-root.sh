#!/bin/bash
# The onion of an ordinary user beside root's, on programs whose answer is known; then what it costs a build and a
# ping-pong. Layers that root tells apart and a user does not are added up for the comparison.
# usage: benches/without-root.sh [-r ROUNDS] [PROGRAM...|cost]      needs root; gcc, python3
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=3
if [ "${1:-}" = -r ]; then rounds=$2; shift 2; fi
ncpu=$(realpath "${NCPU:-target/release/ncpu}")
[ -x "$ncpu" ] || { echo "build first: cargo build --release" >&2; exit 1; }
[ "$(id -u)" = 0 ] || { echo "it takes root to be both" >&2; exit 1; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
chmod 777 "$dir"
cp "$ncpu" "$dir/ncpu"
for name in fdtorture pingpong munmap mallocs; do
  gcc -O2 -g -fno-omit-frame-pointer -pthread -o "$dir/$name" "workloads/$name.c"
done
cp -r workloads "$dir/"
chmod -R a+rX "$dir"
# One environment for both: what root's PATH holds may be other programs, or closed to others.
root() { env -i PATH=/usr/bin:/bin HOME="$dir" "$@"; }
nobody() { root setpriv --reuid 65534 --regid 65534 --clear-groups "$@"; }
cat > "$dir/spin.py" << 'EOF'
import os, sys, time
# spin.py SECONDS PROCESSES [CPU]: processes that do nothing but run, all on one CPU where one is given.
pids = []
for _ in range(int(sys.argv[2])):
    if (pid := os.fork()) == 0:
        if len(sys.argv) > 3: os.sched_setaffinity(0, {int(sys.argv[3])})
        end = time.monotonic() + float(sys.argv[1])
        while time.monotonic() < end:
            for _ in range(10000): pass
        os._exit(0)
    pids.append(pid)
for pid in pids: os.waitpid(pid, 0)
EOF
cat > "$dir/pool.py" << 'EOF'
import threading, time
# Four threads that wait for work and a fifth that has some: idle CPUs wait for a lock or for work.
stop = threading.Event()
pool = [threading.Thread(target=stop.wait) for _ in range(4)]
for t in pool: t.start()
end = time.monotonic() + 2
while time.monotonic() < end:
    for _ in range(10000): pass
stop.set()
EOF
cat > "$dir/forks.sh" << 'EOF'
for i in $(seq 1500); do /bin/true; done
EOF
cat > "$dir/workers.py" << 'EOF'
import multiprocessing, time
# A pool of processes that compute, and a parent that waits for what they send.
def work(n):
    end = time.process_time() + 0.02
    while time.process_time() < end:
        sum(range(1000))
    return n
if __name__ == "__main__":
    with multiprocessing.Pool(2) as pool:
        for _ in pool.imap_unordered(work, range(200)): pass
EOF
cat > "$dir/sqlite.py" << 'EOF'
import sqlite3, time
# One thread that inserts and sums.
db = sqlite3.connect(":memory:")
db.execute("CREATE TABLE t (a INTEGER, b TEXT)")
end = time.monotonic() + 2
while time.monotonic() < end:
    db.executemany("INSERT INTO t VALUES (?, ?)", ((i, str(i)) for i in range(5000)))
    db.execute("SELECT sum(a), max(b) FROM t").fetchall()
    db.execute("DELETE FROM t WHERE a % 3")
EOF
head -c 24000000 /dev/urandom > "$dir/random"
cp -r "$(workloads/build.sh -l)" "$dir/sources"
chmod -R a+rX "$dir"
build="$dir/workloads/build.sh -s $dir/sources"
# name | the known answer | command
programs() {
  cat << EOF
one-spinner|user code on one CPU, serial phases on the others|python3 $dir/spin.py 2 1
spinners|user code on all CPUs|python3 $dir/spin.py 2 $(nproc)
pinned|two on one CPU: one CPU of run-queue waiting|python3 $dir/spin.py 2 2 0
pool|one works, four wait in futexes|python3 $dir/pool.py
sleep|nothing but idle|sleep 2
half|a second of work, a second of sleep|sh -c 'python3 $dir/spin.py 1 1; sleep 1'
read-write|system calls on one CPU|dd if=/dev/zero of=/dev/null bs=1 count=4000000 status=none
fdtorture|system calls and a kernel lock|$dir/fdtorture 4 2
pingpong-one|two on one CPU in turns: system calls and switches, one CPU idle|$dir/pingpong 2 0 0
pingpong-two|each on a CPU that the other wakes|$dir/pingpong 2 0 1
munmap|faults, unmapping, shootdowns|$dir/munmap 2 2
mallocs|user code and page faults|$dir/mallocs 2 2000
forks|processes of a millisecond|sh $dir/forks.sh
workers|processes that compute on all CPUs and send a little|python3 $dir/workers.py
sqlite|one thread of user code|python3 $dir/sqlite.py
xz|user code on all CPUs|sh -c 'xz -1 -T $(nproc) --block-size=1MiB < $dir/random > /dev/null'
sort|user code, first on one CPU, then on all|sh -c 'od -An -v -tx4 -w4 $dir/random | head -n 2000000 | sort --parallel=$(nproc) -S 400M > /dev/null'
build|a parallel build: compilers of a tenth of a second|$build
compress|user code of a pipeline|sh -c 'head -c 60000000 /dev/urandom | gzip -1 > /dev/null'
EOF
}

one() { # name command: a line for each layer: root's, nobody's, difference, in points of capacity
  local name=$1 round who
  for round in $(seq "$rounds"); do
    for who in $(shuf -e root nobody); do
      (cd "$dir" && eval "$who ./ncpu run --table layers -o csv -- $2" 2> "$dir/err" | awk -v w=$who -v r=$round '
        /^layer,/ { on = 1; next }
        on { sub(/"system calls, faults and kernel locks"/, "in the kernel"); split($0, f, ","); print w "\t" r "\t" f[1] "\t" f[2] }' >> "$dir/out.$name") || { cat "$dir/err"; return; }
    done
  done
  awk -F'\t' -v name="$name" '
    function merged(l) {
      if (l ~ /^(system calls|kernel lock spin|page faults and zeroing|TLB shootdown|context switches|other kernel work)$/) return "in the kernel"
      if (l ~ /^(user lock waiting|serial phases|user locks or serial phases)$/) return name == "pingpong-two" ? "idle, whatever for" : "user locks or serial"
      if (l ~ /^(kernel lock block|I\/O wait|kernel locks or I\/O)$/) return "kernel locks or I/O"
      if (l ~ /^(other programs|ncpu itself|interrupts and softirqs|steal|not accounted for)$/) return ""
      # Where each of two CPUs waits for the other to wake up, neither looks nor ticks tell what it is idle for.
      if (name == "pingpong-two" && l ~ /^(run-queue waiting|idle)$/) return "idle, whatever for"
      return l
    }
    { l = merged($3); if (l == "") next; sum[$1, $2, l] += $4; layers[l] = 1; if ($2 > rounds) rounds = $2 }
    function median(w, l,   i, j, n, t, a) {
      for (i = 1; i <= rounds; i++) a[i] = sum[w, i, l] + 0
      for (i = 1; i <= rounds; i++) for (j = i + 1; j <= rounds; j++) if (a[j] < a[i]) { t = a[i]; a[i] = a[j]; a[j] = t }
      return rounds % 2 ? a[(rounds + 1) / 2] : (a[rounds / 2] + a[rounds / 2 + 1]) / 2
    }
    END { for (l in layers) { r = median("root", l); n = median("nobody", l)
      if (r >= 0.3 || n >= 0.3) printf "%-12s %-24s %6.1f %6.1f %+6.1f%s\n", name, l, r, n, n - r, (n - r > 2 || r - n > 2) ? "  <-" : "" } }' "$dir/out.$name" | sort
}

cost() {
  local round c t
  for round in $(seq "$rounds"); do
    for c in $(shuf -e plain ncpu); do
      local with=; [ $c = plain ] || with="./ncpu run --"
      (cd "$dir" && nobody $with ./pingpong 2 2> /dev/null | awk '{ print $1 }' >> "$dir/pp-$c")
      t=$(date +%s%N)
      if [ $c = plain ]; then (cd "$dir" && nobody $build > /dev/null 2>&1); echo $((($(date +%s%N) - t) / 1000000)) >> "$dir/b-$c"
      else (cd "$dir" && nobody $with $build 2>&1 > /dev/null | grep -oE '[0-9.]+ s elapsed' | awk '{ print 1000 * $1; exit }' >> "$dir/b-$c"); fi
    done
  done
  for c in pp b; do
    paste "$dir/$c-ncpu" "$dir/$c-plain" | awk '{ print $1 / $2 }' | sort -n | awk -v n="$c" '{ a[NR] = $1 } END {
      printf "%s under ncpu run to without: %.3f (%.3f-%.3f, %d rounds)\n", n == "pp" ? "ping-pong, round trips/s" : "build, elapsed", a[int((NR + 1) / 2)], a[1], a[NR], NR }'
  done
}

awk -F': ' '/model name/ { print "processor: " $2; exit }' /proc/cpuinfo
[ "${1:-}" = cost ] && { cost; exit; }
printf '%-12s %-24s %6s %6s %6s\n' program layer root user diff
programs | while IFS='|' read -r name answer command; do
  [ $# = 0 ] || [[ " $* " == *" $name "* ]] || continue
  one "$name" "$command"
done
[ $# != 0 ] || cost
