#!/bin/bash
# Hostile files and programs beside `ncpu serve`, all at once: whether intervals are missed, how much memory the observer takes, and
# how quickly it stops. The files are made by tests/hostile/make.py; each kind is run by the user nobody, over and over.
# usage: benches/hostile.sh [MINUTES]      needs root
# NCPU is the program, STEP the seconds between lines (10), NICE the niceness of what is hostile (5), CGROUP a control group for it,
# KINDS how many kinds there are, chosen at random (all); the same ones again for the same SEED.
# Fails where an interval is missed, the observer takes more than MOST megabytes (120), or it needs more than 2 s to stop. Tells also
# what its reader and the program that answers requests (ncpu-serve) take, and how long the layers take to be answered at the end.
set -euo pipefail
cd "$(dirname "$0")/.."
minutes=${1:-30} seed=${SEED:-$RANDOM} step=${STEP:-10} most=${MOST:-120} nice=${NICE:-5}
ncpu=$(realpath "${NCPU:-target/release/ncpu}")
[ -x "$ncpu" ] || { echo "build first: cargo build --release" >&2; exit 1; }
[ "$(id -u)" = 0 ] || { echo "needs root" >&2; exit 1; }
dir=$(mktemp -d)
serve=
end() {
  # Whoever ends this script is not to leave them all running.
  trap '' INT TERM HUP
  # Each kind has a session of its own.
  while read -r session; do
    local pids pid
    mapfile -t pids < <(pgrep -s "$session")
    pkill -KILL -s "$session" || true
    # What they would have removed themselves.
    for pid in "${pids[@]}"; do rm -f "/tmp/perf-$pid.map"; done
  done < "$dir/sessions"
  [ -z "$serve" ] || kill -KILL "$serve" 2> /dev/null || true
  for silent in "$dir"/silent*; do umount -l "$silent" 2> /dev/null || true; done
  rm -rf "$dir"
  rm -f "/tmp/ncpu-hostile-$$"*
}
touch "$dir/sessions"
trap end EXIT
cc -O1 -w -pthread -o "$dir/mapper" tests/hostile/mapper.c
cc -O1 -w -o "$dir/silent-fs" tests/hostile/silent-fs.c
cc -O1 -w -pthread -o "$dir/storms" tests/hostile/storms.c
python3 tests/hostile/make.py "$dir/files"
mkdir "$dir/own"
chmod 755 "$dir"
chown -R nobody "$dir/files" "$dir/own"
export dir nice CGROUP=${CGROUP:-}
# Runs a command again and again as another user, in a session that `end` ends.
again() {
  setsid bash -c 'echo $$ >> "$dir/sessions"; [ -z "$CGROUP" ] || echo 0 > "$CGROUP/cgroup.procs"; while :; do "$@" || sleep 0.2; done' again "$@" > /dev/null 2>&1 &
  disown
}
# The user nobody, who runs it.
nobody=(setpriv --reuid=65534 --regid=65534 --clear-groups nice -n "$nice")

port=$((20000 + RANDOM % 20000))
setsid "$ncpu" serve --listen "127.0.0.1:$port" 2> "$dir/said" &
serve=$!
get() { curl -s -m 5 "http://127.0.0.1:$port/$1"; }
until [ "$(get healthz)" = ok ]; do
  kill -0 "$serve" 2> /dev/null || { cat "$dir/said" >&2; exit 1; }
  sleep 0.2
done
echo "$(nproc) CPUs, $(grep -m1 'model name' /proc/cpuinfo | cut -d: -f2- | sed 's/^ *//'), Linux $(uname -r)"

kinds=0
# Notes a kind. All are started when all are known, or KINDS of them, chosen at random.
kind() { kinds=$((kinds + 1)); printf '%q ' "$@" >> "$dir/kinds"; echo >> "$dir/kinds"; }
f=$dir/files
for file in program-headers section-headers notes section-names lib/libpython3.11.so lib/python3 bin/postgres jvm/libjvm.so \
  no-functions names-that-unfold tracepoints packed unwind-loop unwind-loop-without-index unwind-rows unwind-entries go deep-names deep-go; do
  kind "${nobody[@]}" "$dir/mapper" -s 20 "$f/$file"
