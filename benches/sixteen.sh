#!/bin/bash
# Measures ncpu and libncpu on a machine of about 16 CPUs in at most nine minutes, with the files it carries and nothing else.
#
#   benches/sixteen.sh pack DIR      here: put what it needs into DIR, all of it static (a build of `make static`, cargo, gcc)
#   DIR/sixteen.sh [OUT [SECONDS]]   there: measure for at most SECONDS [default: 540] and write OUT [default: DIR/out]; root for BPF
#
# Each part is a file of OUT, and summary.txt has a line or two of each. A part that the time is too short for is left out, and
# summary.txt says so. Forecasts are written before what they predict is measured. NCPU_STATIC=FILE: the ncpu to pack.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

pack() {
	local to=$1 top=$here/.. bench
	mkdir -p "$to"
	install --strip "${NCPU_STATIC:-$top/target/static/ncpu}" "$to/ncpu"
	install "$here/sixteen.sh" "$to/sixteen.sh"
	for source in "$top"/workloads/{fdtorture,munmap,pingpong,onelock,dumpee,churn}.c; do
		gcc -O2 -pthread -static -o "$to/$(basename "$source" .c)" "$source" -lm
	done
	# tzlock THREADS SECONDS: localtime_r, which takes glibc's one lock for time zones.
	gcc -O2 -pthread -static -x c -o "$to/tzlock" - <<-'C'
		#include <pthread.h>
		#include <stdatomic.h>
		#include <stdio.h>
		#include <stdlib.h>
		#include <time.h>
		#include <unistd.h>
		static atomic_int over;
		static void *stamp(void *count)
		{
			struct tm m;
			for (time_t t = 1700000000; !over; t++, ++*(long *)count)
				localtime_r(&t, &m);
			return count;
		}
		int main(int argc, char **argv)
		{
			int threads = argc > 2 ? atoi(argv[1]) : 1, seconds = argc > 2 ? atoi(argv[2]) : 1;
			static struct { pthread_t thread; long count; char pad[112]; } all[256];
			long sum = 0;
			setenv("TZ", "UTC", 1);
			for (int i = 0; i < threads && i < 256; i++)
				pthread_create(&all[i].thread, 0, stamp, &all[i].count);
			sleep(seconds);
			over = 1;
			for (int i = 0; i < threads && i < 256; i++)
				pthread_join(all[i].thread, 0), sum += all[i].count;
			printf("%ld ops/s\n", sum / seconds);
		}
	C
	# A link of their own: cargo's programs of the same name keep their shared libraries.
	for bench in primitives waits; do
		(cd "$top" && cargo rustc --profile bench --locked -p libncpu --bench $bench --message-format json -- -C target-feature=+crt-static) |
			grep -oE '"executable":"[^"]*/'$bench'-[^"]*"' | tail -n 1 | cut -d'"' -f4 | xargs -I{} install {} "$to/$bench"
	done
	echo "packed: $(du -sh "$to" | cut -f1) in $to"
}
if [ "${1:-}" = pack ]; then
	pack "${2:?usage: sixteen.sh pack DIR}"
	exit
fi

out=${1:-$here/out} limit=${2:-540}
mkdir -p "$out"
out=$(cd "$out" && pwd)
ncpu=$here/ncpu
work=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || :; rm -rf "$work"' EXIT
cd "$work"
PATH=$here:$PATH
cpus=$(nproc)
summary=$out/summary.txt
: >"$summary"
say() { echo "$*" | tee -a "$summary"; }

# part NAME SECONDS: whether there is time for a part of about SECONDS, or longer where the parts before took longer than that.
planned=0
part() {
	local takes=$2
	[ $planned = 0 ] || [ $SECONDS -le $planned ] || takes=$((takes * SECONDS / planned))
	if [ $((SECONDS + takes)) -gt "$limit" ]; then
		say "$1: left out, for $SECONDS of $limit s are over and it takes about $takes"
		return 1
	fi
	planned=$((planned + $2))
	echo "== $1 (at $SECONDS s)"
}
median() { sort -g | awk '{ v[NR] = $1 } END { if (!NR) exit; m = NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2; printf "%g", m }'; }
# The throughput that a program printed: the number before "ops/s", "times/s", "million", "trips/s", whichever it says.
rate() { grep -oE '[0-9.]+ (million|ops/s|times/s|round trips/s)' | tail -n 1 | grep -oE '^[0-9.]+'; }
# Column `ratio` of the benchmark's tables.
ratios() { awk '$1 == "threads" { for (i = 1; i <= NF; i++) if ($i == "ratio") c = i; next } /^the least/ { c = 0 } c && $1 ~ /^[0-9]+$/ && $c ~ /^[0-9.]+$/ { print $c }' "$1"; }
now() { date +%s%N; }

