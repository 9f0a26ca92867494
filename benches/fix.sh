#!/bin/bash
# `ncpu fix` on programs with a cause that is known beforehand: is the right remedy found unasked, what does it give, and
# is it said where nothing helps?
#
#   benches/fix.sh [CASE...]     (default all but guest; root, gcc, python3, make; PostgreSQL for `postgres`)
#   NCPU=path/to/ncpu chooses the binary (default target/release/ncpu); ROUNDS, the rounds of a comparison (7).
#   OUT=DIR keeps what each run printed.
#
# | case | cause | remedy |
# | --- | --- | --- |
# | getenv | getenv beside setenv ends in a segmentation fault (glibc before 2.41) | preload getenv |
# | mallocs | malloc gives each freed buffer back to the kernel | malloc |
# | prefork | a Python server with one worker | workers |
# | build | make -j1 | workers |
# | affinity | a mask that was inherited keeps two processes on one CPU | all CPUs |
# | quota | a control group's CPU limit | no CPU quota |
# | stacks | a list through 24 stacks, in one set of the first-level cache | preload stackbias |
# | chase | dependent reads of 256 MB on small pages | hugepages |
# | postgres | two clients' reads in 512 MB of shared buffers | hugepages with shared memory |
# | guest | on the guest's 8 nodes, a mask of one CPU that was inherited | all CPUs |
# | none | one thread that computes | nothing |
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)
ncpu=${NCPU:-$here/target/release/ncpu}
rounds=${ROUNDS:-7}
[ -x "$ncpu" ] || { echo "$0: $ncpu is missing: cargo build --release" >&2; exit 1; }
[ "$(nproc)" -ge 2 ] || { echo "$0: takes two CPUs" >&2; exit 1; }

dir=$(mktemp -d)
chmod 755 "$dir"
out=${OUT:-$dir/out}
mkdir -p "$out"
group=/sys/fs/cgroup/cpu/ncpu-bench-fix-$$
leave() {
	[ ! -d "$group" ] || rmdir "$group" 2>/dev/null || true
	rm -rf "$dir"
}
trap leave EXIT
for name in envtorture mallocs stackwalk chase; do
	gcc -O2 -g -Wall -Wextra -pthread -o "$dir/$name" "$here/workloads/$name.c"
done
cp "$here/workloads/prefork.py" "$dir"
cd "$dir"

# fix CASE EXPECTED ARGUMENTS...: EXPECTED is a regular expression for the command line to keep, or for `Nothing helps`.
failed=0
fix() {
	local name=$1 expected=$2 begin=$SECONDS status=0
	shift 2
	printf '$ ncpu fix %s\n' "${*@Q}" >"$out/$name"
	"$ncpu" fix --rounds "$rounds" "$@" >>"$out/$name" 2>"$out/$name.err" || status=$?
	if [ $status = 0 ] && sed -nE '/^(x[0-9].*|It works) by:/,$p; /^Nothing helps/p' "$out/$name" | grep -qE -- "$expected"; then
		echo "ok    $name: $(grep -E -A 1 '^(x[0-9].*|It works) by:|^Nothing helps' "$out/$name" | tr -s '\n ' ' ') ($((SECONDS - begin)) s, load $(cut -d' ' -f1 /proc/loadavg))"
	else
		failed=1
		echo "FAIL  $name: no /$expected/; exit status $status"
		sed 's/^/      /' "$out/$name" "$out/$name.err"
	fi
}

wanted=${*:-getenv mallocs prefork build affinity quota stacks chase postgres none}
for each in $wanted; do
	case $each in
	getenv) fix getenv 'preload getenv' -- ./envtorture 4 2 0.5 ;;
	mallocs) fix mallocs 'malloc|MALLOC_' -- ./mallocs 2 10000 ;;
	prefork) fix prefork 'prefork.py [248]' --metric '([0-9]+) requests' -- python3 prefork.py '{n}' 150 ;;
	build)
		mkdir -p build
		for i in $(seq 16); do
			{
				echo '#include <stdio.h>'
				for j in $(seq 60); do echo "int f${i}_$j(int x) { int s = 0; for (int i = 0; i < x; i++) s += i * $j ^ x; return s; }"; done
			} >build/$i.c
		done
		printf 'all: %s\n%%.o: %%.c\n\tgcc -O2 -c -o $@ $<\n' "$(seq -s ' ' -f '%g.o' 16)" >build/Makefile
		fix build '[-]j[248]' -- make -s -B -C build '-j{n}'
		;;
	affinity)
		saved=$(taskset -p $$ | sed 's/.*: //')
		taskset -pc 0 $$ >/dev/null
		fix affinity 'taskset -c 0-' -- sh -c 'for i in 1 2; do awk "BEGIN { for (i = 0; i < 1500000; i++) s += i * i % 7 }" & done; wait'
		taskset -p "$saved" $$ >/dev/null
		;;
	quota)
		mkdir "$group" 2>/dev/null || { echo "skip  quota: no control group of CPUs can be made here"; continue; }
		echo 30000 >"$group/cpu.cfs_quota_us"
		echo $$ >"$group/cgroup.procs"
		fix quota 'cfs_quota_us' --allow-system -- awk 'BEGIN { for (i = 0; i < 3000000; i++) s += i * i % 7; print s }'
		echo $$ >/sys/fs/cgroup/cpu/cgroup.procs
		;;
	stacks) fix stacks 'preload stackbias' --metric '([0-9.]+) ns' --lower -- ./stackwalk 24 20 ;;
	chase) fix chase 'hugepages' --metric '([0-9.]+) ns' --lower -- ./chase 256 8 ;;
	postgres)
		"$here/workloads/pgscale.sh" init "$dir/pg" >/dev/null 2>&1 || { echo "skip  postgres: no PostgreSQL"; continue; }
		fix postgres 'hugepages' --allow-system --metric 'tps = ([0-9.]+)' -- "$here/workloads/pgscale.sh" run "$dir/pg" 2 2 -S
		;;
	guest)
		NCPU=${NCPU_STATIC:-$here/target/static/ncpu} NCPU_VM_KERNELS=bookworm "$here/tests/vm/run" place-fix || failed=1
		cat "$here/target/vm/results/bookworm/place-fix/out"
		;;
	none) fix none 'Nothing helps' -- awk 'BEGIN { for (i = 0; i < 4000000; i++) s += i * i % 7; print s }' ;;
	*) echo "$0: there is no case $each" >&2; exit 2 ;;
	esac
done
exit $failed
