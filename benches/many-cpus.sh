#!/bin/sh
# What CPUs cost that are not there but could come: the memory of ncpu's BPF maps, resident memory, the time to begin and
# the CPU time of an interval, of every collector. Figures of a kernel with few possible CPUs beside one with 2048 (the kernel's
# argument possible_cpus=2048) tell what goes by possible CPUs and what by those online.
# usage: benches/many-cpus.sh [SECONDS]      needs root; NCPU is the program
ncpu=${NCPU:-ncpu} seconds=${1:-6}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
now() { cut -d' ' -f1 /proc/uptime; }
less() { awk "BEGIN { print $1 - $2 }"; }
ticks=$(getconf CLK_TCK 2>/dev/null || echo 100)
cpu() { awk -v t="$ticks" '{ sub(/.*\) /, ""); print ($12 + $13) / t }' "/proc/$1/stat"; }
maps() { cat /proc/$1/fdinfo/* 2>/dev/null | awk '$1 == "map_type:" { map = 1 } $1 == "memlock:" && map { n += $2; map = 0 } END { printf "%.1f", n / 1048576 }'; }
resident() { awk '/^VmRSS/ { printf "%.1f", $2 / 1024 }' "/proc/$1/status"; }
echo "CPUs: $(cat /sys/devices/system/cpu/online) online, $(cat /sys/devices/system/cpu/possible) possible; Linux $(uname -r)"
printf '%-12s %9s %9s %9s %12s\n' collector 'maps MiB' 'RSS MiB' 'begin s' 'CPU s a second'
# measure NAME READY CMD...: READY is what tells that it has begun.
measure() {
	name=$1 ready=$2
	shift 2
	before=$(now)
	"$@" > "$dir/out" 2> "$dir/err" &
	process=$!
	until grep -q "$ready" "$dir/out" "$dir/err" 2>/dev/null; do
		kill -0 $process 2>/dev/null || { echo "$name: $(tail -n 1 "$dir/err")"; return 0; }
		sleep 0.1
	done
	begin=$(less "$(now)" "$before")
	# The first interval has what is read once.
	sleep 2
	from=$(now) used=$(cpu $process)
	sleep "$seconds"
	used=$(less "$(cpu $process)" "$used")
	from=$(less "$(now)" "$from")
	printf '%-12s %9s %9s %9s %12s\n' "$name" "$(maps $process)" "$(resident $process)" "$begin" "$(awk "BEGIN { printf \"%.4f\", $used / $from }")"
	kill -INT $process
	wait $process
}
measure watch 'until Ctrl-C' "$ncpu" watch --record "$dir/watch" --rotate 1m
for view in cpus threads crosscalls locks memory numa; do
	measure $view . "$ncpu" $view 1 1000
done
measure timers . "$ncpu" timers --cpus 1 1000