{
	uname -srm
	lscpu 2>/dev/null || cat /proc/cpuinfo
	"$ncpu" topology
	"$ncpu" --version
} >"$out/machine.txt" 2>&1
say "machine: $(grep -m 1 -E 'Model name|model name' "$out/machine.txt" | sed 's/.*: *//'), $cpus CPUs, $(uname -sr), load $(cut -d' ' -f1 /proc/loadavg)"
counts=$(n=1; while [ $n -lt "$cpus" ]; do printf '%s,' $n; n=$((n * 2)); done; echo "$cpus")

if part start 15; then
	for _ in $(seq 15); do
		t=$(now)
		began=$("$ncpu" run -- date +%s%N 2>/dev/null)
		echo "$(((began - t) / 1000)) $((($(now) - t) / 1000))"
	done >"$out/start.txt"
	say "start: command after $(awk '{ print $1 / 1000 }' "$out/start.txt" | median) ms, whole $(awk '{ print $2 / 1000 }' "$out/start.txt" | median) ms (medians of 15)"
fi

# What observing keeps of the throughput, in interleaved rounds.
keeps() { # NAME OBSERVER... -- CMD...
	local name=$1 observer=() round plain watched
	shift
	while [ "$1" != -- ]; do observer+=("$1"); shift; done
	shift
	for round in 1 2 3; do
		plain=$("$@" 2>&1 | rate) watched=$("${observer[@]}" -- "$@" 2>/dev/null | rate)
		echo "$name $plain $watched $(awk -v a="$watched" -v b="$plain" 'BEGIN { print (b > 0 ? a / b : "-") }')"
	done >>"$out/overhead.txt"
	say "overhead: ${observer[1]} keeps $(grep "^$name " "$out/overhead.txt" | awk '{ print $4 }' | median) of $name"
}
if part overhead 75; then
	: >"$out/overhead.txt"
	keeps "fdtorture" "$ncpu" run -- fdtorture "$cpus" 1
	keeps "fdtorture-locks" "$ncpu" locks -- fdtorture "$cpus" 1
	keeps "munmap" "$ncpu" run -- munmap "$cpus" 1
	keeps "munmap-crosscalls" "$ncpu" crosscalls -- munmap "$cpus" 1
	keeps "onelock" "$ncpu" run -- onelock "$cpus" 1
	keeps "pingpong" "$ncpu" run -- pingpong 1
	# A load like a build's: short processes as fast as all CPUs start them.
	load() { seq $((cpus * 60)) | xargs -P "$cpus" -I{} sh -c 'i=0; while [ $i -lt 3000 ]; do i=$((i + 1)); done'; }
	export cpus
	export -f load
	for _ in 1 2 3; do
		t=$(now); bash -c load; plain=$((($(now) - t) / 1000))
		inside=$("$ncpu" run -- bash -c 't=$(date +%s%N); load; echo $((($(date +%s%N) - t) / 1000))' 2>/dev/null)
		echo "processes $plain $inside $(awk -v a="$plain" -v b="$inside" 'BEGIN { print a / b }')"
	done >>"$out/overhead.txt"
	say "overhead: run keeps $(grep '^processes ' "$out/overhead.txt" | awk '{ print $4 }' | median) of the speed of $((cpus * 60)) short processes"
fi

if part mutexes 110; then
	# Samples of 60 ms say little of a thread that waits for 10 ms: the second program shows the longest waits.
	timeout 80 primitives --group mutex --threads "$counts" --inside 0,100,1000 --outside 0 --time 60 --rounds 2 \
		--only ncpu,ncpu-fair,std,parking_lot,usync,pthread >"$out/mutexes.txt" 2>&1 || :
	for inside in 100 1000; do timeout 30 waits $((2 * cpus)) 0.4 $inside; done >"$out/waits.txt" 2>&1 || :
	say "mutexes: libncpu over the best of the others: $(ratios "$out/mutexes.txt" | median) (median of cells), $(ratios "$out/mutexes.txt" | sort -g | sed -n 1p) (lowest)"
	say "waits of $((2 * cpus)) threads, 100 ns inside: $(awk '$1 == "ncpu" { print "ncpu least " $3 ", longest " $4 " ms"; exit }' "$out/waits.txt"); $(awk '$1 == "parking_lot" { print "parking_lot least " $3 ", longest " $4 " ms"; exit }' "$out/waits.txt")"
fi
if part "other primitives" 50; then
	for group in rwlock counter vmem; do
		timeout 25 primitives --group $group --threads "$counts" --time 40 --rounds 1 >"$out/$group.txt" 2>&1 || :
		say "$group: $(ratios "$out/$group.txt" | awk '{ n++; if ($1 < 1) behind++ } END { printf "%d cells, behind in %d", n, behind }')"
	done
fi
if part core-to-core 25; then
	timeout 40 "$ncpu" bench core-to-core >"$out/core-to-core.txt" 2>&1 || :
	say "core-to-core: $(tail -n 1 "$out/core-to-core.txt")"