done
kind "${nobody[@]}" "$dir/mapper" -s 20 "$f/symbols-1" "$f/symbols-2"
# Some of many, others each time.
for many in links/program many/file segments/file; do
  kind "${nobody[@]}" bash -c 'exec "$dir/mapper" -s 10 $(shuf -n 20 -e "$dir/files/$0"-*)' "$many"
done
# What a program does to its own file.
cat > "$dir/behave" <<'SH'
#!/bin/bash
# behave KIND: a program in a file of its own, which it then makes into something else
cd "$(mktemp -d "$dir/own/XXXXXX")"
trap 'cd /; rm -rf "$OLDPWD"; rm -f "/tmp/perf-$pid.map"' EXIT
name=program
[ "$1" != newline ] || { name=$(printf 'ev\nil'); mkfifo 'ev\012il'; }
cp "$dir/mapper" "./$name"
cp "$dir/files/many/file-1" mapped
case $1 in
deleted) "./$name" -s 10 -u mapped & ;;
cut) "./$name" -s 10 -c mapped & ;;
mappings)
  long=$(printf 'x%.0s' {1..200})
  mkdir -p "$long/$long/$long"
  cp mapped "$long/$long/$long/$long"
  "./$name" -s 20 -m 20000 "$long/$long/$long/$long" & ;;
jitdump)
  { printf 'DTiJ\1\0\0\0\50\0\0\0'; head -c 4000 /dev/urandom; } > jit-1.dump
  truncate -s 4G jit-1.dump
  printf '\353\376' | dd of=jit-1.dump bs=1 seek=4096 conv=notrunc status=none
  "./$name" -s 10 -j jit-1.dump & ;;
*) "./$name" -s 10 -j mapped & ;;
esac
pid=$!
case $1 in
fifo) rm program mapped; mkfifo program mapped ;;
link) rm program mapped; ln -s /dev/zero program; ln -s /etc/shadow mapped ;;
map-fifo) mkfifo "/tmp/perf-$pid.map" ;;
map-link) ln -s /dev/zero "/tmp/perf-$pid.map" ;;
map-holes) truncate -s 100G "/tmp/perf-$pid.map" ;;
map-many) cp ../../map-many "/tmp/perf-$pid.map" ;;
map-names) yes "$(printf '7f0000000000 10 '; head -c 900 /dev/zero | tr '\0' x)" | head -c 64M > "/tmp/perf-$pid.map" ;;
esac
wait $pid
SH
chmod 755 "$dir/behave"
# As many functions as are kept of a process, with short names.
awk 'BEGIN { for (i = 0; i < 260000; i++) printf "%x 10 function_%d\n", 1099511627776 + 16 * i, i }' > "$dir/map-many"
for behaviour in newline deleted cut mappings jitdump fifo link map-fifo map-link map-holes map-names; do
  kind "${nobody[@]}" "$dir/behave" "$behaviour"
done
# A file mounted over it, in a mount namespace of its own.
cat > "$dir/mounts" <<'SH'
#!/bin/bash
cp "$dir/mapper" "$dir/own/mounted"
[ -p "$dir/own/pipe" ] || mkfifo "$dir/own/pipe"
"$dir/own/mounted" -s 10 "$dir/files/many/file-2" &
sleep 0.3
mount --bind "$dir/own/pipe" "$dir/own/mounted"
wait
SH
chmod 755 "$dir/mounts"
kind unshare -m --propagation private nice -n "$nice" "$dir/mounts"
# File systems that fall silent.
if [ -e /dev/fuse ]; then
  for n in 1 2 3; do
    mkdir "$dir/silent$n"
    again "$dir/silent-fs" "$dir/silent$n" "$f/many/file-3"
    sleep 0.5
    kind "${nobody[@]}" "$dir/mapper" -s 3600 "$dir/silent$n/program"
  done