fi

# Forecasts from the smallest counts, written before the truth is measured; then the truth.
programs=("fdtorture {N} 1" "tzlock {N} 1" "onelock {N} 1" "munmap {N} 1" "fdtorture --unshare {N} 1")
bound() { echo "0-$(($1 - 1))"; }
if [ "$cpus" -ge 4 ] && part forecasts 70; then
	: >"$out/forecasts.txt"
	for program in "${programs[@]}"; do
		for from in 2 4; do
			[ "$from" -lt "$cpus" ] || continue
			words=${program//"{N}"/$from}
			rm -rf rec
			# shellcheck disable=SC2086
			was=$(taskset -c "$(bound $from)" "$ncpu" run --record rec -- $words 2>/dev/null | rate)
			echo "## $program, recorded on $from CPUs at $was" >>"$out/forecasts.txt"
			timeout 20 "$ncpu" foresee rec --on "1x$cpus" --bound "$from" --cpus "$((cpus / 2)),$cpus" --throughput "${was:-1}" >>"$out/forecasts.txt" 2>&1 || :
		done
	done
	say "forecasts: written at $SECONDS s, before what they predict is measured"
fi
if part truth 40; then
	for program in "${programs[@]}"; do
		for n in ${counts//,/ }; do
			# shellcheck disable=SC2086
			echo "$program: $n CPUs: $(taskset -c "$(bound "$n")" ${program//"{N}"/$n} 2>&1 | rate)"
		done
	done >"$out/truth.txt"
	say "truth: $(grep -c . "$out/truth.txt") points"
fi
if part "scale --peel" 90; then
	for program in "${programs[@]}"; do
		# shellcheck disable=SC2086
		timeout 45 "$ncpu" scale --peel --rounds 1 --cpus "$counts" --metric '([0-9.]+) (?:million|ops/s|times/s)' -- $program \
			>"$out/scale-${program%% *}$(grep -o unshare <<<"$program" || :).txt" 2>&1 || :
	done
	say "scale --peel: $(grep -lE 'contention|Amdahl' "$out"/scale-*.txt | wc -l) of ${#programs[@]} programs have a law"
fi
if part placement 25; then
	{
		timeout 15 "$ncpu" partition 2 --metric '([0-9.]+) million' --rounds 3 -- onelock '{cpus}' 0.4
		"$ncpu" place --dry-run spread -- true
		"$ncpu" place spread -- onelock "$cpus" 0.5
		"$ncpu" place pack:2 -- onelock 2 0.5
	} >"$out/placement.txt" 2>&1 || :
	say "placement: $(grep -m 1 -iE 'times|x[0-9]' "$out/placement.txt" || tail -n 1 "$out/placement.txt")"
fi
if part dump 15; then
	dumpee 1024 "$cpus" 100000 p >dumpee.out &
	pid=$!
	until [ -s dumpee.out ]; do sleep 0.1; done
	for _ in 1 2 3; do "$ncpu" dump "$(cut -d' ' -f1 dumpee.out | head -n 1)" -o core.zst 2>&1; rm -f core.zst; done >"$out/dump.txt" || :
	kill $pid 2>/dev/null || :
	wait $pid 2>/dev/null || :
	say "dump of 1 GB: $(sed -n 's/.*\(stopped for .*\)/\1/p' "$out/dump.txt" | paste -sd';' -)"
fi
if part timers 12; then
	timeout 15 "$ncpu" timers --cpus 2 >"$out/timers.txt" 2>&1 || :
	say "timers: $(grep -c . "$out/timers.txt") lines"
fi
# The rest of the time, down to a few seconds: the observer under a load that is ever new to it.
left=$((limit - SECONDS - 10))
if [ $left -gt 20 ] && part endurance 20; then
	"$ncpu" watch -a --record endurance.ncpu >"$out/endurance-report.txt" 2>&1 &
	watch=$!
	churn $((left - 8)) $((20 * cpus)) "$cpus" 16 64 >"$out/endurance.txt" 2>&1 &
	churn=$!
	while kill -0 $churn 2>/dev/null; do
		echo "at $SECONDS s: $(awk '/^VmRSS/ { print $2 }' /proc/$watch/status) kB resident, $(awk '{ print $14 + $15 }' /proc/$watch/stat) ticks" >>"$out/endurance.txt"
		sleep 5
	done
	kill -INT $watch
	wait $watch 2>/dev/null || :
	say "endurance: $left s; $(grep -c resident "$out/endurance.txt") looks, $(grep resident "$out/endurance.txt" | sed -n '1p;$p' | grep -oE '[0-9]+ kB' | paste -sd' ' -) resident at the first and the last; dropped: $(grep -ciE 'dropped' "$out/endurance-report.txt" || :)"
fi
say "done in $SECONDS s of $limit"