fi
# More processes than functions of generated code are kept of.
for _ in {1..20}; do kind "${nobody[@]}" "$dir/behave" map-many; done
# Threads, names, stacks and mappings that are not as a program's.
for storm in names renames threads forks futexes chains cycle nothing execs passing unnamed memfds deep; do
  kind "${nobody[@]}" "$dir/storms" "$storm" 10
done
kind "${nobody[@]}" "$dir/storms" servers 10 "$f"/servers/*/postgres
# Programs that come and go.
kind "${nobody[@]}" bash -c 'for i in {1..50}; do /bin/true; done; sleep 1'
while read -r chosen; do eval "again $chosen"; done < <(shuf -n "${KINDS:-$kinds}" --random-source=<(yes "$seed") "$dir/kinds")
echo "${KINDS:-$kinds} of $kinds kinds at once (SEED=$seed)"

metric() { get metrics | awk -v name="ncpu_$1_total" '$1 == name { print int($2) }'; }
resident() { awk '$1 == "VmRSS:" { kb = $2 } END { print int(kb / 1024) }' "/proc/$1/status" 2> /dev/null || echo 0; }
reader() { pgrep -x ncpu-reader -P "$serve" | tail -1; }
server() { pgrep -x ncpu-serve -P "$serve" | tail -1; }
began=$(date +%s.%N) first=$(metric intervals) worst=0 most_read=0 most_served=0 failed=0 before=$(metric intervals)
ticks() { awk '{ sub(/.*\) /, ""); print $12 + $13 }' "/proc/$serve/stat"; }
used=$(ticks)
printf '%8s %9s %10s %10s %9s %10s %7s %8s\n' seconds 'RSS MB' 'reader MB' 'server MB' intervals 'in step' 'CPU %' health
while elapsed=$(awk -v a="$began" -v b="$(date +%s.%N)" 'BEGIN { print int(b - a) }') && [ "$elapsed" -lt $((minutes * 60)) ]; do
  sleep "$step"
  rss=$(resident "$serve") now=$(metric intervals) later=$(ticks)
  reads=$(resident "$(reader)") serves=$(resident "$(server)")
  [ "$rss" -le "$worst" ] || worst=$rss
  [ "$reads" -le "$most_read" ] || most_read=$reads
  [ "$serves" -le "$most_served" ] || most_served=$serves
  printf '%8d %9d %10d %10d %9d %10d %7s %8s\n' "$elapsed" "$rss" "$reads" "$serves" "$now" "$((${now:-0} - ${before:-0}))" \
    "$(awk -v a="$used" -v b="$later" -v s="$step" 'BEGIN { printf "%.1f", (b - a) / s }')" "$(get healthz | head -c 8)"
  before=$now used=$later
done
seconds=$(awk -v a="$began" -v b="$(date +%s.%N)" 'BEGIN { print int(b - a) }')
count=$(($(metric intervals) - first)) lost=$(metric lost_intervals)
onion() { curl -s -m 30 -o /dev/null -w '%{http_code} in %{time_total} s' "http://127.0.0.1:$port/api/v1/tables/layers"; }
echo "layers: $(onion), then $(onion)"
grep -h 'in time\|reader' "$dir/said" || true
stop=$(date +%s%N)
kill -TERM "$serve"
while kill -0 "$serve" 2> /dev/null && [ $(($(date +%s%N) - stop)) -lt 20000000000 ]; do sleep 0.02; done
took=$((($(date +%s%N) - stop) / 1000000))
echo "$count intervals of 1 s in $seconds s, $lost lost on the way; at most $worst MB, its reader $most_read, ncpu-serve $most_served; stopped in $took ms"
[ "$count" -ge $((seconds - 1)) ] && [ "$lost" = 0 ] || { echo "intervals were missed"; failed=1; }
[ "$worst" -le "$most" ] || { echo "more than $most MB"; failed=1; }
[ "$took" -le 2000 ] || { echo "it took more than 2 s to stop"; failed=1; }
exit $failed
